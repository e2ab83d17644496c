//! Layers of the model on one rank: each `forward` beside its `backward`, with every collective written out.
//!
//! A layer holds the places of its parameters in the model's list, and its axes; it holds no weights and no buffers.
//! Rows (tokens) are split over Z and Data before a layer sees them, so only X, Y (activations) and Z (weights) appear
//! here. The sum of gradients over Data belongs to the engine.

mod attention;
mod block;
mod embedding;
mod head;
mod linear;
mod mlp;
mod norm;

use std::ops::Deref;
use std::sync::Arc;

pub(crate) use attention::{Attention, LayerCache};
pub(crate) use block::{Block, SavedBlock};
pub(crate) use embedding::Embedding;
pub(crate) use head::{Head, Targets};
pub(crate) use linear::Linear;
pub(crate) use mlp::Mlp;
pub(crate) use norm::RmsNorm;

use crate::comm::Collective;
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::attention::Segment;
use crate::kernels::elementwise;
use crate::kernels::rotary::RotaryTable;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;

/// Place of a parameter in the model's list.
pub(crate) type ParamIndex = usize;

/// How the flattened rows of one pass fall into segments, and where each row stands in its own.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Segments in the order of the rows.
    pub(crate) segments: Vec<Segment>,
    /// Position of each row, from 0 in its segment.
    pub(crate) positions: Vec<u32>,
    /// Angles for at least the largest position.
    pub(crate) rotary: Arc<RotaryTable>,
}

impl Layout {
    /// m: rows of the pass.
    pub(crate) fn rows(&self) -> usize {
        self.positions.len()
    }
}

/// The gathered block of a weight, `[rows, columns]` row-major.
pub(crate) enum Weight<'a> {
    /// The rank's shard is the whole block: nothing to gather, so nothing is copied.
    Own(&'a [f32]),
    /// Gathered over Z.
    Gathered(Buffer, usize),
}

impl Deref for Weight<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(block) => block,
            Self::Gathered(buffer, len) => &buffer[..*len],
        }
    }
}

/// All-gather over Z of a parameter's flat shards.
pub(crate) fn gather_weight<'a>(rank: &Rank, param: &'a Param) -> Result<Weight<'a>> {
    let len = param.block.shape[0] * param.block.shape[1];
    if param.weight.len() == len {
        return Ok(Weight::Own(&param.weight));
    }
    let shard = rank.pool.copy(&param.weight);
    let gathered = rank.groups.z.start(Collective::AllGather, shard).wait()?;
    Ok(Weight::Gathered(gathered, len))
}

/// A buffer for the gradient of a whole block, zero-padded to what the reduce-scatter over Z wants.
pub(crate) struct BlockGradient {
    buffer: Buffer,
    len: usize,
}

impl BlockGradient {
    /// A zero gradient.
    pub(crate) fn zeros(rank: &Rank, param: &Param) -> Self {
        let mut gradient = Self::unset(rank, param);
        gradient.fill(0.0);
        gradient
    }

    /// A gradient whose block is still to be written (its padding is zero).
    pub(crate) fn unset(rank: &Rank, param: &Param) -> Self {
        let len = param.block.shape[0] * param.block.shape[1];
        let mut buffer = rank.pool.take(param.weight.len() * rank.groups.z.size());
        buffer[len..].fill(0.0);
        Self { buffer, len }
    }

    /// Reduce-scatter over Z; the rank's share is added to the parameter's gradient.
    pub(crate) fn finish(self, rank: &Rank, param: &mut Param) -> Result<()> {
        let shard = rank
            .groups
            .z
            .start(Collective::ReduceScatterSum, self.buffer)
            .wait()?;
        elementwise::add(&mut param.gradient, &shard);
        Ok(())
    }
}

impl Deref for BlockGradient {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.buffer[..self.len]
    }
}

impl std::ops::DerefMut for BlockGradient {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.buffer[..self.len]
    }
}

/// All-reduce (sum) over one axis.
pub(crate) fn all_reduce(rank: &Rank, axis: Axis, data: Buffer) -> Result<Buffer> {
    rank.group(axis)
        .start(Collective::AllReduceSum, data)
        .wait()
}
