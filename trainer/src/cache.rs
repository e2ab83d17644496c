//! The key-value cache of a set of sequences. It belongs to its caller, never to the model, so nothing can leak from
//! one request into the next.

use crate::error::{Error, Result};
use crate::kernels::attention::Segment;
use crate::layers::LayerCache;

/// Keys and values of sequences that grow together, made by [`Llama::cache`](crate::Llama::cache).
#[derive(Debug)]
pub struct KvCache {
    pub(crate) layers: Vec<LayerCache>,
    lengths: Vec<usize>,
    capacity: usize,
}

impl KvCache {
    pub(crate) fn new(layers: Vec<LayerCache>, sequences: usize, capacity: usize) -> Self {
        Self {
            layers,
            lengths: vec![0; sequences],
            capacity,
        }
    }

    /// Tokens held of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Most tokens a sequence can have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the new rows of each sequence go and what they see; refuses what does not fit.
    pub(crate) fn segments(&self, new: &[&[u32]]) -> Result<Vec<Segment>> {
        if new.len() != self.lengths.len() {
            return Err(Error::Data(format!(
                "the cache holds {} sequences, {} were given; give every sequence, an empty one if it does not grow",
                self.lengths.len(),
                new.len()
            )));
        }
        let mut query_start = 0;
        let mut segments = Vec::with_capacity(new.len());
        for (sequence, (ids, &past)) in new.iter().zip(&self.lengths).enumerate() {
            let keys = past + ids.len();
            if keys > self.capacity {
                return Err(Error::Data(format!(
                    "sequence {sequence} would have {keys} tokens, the cache was made for {}",
                    self.capacity
                )));
            }
            segments.push(Segment {
                query_start,
                queries: ids.len(),
                key_start: sequence * self.capacity,
                keys,
            });
            query_start += ids.len();
        }
        Ok(segments)
    }

    /// Counts the new tokens as held.
    pub(crate) fn grow(&mut self, new: &[&[u32]]) {
        for (length, ids) in self.lengths.iter_mut().zip(new) {
            *length += ids.len();
        }
    }
}
