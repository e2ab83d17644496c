//! The trainer's Llama on one rank, seen as a [`LanguageModel`].

use std::ops::Range;

use axmem_trainer::comm::Communicator;
use axmem_trainer::{Axis, KvCache, Llama, Rank};

use crate::model::Visit;
use crate::{Error, LanguageModel, Result};

/// The most logits held at once (32 MiB of f32); the head runs over chunks of rows.
const LOGITS_AT_ONCE: usize = 1 << 23;
/// The axes whose ranks share the documents; ranks of X and Y compute the same rows together.
const SHARING: [Axis; 2] = [Axis::Z, Axis::Data];

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
    /// Shows the logits of chosen rows of `hidden`, which has `total` rows.
    fn head_at(
        &self,
        hidden: &[f32],
        rows: &[usize],
        total: usize,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let width = hidden.len() / total.max(1);
        let mut chosen = Vec::with_capacity(rows.len() * width);
        for &row in rows {
            chosen.extend_from_slice(&hidden[row * width..(row + 1) * width]);
        }
        self.head(&chosen, rows.len(), visit)
    }

    /// Shows the logits of `hidden` `[rows, H/y]`, without the columns of the vocabulary that stand for no id.
    fn head(&self, hidden: &[f32], rows: usize, visit: &mut Visit<'_>) -> Result<()> {
        let (vocab, all) = (self.vocab(), self.llama.config().vocab);
        let at_once = (LOGITS_AT_ONCE / all).max(1);
        let width = hidden.len() / rows.max(1);
        // Ranks of Z gather the head's weight from each other, so all run it as often as the one with the most rows.
        let calls = most(self.rank.groups.z.as_ref(), rows.div_ceil(at_once))?;
        for call in 0..calls {
            let [first, last] = [call, call + 1].map(|call| (call * at_once).min(rows) * width);
            let mut logits = self.llama.logits(self.rank, &hidden[first..last])?;
            if vocab < all {
                let rows = logits.len() / all;
                for row in 1..rows {
                    logits.copy_within(row * all..row * all + vocab, row * vocab);
                }
                logits.truncate(rows * vocab);
            }
            if !logits.is_empty() {
                visit(&logits);
            }
        }
        Ok(())
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

    fn logits_at(
        &self,
        sequences: &[&[u32]],
        positions: &[Range<usize>],
        visit: &mut Visit<'_>,
    ) -> Result<()> {
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
        let hidden = self.llama.hidden(self.rank, sequences)?;
        self.head_at(&hidden, &rows, start, visit)?;
        // Batches differ in size, and buffers of every size would stay.
        self.rank.pool.shrink();
        Ok(())
    }

    fn prefill(
        &self,
        sequences: &[&[u32]],
        steps: usize,
        visit: &mut Visit<'_>,
    ) -> Result<KvCache> {
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
        let longest = sequences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let mut cache = self
            .llama
            .cache(self.rank, sequences.len(), longest + steps);
        let hidden = self.llama.extend(self.rank, &mut cache, sequences)?;
        self.head_at(&hidden, &last, end, visit)?;
        self.rank.pool.shrink();
        Ok(cache)
    }

    fn decode(&self, cache: &mut KvCache, next: &[u32], visit: &mut Visit<'_>) -> Result<()> {
        let new: Vec<&[u32]> = next.chunks(1).collect();
        let hidden = self.llama.extend(self.rank, cache, &new)?;
        self.head(&hidden, next.len(), visit)
    }

    fn share(&self) -> (usize, usize) {
        let (mut place, mut parts) = (0, 1);
        for axis in SHARING {
            let group = self.rank.group(axis);
            place += group.place() * parts;
            parts *= group.size();
        }
        (place, parts)
    }

    fn gather(&self, words: Vec<u64>) -> Result<Vec<Vec<u64>>> {
        let mut messages = vec![words];
        for axis in SHARING {
            messages = gather_messages(self.rank.group(axis), messages)?;
        }
        Ok(messages)
    }
}

/// The largest of a group's counts.
fn most(group: &dyn Communicator, count: usize) -> Result<usize> {
    if group.size() == 1 {
        return Ok(count);
    }
    let counts = group.all_gather_words(&[count as u64])?;
    Ok(counts.into_iter().flatten().max().unwrap_or(0) as usize)
}

/// The messages of all ranks of a group, in rank order. Every rank has as many; their lengths may differ.
fn gather_messages(group: &dyn Communicator, messages: Vec<Vec<u64>>) -> Result<Vec<Vec<u64>>> {
    if group.size() == 1 {
        return Ok(messages);
    }
    let own: usize = messages.iter().map(|words| 1 + words.len()).sum();
    let longest = most(group, own)?;
    let mut flat = Vec::with_capacity(longest);
    for words in &messages {
        flat.push(words.len() as u64);
        flat.extend(words);
    }
    flat.resize(longest, 0);
    let mut gathered = Vec::with_capacity(group.size() * messages.len());
    for part in group.all_gather_words(&flat)? {
        let mut start = 0;
        for _ in 0..messages.len() {
            let end = start + 1 + part[start] as usize;
            gathered.push(part[start + 1..end].to_vec());
            start = end;
        }
    }
    Ok(gathered)
}
