//! Integration tests of `axmem-eval`. Names that open with a letter and two digits guard against a
//! known symptom of other tools.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test fails as the test does"
)]

mod batching;
mod coverage;
mod curve;
mod estimate;
mod grid;
mod hazard;
mod llama;
mod power;
mod probe;
mod scipy;
mod score;
mod similarity;
mod stats;
mod table;
mod threshold;
mod toy;
