//! `axmem`: from an experiment file to a report, remembering what is done.
//!
//! ```text
//! main -> cli -> run -> stages/train -> trainer's launch, engine, llama, layers, comm
//!          |      |
//!   experiment  plan, store, events, ranks     report
//! ```
//!
//! This crate owns the command line, the experiment file, the plan, the store and the report. It
//! touches no tensors and has no formula of statistics: those are the other crates' work, and the
//! adapters in [`stages`] only open inputs, call them, and write outputs.

pub mod artefact;
pub mod audit;
pub mod bench;
pub mod certify;
pub mod cli;
pub mod digest;
pub mod events;
pub mod exit;
pub mod experiment;
pub mod export;
pub mod merge;
pub mod only;
pub mod plan;
pub mod power;
pub mod ranks;
pub mod rates;
pub mod record;
pub mod report;
pub mod run;
pub mod scoring;
pub mod show;
pub mod stages;
pub mod store;
pub mod verify;
pub mod weights;
