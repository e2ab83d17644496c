//! The embedding: rows of the vocabulary are split over X, columns over Y, the flat block over Z.

use super::{BlockGradient, ParamIndex, all_reduce, gather_weight};
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::embedding as kernel;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;

/// `y = E[id]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedding {
    /// E, `[V, H]`.
    pub(crate) weight: ParamIndex,
}

impl Embedding {
    /// `[m]` ids give `[m, H/y]`; a rank of X looks up its own part of the vocabulary.
    pub(crate) fn forward(self, rank: &Rank, params: &[Param], ids: &[u32]) -> Result<Buffer> {
        let param = &params[self.weight];
        let width = param.block.shape[1];
        let mut y = rank.pool.take(ids.len() * width);
        kernel::gather(
            &mut y,
            &gather_weight(rank, param)?,
            ids,
            param.block.rows.start,
            width,
        );
        all_reduce(rank, Axis::X, y)
    }

    /// Adds the gradient of E from `dy` `[m, H/y]`.
    pub(crate) fn backward(
        self,
        rank: &Rank,
        params: &mut [Param],
        ids: &[u32],
        dy: &[f32],
    ) -> Result<()> {
        let param = &mut params[self.weight];
        let mut gradient = BlockGradient::zeros(rank, param);
        kernel::scatter_add(
            &mut gradient,
            dy,
            ids,
            param.block.rows.start,
            param.block.shape[1],
        );
        gradient.finish(rank, param)
    }
}
