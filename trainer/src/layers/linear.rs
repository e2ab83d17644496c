//! The 3D-parallel linear layer (AxoNN, arXiv 2502.08145, section IV), W `[out, in]`.
//!
//! The in-features are split over the axis I, the out-features over the axis O, and the block `[out/O, in/I]` of W lies
//! flat over Z. A normal layer has I = Y and O = X; a transposed one has I = X and O = Y, so the output of one is cut as
//! the next wants its input. Letters of the shapes: m rows (tokens) of this rank.
//!
//! | step | product | collective |
//! |---|---|---|
//! | forward | | all-gather W over Z |
//! | | Y = X Wᵀ | all-reduce Y over I |
//! | backward | dX = dY W | all-reduce dX over O |
//! | | dW = dYᵀ X | reduce-scatter dW over Z |

use super::Split;
use crate::comm::Collective;
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::elementwise;
use crate::kernels::matmul::{Output, matmul_nn, matmul_nt_narrow, matmul_tn};
use crate::pass::{Later, ParamIndex, Pass};
use crate::pool::Buffer;

/// `y = x Wᵀ + b`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    /// W, `[out, in]`.
    pub(crate) weight: ParamIndex,
    /// b, `[1, out]`.
    pub(crate) bias: Option<ParamIndex>,
    /// I, the axis that splits the in-features: Y for a normal layer, X for a transposed one.
    pub(crate) in_axis: Axis,
}

/// Outputs `[m, out/O]` whose sum over I is on its way, cut into chunks of rows.
#[must_use = "the sum must be waited for"]
pub(crate) struct PendingRows {
    chunks: Vec<Later>,
    /// Elements of all chunks.
    len: usize,
}

impl Linear {
    /// Weights in the order in which the forward asks for them.
    pub(crate) fn order(&self) -> impl Iterator<Item = ParamIndex> {
        [self.weight].into_iter().chain(self.bias)
    }

    /// `x` `[m, in/I]` gives `[m, out/O]`, summed over I.
    pub(crate) fn forward(&self, pass: &mut Pass<'_>, x: &[f32]) -> Result<Buffer> {
        let y = self.start(pass, x)?;
        self.finish(pass, y)
    }

    /// Starts the forward: the products are made, their sums over I are on their way. The all-reduce of a chunk of rows
    /// runs during the product of the next, and that of the last during whatever comes before [`Linear::finish`].
    pub(crate) fn start(&self, pass: &mut Pass<'_>, x: &[f32]) -> Result<PendingRows> {
        let [out, input] = pass.params[self.weight].block.shape;
        let weight = pass.weight(self.weight)?; // [out/O, in/I]
        let rows = x.len() / input;
        let chunks = match pass.rank.group(self.in_axis).size() {
            1 => 1,
            _ => pass.overlap.row_chunks,
        };
        let mut sums = Vec::with_capacity(chunks);
        for x in x.chunks(rows.div_ceil(chunks).max(1) * input) {
            let y = self.product(pass, &weight, x);
            sums.push(pass.start_forward(self.in_axis, Collective::AllReduceSum, y)?);
        }
        Ok(PendingRows {
            chunks: sums,
            len: rows * out,
        })
    }

    /// Waits for the sum over I, and adds the bias to it, so that it is added once.
    pub(crate) fn finish(&self, pass: &mut Pass<'_>, pending: PendingRows) -> Result<Buffer> {
        let mut chunks = pending.chunks;
        let mut y = if chunks.len() == 1 {
            chunks.remove(0).wait()?
        } else {
            let mut y = pass.rank.pool.take(pending.len); // [m, out/O]
            let mut rest = &mut y[..];
            for chunk in chunks {
                let chunk = chunk.wait()?;
                let (rows, others) = rest.split_at_mut(chunk.len());
                rows.copy_from_slice(&chunk);
                rest = others;
            }
            y
        };
        if let Some(bias) = self.bias {
            elementwise::add_bias(&mut y, &pass.weight(bias)?); // [out/O]
        }
        Ok(y)
    }

    /// As [`Linear::start`], but every rank of I gets the sum of its share of the sequences only, `[s, out/O]`.
    pub(crate) fn start_split(
        &self,
        pass: &mut Pass<'_>,
        x: &[f32],
        split: &Split,
    ) -> Result<PendingRows> {
        let weight = pass.weight(self.weight)?;
        let y = self.product(pass, &weight, x);
        let out = pass.params[self.weight].block.shape[0];
        let y = split.spread(&pass.rank.pool, y, out); // [y, s, out/O]
        let len = split.padded * out;
        let sum = pass.start_forward(self.in_axis, Collective::ReduceScatterSum, y)?;
        Ok(PendingRows {
            chunks: vec![sum],
            len,
        })
    }

    /// `x Wᵀ` of this rank's block, `[m, out/O]`.
    fn product(&self, pass: &Pass<'_>, weight: &[f32], x: &[f32]) -> Buffer {
        let [out, input] = pass.params[self.weight].block.shape;
        let rows = x.len() / input;
        let mut y = pass.rank.pool.take(rows * out);
        let narrow = pass.narrow(self.weight);
        let shape = [rows, out, input];
        matmul_nt_narrow(&mut y, x, weight, narrow, shape, Output::Set);
        y
    }

    /// This rank's part of dX `[m, in/I]` from `dy` `[m, out/O]`; the caller sums it over O, once for all layers that
    /// share the input.
    pub(crate) fn input_gradient(
        &self,
        pass: &mut Pass<'_>,
        dy: &[f32],
        dx: &mut [f32],
        output: Output,
    ) -> Result<()> {
        let [out, input] = pass.params[self.weight].block.shape;
        let rows = dy.len() / out;
        let weight = pass.weight(self.weight)?; // [out/O, in/I]
        matmul_nn(dx, dy, &weight, [rows, input, out], output);
        Ok(())
    }

    /// dW = dYᵀ X `[out/O, in/I]` and db = Σ dY `[out/O]`, both reduce-scattered over Z.
    pub(crate) fn weight_gradient(&self, pass: &mut Pass<'_>, x: &[f32], dy: &[f32]) -> Result<()> {
        let [out, input] = pass.params[self.weight].block.shape;
        let rows = dy.len() / out;
        let mut gradient = pass.gradient(self.weight);
        matmul_tn(&mut gradient, dy, x, [out, input, rows], Output::Set);
        pass.reduce(self.weight, gradient)?;
        if let Some(bias) = self.bias {
            let mut gradient = pass.zero_gradient(bias);
            elementwise::bias_gradient(&mut gradient, dy);
            pass.reduce(bias, gradient)?;
        }
        Ok(())
    }
}
