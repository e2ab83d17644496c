//! `RMSNorm` of a residual stream that is split over Y.

use super::{BlockGradient, ParamIndex, all_reduce, gather_weight};
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::rms_norm;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;

/// `y = x · r · g` with `r = 1/√(Σx²/H + ε)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RmsNorm {
    /// g, `[1, H]`.
    pub(crate) gain: ParamIndex,
    /// ε.
    pub(crate) eps: f64,
}

impl RmsNorm {
    /// `x` `[m, H/y]` gives `y` of the same shape and `r` `[m]`, which the backward wants.
    pub(crate) fn forward(
        &self,
        rank: &Rank,
        params: &[Param],
        x: &[f32],
    ) -> Result<(Buffer, Buffer)> {
        let param = &params[self.gain];
        let width = param.block.shape[1];
        let mut sums = rank.pool.take(x.len() / width);
        rms_norm::sum_of_squares(&mut sums, x, width);
        let mut inverse_rms = all_reduce(rank, Axis::Y, sums)?;
        rms_norm::inverse_rms(&mut inverse_rms, param.shape[1], self.eps);
        let mut y = rank.pool.take(x.len());
        rms_norm::forward(&mut y, x, &gather_weight(rank, param)?, &inverse_rms);
        Ok((y, inverse_rms))
    }

    /// Adds the gradient of the input to `dx` `[m, H/y]`, and that of the gain to its parameter.
    pub(crate) fn backward(
        &self,
        rank: &Rank,
        params: &mut [Param],
        x: &[f32],
        inverse_rms: &[f32],
        dy: &[f32],
        dx: &mut [f32],
    ) -> Result<()> {
        let param = &mut params[self.gain];
        let gain = gather_weight(rank, param)?;
        let mut sums = rank.pool.take(inverse_rms.len());
        rms_norm::backward_sums(&mut sums, dy, x, &gain);
        let sums = all_reduce(rank, Axis::Y, sums)?;
        rms_norm::backward(dx, dy, x, &gain, inverse_rms, &sums, param.shape[1]);
        drop(gain);
        let mut gradient = BlockGradient::zeros(rank, param);
        rms_norm::gain_gradient(&mut gradient, dy, x, inverse_rms);
        gradient.finish(rank, param)
    }
}
