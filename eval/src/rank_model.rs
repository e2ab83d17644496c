//! The trainer's Llama on one rank, seen as a [`LanguageModel`].

use std::ops::Range;

use axmem_trainer::{KvCache, Llama, Rank};

use crate::{Error, LanguageModel, Result};

/// A model together with the rank it runs on.
#[derive(Clone, Copy)]
pub struct RankModel<'a> {
    /// The weights.
    pub llama: &'a Llama,
    /// The rank that holds them.
    pub rank: &'a Rank,
    /// The number of ids of the tokenizer. Rows of the vocabulary beyond them stand for no id:
    /// they are cut off, so that none is ever chosen or counted in a probability.
    pub ids: usize,
}

impl RankModel<'_> {
    /// Logits of chosen rows of `hidden`, `[rows, H]`.
    fn logits(&self, hidden: &[f32], rows: &[usize], total: usize) -> Result<Vec<f32>> {
        let width = hidden.len() / total.max(1);
        let chosen: Vec<f32> = rows
            .iter()
            .flat_map(|&row| &hidden[row * width..(row + 1) * width])
            .copied()
            .collect();
        self.head(&chosen)
    }

    /// Logits `[rows, V]` of `hidden`, `[rows, H]`, without the rows of the vocabulary that stand
    /// for no id.
    fn head(&self, hidden: &[f32]) -> Result<Vec<f32>> {
        let mut logits = self.llama.logits(self.rank, hidden)?;
        let (vocab, all) = (self.vocab(), self.llama.config().vocab);
        if vocab < all {
            let rows = logits.chunks_exact(all);
            logits = rows.flat_map(|row| &row[..vocab]).copied().collect();
        }
        Ok(logits)
    }
}

impl LanguageModel for RankModel<'_> {
    type Cache = KvCache;

    fn vocab(&self) -> usize {
        self.ids.min(self.llama.config().vocab)
    }

    fn max_positions(&self) -> usize {
        self.llama.config().max_positions
    }

    fn logits_at(&self, sequences: &[&[u32]], positions: &[Range<usize>]) -> Result<Vec<f32>> {
        let hidden = self.llama.hidden(self.rank, sequences)?;
        let (mut rows, mut start) = (Vec::new(), 0);
        for (sequence, positions) in sequences.iter().zip(positions) {
            if positions.end > sequence.len() {
                return Err(Error::Model(format!(
                    "positions up to {} of a sequence of {} ids",
                    positions.end,
                    sequence.len()
                )));
            }
            rows.extend(positions.clone().map(|position| start + position));
            start += sequence.len();
        }
        self.logits(&hidden, &rows, start)
    }

    fn prefill(&self, sequences: &[&[u32]], steps: usize) -> Result<(KvCache, Vec<f32>)> {
        let longest = sequences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let mut cache = self
            .llama
            .cache(self.rank, sequences.len(), longest + steps);
        let hidden = self.llama.extend(self.rank, &mut cache, sequences)?;
        let (mut last, mut end) = (Vec::with_capacity(sequences.len()), 0);
        for (index, ids) in sequences.iter().enumerate() {
            if ids.is_empty() {
                return Err(Error::Model(format!(
                    "sequence {index} is empty; a prefix has at least one id"
                )));
            }
            end += ids.len();
            last.push(end - 1);
        }
        let logits = self.logits(&hidden, &last, end)?;
        Ok((cache, logits))
    }

    fn decode(&self, cache: &mut KvCache, next: &[u32]) -> Result<Vec<f32>> {
        let new: Vec<&[u32]> = next.chunks(1).collect();
        let hidden = self.llama.extend(self.rank, cache, &new)?;
        self.head(&hidden)
    }
}
