//! The 3D-parallel linear layer, W `[out, in]`: `in` is split over one axis, `out` over the other, the flat block over Z.

use super::{BlockGradient, ParamIndex, all_reduce, gather_weight};
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::elementwise;
use crate::kernels::matmul::{Output, matmul_nn, matmul_nt, matmul_tn};
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;

/// `y = x Wᵀ + b`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    /// W, `[out, in]`.
    pub(crate) weight: ParamIndex,
    /// b, `[1, out]`.
    pub(crate) bias: Option<ParamIndex>,
    /// The axis that splits the in-features: Y for a normal layer, X for a transposed one.
    pub(crate) in_axis: Axis,
}

impl Linear {
    /// `x` `[m, in/I]` gives `[m, out/O]`, summed over the axis of the in-features.
    pub(crate) fn forward(&self, rank: &Rank, params: &[Param], x: &[f32]) -> Result<Buffer> {
        let [out, input] = params[self.weight].block.shape;
        let rows = x.len() / input;
        let mut y = rank.pool.take(rows * out); // [m, out/O]
        let weight = gather_weight(rank, &params[self.weight])?;
        matmul_nt(&mut y, x, &weight, [rows, out, input], Output::Set);
        drop(weight);
        let mut y = all_reduce(rank, self.in_axis, y)?;
        if let Some(bias) = self.bias {
            // After the sum, so that it is added once.
            elementwise::add_bias(&mut y, &gather_weight(rank, &params[bias])?);
        }
        Ok(y)
    }

    /// This rank's part of dX `[m, in/I]` from `dy` `[m, out/O]`; the caller sums it over the axis of the out-features,
    /// once for all layers that share the input.
    pub(crate) fn input_gradient(
        &self,
        rank: &Rank,
        params: &[Param],
        dy: &[f32],
        dx: &mut [f32],
        output: Output,
    ) -> Result<()> {
        let [out, input] = params[self.weight].block.shape;
        let rows = dy.len() / out;
        let weight = gather_weight(rank, &params[self.weight])?;
        matmul_nn(dx, dy, &weight, [rows, input, out], output);
        Ok(())
    }

    /// Adds dW = dYᵀ X and db = Σ dY to the gradients of the parameters, summed over Z.
    pub(crate) fn weight_gradient(
        &self,
        rank: &Rank,
        params: &mut [Param],
        x: &[f32],
        dy: &[f32],
    ) -> Result<()> {
        let param = &mut params[self.weight];
        let [out, input] = param.block.shape;
        let rows = dy.len() / out;
        let mut gradient = BlockGradient::unset(rank, param);
        matmul_tn(&mut gradient, dy, x, [out, input, rows], Output::Set);
        gradient.finish(rank, param)?;
        if let Some(bias) = self.bias {
            let mut gradient = BlockGradient::zeros(rank, &params[bias]);
            elementwise::bias_gradient(&mut gradient, dy);
            gradient.finish(rank, &mut params[bias])?;
        }
        Ok(())
    }
}
