//! `RMSNorm` of a residual stream that is split over Y.

use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::rms_norm;
use crate::pass::{ParamIndex, Pass, Weight};
use crate::pool::Buffer;

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
    pub(crate) fn forward(&self, pass: &mut Pass<'_>, x: &[f32]) -> Result<(Buffer, Buffer)> {
        let [[_, hidden], [_, width]] = self.shapes(pass);
        let mut sums = pass.rank.pool.take(x.len() / width);
        rms_norm::sum_of_squares(&mut sums, x, width);
        let mut inverse_rms = pass.all_reduce(Axis::Y, sums)?; // [m]
        rms_norm::inverse_rms(&mut inverse_rms, hidden, self.eps);
        let gain = pass.weight(self.gain)?;
        let y = Self::apply(pass, x, &gain, &inverse_rms);
        Ok((y, inverse_rms))
    }

    /// `x · r · g`, `[m, H/y]`.
    pub(crate) fn apply(pass: &Pass<'_>, x: &[f32], gain: &[f32], inverse_rms: &[f32]) -> Buffer {
        let mut y = pass.rank.pool.take(x.len());
        rms_norm::forward(&mut y, x, gain, inverse_rms);
        y
    }

    /// g, `[H/y]`, for the backward.
    pub(crate) fn gain<'a>(&self, pass: &mut Pass<'a>) -> Result<Weight<'a>> {
        pass.weight(self.gain)
    }

    /// Adds the gradient of the input to `dx` `[m, H/y]`, and that of the gain to its parameter.
    pub(crate) fn backward(
        &self,
        pass: &mut Pass<'_>,
        gain: Weight<'_>,
        x: &[f32],
        inverse_rms: &[f32],
        dy: &[f32],
        dx: &mut [f32],
    ) -> Result<()> {
        let [[_, hidden], _] = self.shapes(pass);
        let mut sums = pass.rank.pool.take(inverse_rms.len());
        rms_norm::backward_sums(&mut sums, dy, x, &gain);
        let sums = pass.all_reduce(Axis::Y, sums)?; // [m]
        rms_norm::backward(dx, dy, x, &gain, inverse_rms, &sums, hidden);
        drop(gain);
        let mut gradient = pass.zero_gradient(self.gain);
        rms_norm::gain_gradient(&mut gradient, dy, x, inverse_rms);
        pass.reduce(self.gain, gradient)
    }

    /// Shapes of g: of the whole and of this rank's block.
    fn shapes(&self, pass: &Pass<'_>) -> [[usize; 2]; 2] {
        let gain = &pass.params[self.gain];
        [gain.shape, gain.block.shape]
    }
}
