//! The largest numbers of an experiment file, so that no product of them wraps and no typing error
//! asks for more memory than any machine has.
//!
//! The bounds are far above every use known; they guard, they don't advise.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::resolve::{Refusal, Resolved, refuse};

/// Ids of a vocabulary.
pub(super) const VOCABULARY: RangeInclusive<usize> = 1..=1_000_000;
/// Width of the residual stream.
pub(super) const HIDDEN: RangeInclusive<usize> = 1..=65_536;
/// Blocks.
pub(super) const LAYERS: RangeInclusive<usize> = 1..=1_000;
/// Heads, of queries or of keys and values.
pub(super) const HEADS: RangeInclusive<usize> = 1..=1_024;
/// Width of the feed-forward layer.
pub(super) const FEED_FORWARD: RangeInclusive<usize> = 1..=1_000_000;
/// Ids of a document, a prefix or a suffix.
pub(super) const TOKENS: RangeInclusive<usize> = 1..=1_048_576;
/// Windows of one article.
pub(super) const WINDOWS: RangeInclusive<usize> = 1..=1_000_000;
/// Ids of a shingle.
pub(super) const SHINGLE: RangeInclusive<usize> = 2..=100;
/// Share of the shingles that makes a near-copy.
pub(super) const NEAR: RangeInclusive<f64> = 0.1..=1.0;
/// Clusters of a bucket.
pub(super) const CLUSTERS: RangeInclusive<usize> = 1..=10_000_000;
/// Presentations of one document.
pub(super) const EPOCHS: RangeInclusive<u32> = 0..=1_000_000;
/// Levels of a study, its models, lengths of suffix or prefix, and combinations of a matrix.
pub(super) const LIST: RangeInclusive<usize> = 1..=100;
/// Rows of a batch, and documents scored at a time.
pub(super) const BATCH: RangeInclusive<usize> = 1..=100_000;
/// Background rows for each treated one.
pub(super) const MIX: RangeInclusive<u32> = 0..=1_000;
/// Steps of the warm-up.
pub(super) const STEPS: RangeInclusive<u32> = 0..=10_000_000;
/// Checkpoints kept.
pub(super) const CHECKPOINTS: RangeInclusive<usize> = 1..=1_000_000;
/// Rows of background, and rows of a phase of training.
pub(super) const ROWS: RangeInclusive<u64> = 0..=100_000_000;
/// Held-out documents.
pub(super) const HELD_OUT: RangeInclusive<usize> = 0..=1_000_000;
/// k of Goldfish.
pub(super) const ONE_IN: RangeInclusive<u32> = 2..=1_000_000;
/// h of Goldfish.
pub(super) const CONTEXT: RangeInclusive<usize> = 1..=65_536;
/// Ranks along one axis of the grid.
pub(super) const AXIS: RangeInclusive<usize> = 1..=4_096;
/// Ranks of a grid.
pub(super) const RANKS: RangeInclusive<usize> = 1..=1_000_000;
/// Weights gathered ahead of their use.
pub(super) const AHEAD: RangeInclusive<usize> = 0..=1_000;
/// Chunks of the rows of a product.
pub(super) const CHUNKS: RangeInclusive<usize> = 1..=1_024;
/// MiB of a bucket of gradients.
pub(super) const BUCKET: RangeInclusive<usize> = 1..=65_536;
/// Seconds that ranks wait for each other.
pub(super) const TIMEOUT: RangeInclusive<u64> = 1..=86_400;
/// Bootstrap resamples.
pub(super) const RESAMPLES: RangeInclusive<usize> = 1..=1_000_000;
/// The confidence level.
pub(super) const LEVEL: RangeInclusive<f64> = 0.5..=0.9999;
/// The learning rate at its peak.
pub(super) const RATE: RangeInclusive<f64> = 1e-12..=1_000.0;
/// The largest gradient norm.
pub(super) const CLIP: RangeInclusive<f64> = 1e-12..=1e12;
/// ε of the optimizer and of the norms; the smallest is above 0 in 32-bit floats too.
pub(super) const EPSILON: RangeInclusive<f64> = 1e-30..=1.0;
/// Weight decay.
pub(super) const DECAY: RangeInclusive<f64> = 0.0..=1_000.0;
/// Base of the rotary frequencies.
pub(super) const ROTARY: RangeInclusive<f64> = 1.0..=1e12;
/// Parameters of a model with random weights.
const PARAMETERS: f64 = 2e10;
/// Ids of one forward pass.
const PASS: usize = 1 << 24;

/// Refuses a number outside `range`, in a sentence that gives both ends.
pub(super) fn within<T: Copy + PartialOrd + Display>(
    field: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Resolved<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (start, end) = (range.start(), range.end());
    refuse(field, format!("{value} is not from {start} to {end}"))
}

/// Refuses a pass of more ids than can be numbered and held.
pub(super) fn pass(field: &str, rows: usize, tokens: usize) -> Resolved<()> {
    if rows.checked_mul(tokens).is_some_and(|ids| ids <= PASS) {
        return Ok(());
    }
    refuse(
        field,
        format!(
            "{rows} rows of {tokens} ids are more than the {PASS} ids of one forward pass; lower it"
        ),
    )
}

/// Refuses random weights of more parameters than are worth starting.
pub(super) fn parameters(count: f64) -> Resolved<()> {
    if count <= PARAMETERS {
        return Ok(());
    }
    refuse(
        "model.random",
        format!(
            "has {:.0} billion parameters; random weights of more than {:.0} billion are refused",
            count / 1e9,
            PARAMETERS / 1e9
        ),
    )
}

/// The rows of a phase from its factors, if they are not too many.
pub(super) fn rows(
    field: &str,
    what: &str,
    factors: impl IntoIterator<Item = u64>,
) -> Result<u64, Refusal> {
    let product = factors.into_iter().try_fold(1, u64::checked_mul);
    match product {
        Some(product) if ROWS.contains(&product) => Ok(product),
        _ => refuse(
            field,
            format!("{what} would be more than {} rows; lower it", ROWS.end()),
        ),
    }
}
