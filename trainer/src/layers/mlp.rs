//! The feed-forward layer: `down(silu(gate(x)) · up(x))`; gate and up are normal, down is transposed.

use super::Linear;
use crate::comm::Collective;
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::matmul::Output;
use crate::kernels::swiglu;
use crate::pass::{ParamIndex, Pass};
use crate::pool::Buffer;

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
    /// `silu(gate) · up`, if it was not given up meanwhile.
    product: Option<Buffer>,
}

impl SavedMlp {
    /// Gives up what is cheap to make again.
    pub(crate) fn lighten(&mut self) {
        self.product = None;
    }
}

impl Mlp {
    /// Weights in the order in which [`Mlp::inner`] asks for them.
    pub(crate) fn inner_order(&self) -> impl Iterator<Item = ParamIndex> {
        self.gate.order().chain(self.up.order())
    }

    /// Weights in the order in which the backward asks for them.
    pub(crate) fn backward_order(&self) -> [ParamIndex; 3] {
        [self.down.weight, self.gate.weight, self.up.weight]
    }

    /// Everything before `down`; `x` is `[m, H/y]`.
    pub(crate) fn inner(&self, pass: &mut Pass<'_>, x: &[f32]) -> Result<SavedMlp> {
        let gate = self.gate.start(pass, x)?;
        let up = self.up.start(pass, x)?;
        let gate = self.gate.finish(pass, gate)?; // [m, F/x]
        let up = self.up.finish(pass, up)?; // [m, F/x]
        let product = Some(product(pass, &gate, &up));
        Ok(SavedMlp { gate, up, product })
    }

    /// The output `[m, H/y]`.
    pub(crate) fn down(&self, pass: &mut Pass<'_>, inner: &SavedMlp) -> Result<Buffer> {
        let product = inner.product.as_ref();
        self.down.forward(
            pass,
            product.expect("not given up before the output is made"),
        )
    }

    /// Gradient of the input `x` from `dy`, both `[m, H/y]`.
    pub(crate) fn backward(
        &self,
        pass: &mut Pass<'_>,
        x: &[f32],
        saved: SavedMlp,
        dy: &[f32],
    ) -> Result<Buffer> {
        let SavedMlp {
            mut gate,
            mut up,
            product: kept,
        } = saved;
        let product = kept.unwrap_or_else(|| product(pass, &gate, &up));
        let mut dproduct = pass.rank.pool.take(product.len()); // [m, F/x]
        self.down
            .input_gradient(pass, dy, &mut dproduct, Output::Set)?;
        let dproduct = pass.start_backward(Axis::Y, Collective::AllReduceSum, dproduct)?;
        self.down.weight_gradient(pass, &product, dy)?;
        drop(product);
        swiglu::backward(&mut gate, &mut up, &dproduct.wait()?);
        let (dgate, dup) = (gate, up);

        let mut dx = pass.rank.pool.take(x.len()); // [m, H/y]
        self.gate
            .input_gradient(pass, &dgate, &mut dx, Output::Set)?;
        self.up.input_gradient(pass, &dup, &mut dx, Output::Add)?;
        let dx = pass.start_backward(Axis::X, Collective::AllReduceSum, dx)?;
        self.gate.weight_gradient(pass, x, &dgate)?;
        self.up.weight_gradient(pass, x, &dup)?;
        dx.wait()
    }
}

/// `silu(gate) · up`
fn product(pass: &Pass<'_>, gate: &[f32], up: &[f32]) -> Buffer {
    let mut product = pass.rank.pool.take(gate.len());
    swiglu::forward(&mut product, gate, up);
    product
}
