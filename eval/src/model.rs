//! What this crate asks of a language model, and nothing about how it computes.

use std::ops::Range;

use crate::Result;

/// A causal language model that reads ragged sequences without padding.
///
/// Rows of one call never influence each other: the logits of a sequence are those of the
/// sequence alone. Logits are f32 rows of `vocab()` values; rows of a padded vocabulary are left
/// out or hold negative infinity.
pub trait LanguageModel {
    /// State of sequences that were read and may be extended.
    type Cache;

    /// V, the number of logits in a row.
    fn vocab(&self) -> usize;

    /// The longest sequence that the model can read, in ids.
    fn max_positions(&self) -> usize;

    /// Logits after reading `sequences[i][..=p]` for each p of `positions[i]`, sequence by sequence.
    /// The head is evaluated at those positions only.
    ///
    /// Returns `[Σ positions, V]`, row-major.
    fn logits_at(&self, sequences: &[&[u32]], positions: &[Range<usize>]) -> Result<Vec<f32>>;

    /// Reads sequences of any lengths and keeps their state for at most `steps` more ids each.
    ///
    /// Returns the cache and the logits `[n, V]` after the last id of each sequence.
    fn prefill(&self, sequences: &[&[u32]], steps: usize) -> Result<(Self::Cache, Vec<f32>)>;

    /// Appends one id to each sequence of the cache and returns the logits `[n, V]` after it.
    fn decode(&self, cache: &mut Self::Cache, next: &[u32]) -> Result<Vec<f32>>;
}
