//! The schedule of a step: when communication starts and when its result is waited for.
//!
//! Settings only; the pass and the engine obey them. Switches and `bucket_bytes` change no bit of
//! any result. `row_chunks` cuts products and is a numerical setting: equal results need it equal.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Which activations the backward finds, and which it computes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// All are kept.
    #[default]
    None,
    /// Only the input of each block is kept; a block runs forward once more before its backward.
    Block,
}

/// What the ranks along Y do in the core of the attention, whose heads are split over X only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionSplit {
    /// All do the same.
    #[default]
    Replicated,
    /// Each does its share of the sequences; queries, keys and values are reduce-scattered, the result is gathered.
    YSharded,
}

/// What runs behind computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own in the settings"
)]
pub struct Overlap {
    /// OAR: the sum of dX runs during the product for dW.
    pub all_reduce: bool,
    /// ORS: the reduce-scatter of dW over Z runs during the backward of the next block.
    pub reduce_scatter: bool,
    /// OAG: number of weights whose all-gather over Z is started ahead of their use; 0 gathers on use.
    pub all_gather: usize,
    /// The sum of a forward product runs during the products that do not need it: those of the same input, and the
    /// next chunk of rows.
    pub forward: bool,
    /// Chunks that the rows of a forward product are cut into.
    pub row_chunks: usize,
    /// The reduction of gradients over Data runs during the backward of earlier layers.
    pub data: bool,
    /// Gradients are reduced over Data in buckets of at least so many bytes.
    pub bucket_bytes: usize,
}

impl Default for Overlap {
    fn default() -> Self {
        Self {
            all_reduce: true,
            reduce_scatter: true,
            all_gather: 1,
            forward: true,
            row_chunks: 1,
            data: true,
            bucket_bytes: 25 << 20,
        }
    }
}

impl Overlap {
    /// Every switch off; the numerical settings are those of `self`.
    #[must_use]
    pub fn off(self) -> Self {
        Self {
            all_reduce: false,
            reduce_scatter: false,
            all_gather: 0,
            forward: false,
            data: false,
            ..self
        }
    }
}

/// How a step runs on a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// Who computes the core of the attention.
    pub attention: AttentionSplit,
    /// What runs behind computation.
    pub overlap: Overlap,
    /// Whether the optimizer's state and work are split over Data (as in `ZeRO-1`): gradients are reduce-scattered over
    /// Data, and the updated weights gathered.
    pub shard_optimizer: bool,
}

impl Schedule {
    /// Refuses settings that cannot work.
    pub fn validate(&self) -> Result<()> {
        for (field, value) in [
            ("overlap.row_chunks", self.overlap.row_chunks),
            ("overlap.bucket_bytes", self.overlap.bucket_bytes),
        ] {
            if value == 0 {
                return Err(Error::setting(field, "is 0; it must be at least 1"));
            }
        }
        Ok(())
    }
}
