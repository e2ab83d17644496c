//! How much memory a training step needs on one rank, without running it.
//!
//! The step is replayed with sizes in place of buffers: what a layer takes from the pool, when communication takes and
//! gives back its staging, when each is dropped. The result is the pool's peak, and what was live at it. It costs
//! microseconds a layer, so that a planner can ask it for thousands of grids.
//!
//! Shapes are those of the layers: m tokens of a micro-batch, h = H/y, q = N·D/x, k = K·D/x (one head if x > K),
//! f = F/x, v = ⌈V/x⌉.

mod layers;
mod replay;
mod sizes;

use serde::{Deserialize, Serialize};

use self::replay::Replay;
use crate::config::ModelConfig;
use crate::grid::Grid;
use crate::optim::Optimizer;
use crate::schedule::{AttentionSplit, Schedule};

/// What memory is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// f32 master weights.
    pub weights: usize,
    /// Summed gradients, f32.
    pub gradients: usize,
    /// The optimizer's moments.
    pub moments: usize,
    /// What a forward keeps for its backward, and what a layer needs while it runs.
    pub activations: usize,
    /// Weights gathered over Z, those in flight included.
    pub gathered: usize,
    /// Gradients of whole blocks on their way over Z.
    pub scattering: usize,
    /// Buckets on their way over Data.
    pub buckets: usize,
    /// Staging of sums and gathers of activations.
    pub staging: usize,
}

impl Memory {
    /// Bytes in all.
    pub fn total(&self) -> usize {
        self.weights
            + self.gradients
            + self.moments
            + self.activations
            + self.gathered
            + self.scattering
            + self.buckets
            + self.staging
    }
}

/// One micro-batch of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// m: tokens.
    pub tokens: usize,
    /// Kept targets.
    pub kept: usize,
    /// Tokens that this rank attends on: all, or its share along Y.
    pub own: usize,
    /// Tokens of the longest share along Y.
    pub longest: usize,
}

impl MicroBatch {
    /// A micro-batch of `tokens` tokens, all kept, in shares along Y as equal as can be.
    pub fn full(tokens: usize, grid: &Grid, schedule: &Schedule) -> Self {
        let share = match schedule.attention {
            AttentionSplit::YSharded => tokens.div_ceil(grid.y),
            AttentionSplit::Replicated => tokens,
        };
        Self {
            tokens,
            kept: tokens,
            own: share,
            longest: share,
        }
    }
}

/// What a step runs on.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The model.
    pub model: &'a ModelConfig,
    /// The grid.
    pub grid: &'a Grid,
    /// The schedule.
    pub schedule: &'a Schedule,
    /// The optimizer.
    pub optimizer: &'a Optimizer,
    /// Rows whose logits exist at one time.
    pub chunk: usize,
    /// Whether sums are staged beside their data, as the back end `mpi` does; threads add in place.
    pub staged: bool,
}

/// Memory of one rank at the peak of a step of the given micro-batches.
pub fn peak(plan: &Plan<'_>, micro_batches: &[MicroBatch]) -> Memory {
    let mut replay = Replay::new(plan);
    for (index, batch) in micro_batches.iter().enumerate() {
        replay.micro_batch(batch, index + 1 == micro_batches.len());
    }
    replay.finish()
}
