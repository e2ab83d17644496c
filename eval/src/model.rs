//! What this crate asks of a language model, and nothing about how it computes.

use std::ops::Range;

use crate::Result;

/// Is shown rows of logits `[n, V]`, whole rows in order, some at a time. It cannot fail, so that ranks that compute one
/// model together make the same calls whatever one of them sees.
pub type Visit<'a> = dyn FnMut(&[f32]) + 'a;

/// A causal language model that reads ragged sequences without padding.
///
/// Rows of one call never influence each other: the logits of a sequence are those of the
/// sequence alone. Logits are f32 rows of `vocab()` values; rows of a padded vocabulary are left
/// out or hold negative infinity. The logits of a call need not exist at one time: they are shown
/// to a [`Visit`], a bounded number at once.
pub trait LanguageModel {
    /// State of sequences that were read and may be extended.
    type Cache;

    /// V, the number of logits in a row.
    fn vocab(&self) -> usize;

    /// The longest sequence that the model can read, in ids.
    fn max_positions(&self) -> usize;

    /// Shows the logits after reading `sequences[i][..=p]` for each p of `positions[i]`, sequence by sequence: Σ positions
    /// rows. The head is evaluated at those positions only.
    fn logits_at(
        &self,
        sequences: &[&[u32]],
        positions: &[Range<usize>],
        visit: &mut Visit<'_>,
    ) -> Result<()>;

    /// Reads sequences of any lengths and keeps their state for at most `steps` more ids each. Shows the logits after the
    /// last id of each sequence.
    fn prefill(
        &self,
        sequences: &[&[u32]],
        steps: usize,
        visit: &mut Visit<'_>,
    ) -> Result<Self::Cache>;

    /// Appends one id to each sequence of the cache and shows the logits after it.
    fn decode(&self, cache: &mut Self::Cache, next: &[u32], visit: &mut Visit<'_>) -> Result<()>;

    /// Which part of a batch this rank evaluates: its place, from 0, among so many parts. Ranks that compute the same rows
    /// together have the same place.
    fn share(&self) -> (usize, usize) {
        (0, 1)
    }

    /// The words of every part, by place, on every rank. All ranks call it together; the numbers of words may differ.
    fn gather(&self, words: Vec<u64>) -> Result<Vec<Vec<u64>>> {
        Ok(vec![words])
    }
}
