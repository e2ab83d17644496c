//! The integration tests of the crate, one module a part.
#![allow(clippy::unwrap_used, missing_docs)]

mod background;
mod bucket;
mod contamination;
mod created_after;
mod eligibility;
mod near_duplicates;
mod policy;
mod reader;
mod schedule;
mod source;
mod table;
mod texts;
mod tokenizer;
mod vocabulary;
