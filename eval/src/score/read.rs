//! Teacher-forced passes over cut documents, batch by batch.

use std::ops::Range;

use super::position::Position;
use crate::decode::greedy_named;
use crate::logits::for_rows;
use crate::probe::Cut;
use crate::{Error, LanguageModel, Result, share};

/// A document as one pass reads it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) document: &'a str,
    pub(super) cut: &'a Cut,
}

/// What a batch may hold at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Documents.
    pub(super) documents: usize,
    /// Ids, unless one document alone has more.
    pub(super) tokens: usize,
}

impl Limits {
    /// Numbers of the readings in batches of similar lengths: by length, then by document.
    fn batches(self, readings: &[Reading<'_>]) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..readings.len()).collect();
        order.sort_by_key(|&index| (readings[index].cut.ids.len(), readings[index].document));
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut tokens = 0;
        for index in order {
            let length = readings[index].cut.ids.len();
            tokens += length;
            match batches.last_mut() {
                Some(batch) if batch.len() < self.documents && tokens <= self.tokens => {
                    batch.push(index);
                }
                _ => {
                    batches.push(vec![index]);
                    tokens = length;
                }
            }
        }
        batches
    }

    /// The results of `work` on every batch, in the order of the readings.
    fn in_batches<T>(
        self,
        readings: &[Reading<'_>],
        mut work: impl FnMut(&[Reading<'_>]) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        let mut results: Vec<Option<T>> = readings.iter().map(|_| None).collect();
        for batch in self.batches(readings) {
            let chosen: Vec<Reading<'_>> = batch.iter().map(|&index| readings[index]).collect();
            for (index, result) in batch.into_iter().zip(work(&chosen)?) {
                results[index] = Some(result);
            }
        }
        Ok(results.into_iter().flatten().collect())
    }
}

/// Reads each document once, teacher-forced; the positions of its suffix. All suffixes have the same length.
pub(super) fn read<M: LanguageModel>(
    model: &M,
    readings: &[Reading<'_>],
    limits: Limits,
) -> Result<Vec<Vec<Position>>> {
    limits.in_batches(readings, |batch| {
        positions(model, batch, |own| {
            let targets: Vec<u32> = own
                .iter()
                .flat_map(|reading| reading.cut.suffix())
                .copied()
                .collect();
            // The last id is only ever a target.
            let sequences: Vec<&[u32]> = own
                .iter()
                .map(|reading| &reading.cut.ids[..reading.cut.ids.len() - 1])
                .collect();
            let ranges: Vec<Range<usize>> = own
                .iter()
                .map(|reading| reading.cut.prefix - 1..reading.cut.ids.len() - 1)
                .collect();
            let each = |row: usize, logits: &[f32]| Position::of(logits, targets[row]);
            let ((), positions) = for_rows(model.vocab(), targets.len(), each, |visit| {
                model.logits_at(&sequences, &ranges, visit)
            })?;
            Ok(positions)
        })
    })
}

/// As [`read`], feeding the true suffix id by id through the cache.
pub(super) fn read_cached<M: LanguageModel>(
    model: &M,
    readings: &[Reading<'_>],
    limits: Limits,
) -> Result<Vec<Vec<Position>>> {
    let steps = suffix(readings);
    limits.in_batches(readings, |batch| {
        positions(model, batch, |own| {
            let (vocab, rows) = (model.vocab(), own.len());
            let prefixes: Vec<&[u32]> = own.iter().map(|reading| reading.cut.prefix()).collect();
            let targets = |step: usize| -> Vec<u32> {
                own.iter()
                    .map(|reading| reading.cut.suffix()[step])
                    .collect()
            };
            let mut next = targets(0);
            let (mut cache, mut read) = for_rows(
                vocab,
                rows,
                |row, logits| Position::of(logits, next[row]),
                |visit| model.prefill(&prefixes, steps - 1, visit),
            )?;
            let mut positions = vec![None; rows * steps];
            for step in 0..steps {
                for (row, position) in read.into_iter().enumerate() {
                    positions[row * steps + step] = position;
                }
                if step + 1 == steps {
                    break;
                }
                let fed = std::mem::replace(&mut next, targets(step + 1));
                read = for_rows(
                    vocab,
                    rows,
                    |row, logits| Position::of(logits, next[row]),
                    |visit| model.decode(&mut cache, &fed, visit),
                )?
                .1;
            }
            Ok(positions)
        })
    })
}

/// The free-running continuations of the prefixes, as long as the suffixes.
pub(super) fn continuations<M: LanguageModel>(
    model: &M,
    readings: &[Reading<'_>],
    limits: Limits,
) -> Result<Vec<Vec<u32>>> {
    let steps = suffix(readings);
    limits.in_batches(readings, |batch| {
        let prefixes: Vec<&[u32]> = batch.iter().map(|reading| reading.cut.prefix()).collect();
        greedy_named(model, &prefixes, steps, |index| {
            batch[index].document.to_owned()
        })
    })
}

/// Splits one batch over the ranks; `work` gives the positions of its share, document by document.
fn positions<M: LanguageModel>(
    model: &M,
    batch: &[Reading<'_>],
    work: impl FnOnce(&[Reading<'_>]) -> Result<Vec<Option<Position>>>,
) -> Result<Vec<Vec<Position>>> {
    let width = suffix(batch) * Position::WORDS;
    let words = share::split(model, batch, width, |own| {
        Ok(work(own)?
            .into_iter()
            .flat_map(Position::to_words)
            .collect())
    })?;
    let mut all = Vec::with_capacity(batch.len());
    for (reading, words) in batch.iter().zip(words) {
        let mut positions = Vec::with_capacity(width / Position::WORDS);
        for (step, words) in words.chunks_exact(Position::WORDS).enumerate() {
            let position = Position::from_words(words).ok_or_else(|| Error::Numerical {
                document: reading.document.to_owned(),
                problem: format!(
                    "logits at position {step} of its suffix are not finite; check the weights that are scored"
                ),
            })?;
            positions.push(position);
        }
        all.push(positions);
    }
    Ok(all)
}

/// S, the length of every suffix.
fn suffix(readings: &[Reading<'_>]) -> usize {
    readings
        .first()
        .map_or(0, |reading| reading.cut.suffix().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_similar_lengths_within_their_limits() {
        let lengths = [30, 10, 50, 10, 20, 200];
        let cuts: Vec<Cut> = lengths
            .iter()
            .map(|&length| Cut {
                ids: vec![0; length],
                prefix: 5,
            })
            .collect();
        let names = ["f", "e", "d", "c", "b", "a"];
        let readings: Vec<Reading<'_>> = names
            .iter()
            .zip(&cuts)
            .map(|(document, cut)| Reading { document, cut })
            .collect();
        let batches = |documents, tokens| Limits { documents, tokens }.batches(&readings);
        let by_documents = [vec![3, 1], vec![4, 0], vec![2, 5]];
        assert_eq!(batches(2, 1000), by_documents);
        // A document beyond the limit is a batch alone.
        assert_eq!(batches(6, 70), [vec![3, 1, 4, 0], vec![2], vec![5]]);
        assert_eq!(batches(1, 1).len(), 6);
        let limits = Limits {
            documents: 2,
            tokens: 1000,
        };
        let lengths_again = limits.in_batches(&readings, |batch| {
            Ok(batch.iter().map(|reading| reading.cut.ids.len()).collect())
        });
        assert_eq!(lengths_again.unwrap(), lengths);
    }
}
