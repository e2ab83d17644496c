//! Weights and probes to scores; scores to estimates.
//!
//! | module | owns |
//! |---|---|
//! | [`probe`] | where a document is cut into prefix and suffix |
//! | [`model`] | what is asked of a language model |
//! | [`mod@score`] | the teacher-forced scorer, fragility, the cross-check by free-running decoding |
//! | [`rank_model`] | the trainer's Llama as such a model |
//! | [`decode`] | greedy decoding with a key-value cache |
//! | [`similarity`] | edit distance, longest common run and ROUGE-L of two sequences |
//! | [`extraction`] | how often a model must be asked until a text comes out |
//! | [`stats`] | intervals and tests as pure functions |
//! | [`coverage`] | how often intervals cover and tests reject, by simulation |
//! | [`record`] | one score with its place in the experiment |
//! | [`mod@estimate`] | rates, contrasts and transitions of a finished experiment |
//! | [`table`] | the Parquet tables of all of these |
//!
//! The crate opens no file, reads no clock and keeps no global state.

pub mod coverage;
pub mod decode;
pub mod error;
pub mod estimate;
pub mod extraction;
mod logits;
pub mod model;
pub mod probe;
pub mod rank_model;
pub mod record;
pub mod score;
mod share;
pub mod similarity;
pub mod stats;
pub mod table;

pub use decode::greedy;
pub use error::{Error, Kind, Result};
pub use model::{LanguageModel, Visit};
pub use probe::{Cut, Prefix, Probe};
pub use rank_model::RankModel;
pub use record::{ModelInfo, ScoreRow, Time};
pub use score::{
    BATCH_TOKENS, Contradiction, Score, ScoreSettings, cross_check_sample, generate,
    measure_tolerance, score,
};
