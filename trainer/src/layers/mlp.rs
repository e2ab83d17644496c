//! The feed-forward layer: `down(silu(gate(x)) · up(x))`; gate and up are normal, down is transposed.

use super::Linear;
use crate::comm::Collective;
use crate::error::Result;
use crate::kernels::matmul::Output;
use crate::kernels::swiglu;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;

/// `SwiGLU` feed-forward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mlp {
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

/// What the backward of [`Mlp`] wants, `[m, F/x]` each.
#[derive(Debug)]
pub(crate) struct SavedMlp {
    gate: Buffer,
    up: Buffer,
    product: Buffer,
}

impl Mlp {
    /// `x` `[m, H/y]` gives the same shape.
    pub(crate) fn forward(
        &self,
        rank: &Rank,
        params: &[Param],
        x: &[f32],
    ) -> Result<(Buffer, SavedMlp)> {
        let gate = self.gate.forward(rank, params, x)?;
        let up = self.up.forward(rank, params, x)?;
        let mut product = rank.pool.take(gate.len());
        swiglu::forward(&mut product, &gate, &up);
        let y = self.down.forward(rank, params, &product)?;
        Ok((y, SavedMlp { gate, up, product }))
    }

    /// Gradient of the input `x` from `dy`, both `[m, H/y]`.
    pub(crate) fn backward(
        &self,
        rank: &Rank,
        params: &mut [Param],
        x: &[f32],
        saved: SavedMlp,
        dy: &[f32],
    ) -> Result<Buffer> {
        let SavedMlp {
            mut gate,
            mut up,
            product,
        } = saved;
        let mut dproduct = rank.pool.take(product.len());
        self.down
            .input_gradient(rank, params, dy, &mut dproduct, Output::Set)?;
        let pending = rank.groups.y.start(Collective::AllReduceSum, dproduct);
        self.down.weight_gradient(rank, params, &product, dy)?;
        drop(product);
        swiglu::backward(&mut gate, &mut up, &pending.wait()?);
        let (dgate, dup) = (gate, up);

        let mut dx = rank.pool.take(x.len());
        self.gate
            .input_gradient(rank, params, &dgate, &mut dx, Output::Set)?;
        self.up
            .input_gradient(rank, params, &dup, &mut dx, Output::Add)?;
        let pending = rank.groups.x.start(Collective::AllReduceSum, dx);
        self.gate.weight_gradient(rank, params, x, &dgate)?;
        self.up.weight_gradient(rank, params, x, &dup)?;
        pending.wait()
    }
}
