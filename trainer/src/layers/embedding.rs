//! The embedding: rows of the vocabulary are split over X, columns over Y, the flat block over Z.

use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::embedding as kernel;
use crate::pass::{ParamIndex, Pass};
use crate::pool::Buffer;

/// `y = E[id]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedding {
    /// E, `[V, H]`.
    pub(crate) weight: ParamIndex,
}

impl Embedding {
    /// `[m]` ids give `[m, H/y]`; a rank of X looks up its own part of the vocabulary.
    pub(crate) fn forward(self, pass: &mut Pass<'_>, ids: &[u32]) -> Result<Buffer> {
        let block = &pass.params[self.weight].block;
        let (first, width) = (block.rows.start, block.shape[1]);
        let mut y = pass.rank.pool.take(ids.len() * width);
        kernel::gather(&mut y, &pass.weight(self.weight)?, ids, first, width);
        pass.all_reduce(Axis::X, y)
    }

    /// Adds the gradient of E from `dy` `[m, H/y]`, which is the same on every rank of X.
    pub(crate) fn backward(self, pass: &mut Pass<'_>, ids: &[u32], dy: &[f32]) -> Result<()> {
        let block = &pass.params[self.weight].block;
        let mut gradient = pass.zero_gradient(self.weight); // [V/x, H/y]
        kernel::scatter_add(&mut gradient, dy, ids, block.rows.start, block.shape[1]);
        pass.reduce(self.weight, gradient)
    }
}
