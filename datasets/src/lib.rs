//! From a source of text to token sequences with bucket labels.
//!
//! The way of the data, one module a step:
//!
//! ```text
//! source -> reader -> document -> tokenizer -> eligibility -> cluster -> bucket -> schedule
//!                                            near_duplicates --^      \--> background --^
//! ```
//!
//! [`contamination`] is what the control shares with what is trained on, [`created_after`] draws a second control from a later dump, [`exposure`] is the ledger of what the schedule presented, [`table`] writes each step's rows,
//! [`random`] gives the keyed draws, and [`files`] is the one place for file access.
//!
//! This crate owns sources, Wikipedia readers, filters, clusters, the tokenizer, buckets and the
//! exposure schedule. It knows nothing of tensors, losses, experiment files or the artefact store.

pub mod background;
pub mod bucket;
pub mod cluster;
pub mod contamination;
pub mod created_after;
pub mod document;
pub mod eligibility;
pub mod error;
pub mod exposure;
pub mod files;
pub mod near_duplicates;
pub mod random;
pub mod reader;
mod runs;
pub mod schedule;
pub mod source;
pub mod table;
pub mod tokenizer;

pub use error::{Error, Kind, Result};
