//! One block of the residual stream: `x + attention(norm(x))`, then `+ mlp(norm(·))`.

use super::attention::{Attention, SavedAttention};
use super::mlp::{Mlp, SavedMlp};
use super::{LayerCache, Layout, RmsNorm};
use crate::error::Result;
use crate::kernels::elementwise;
use crate::pass::{ParamIndex, Pass};
use crate::pool::Buffer;

/// A pre-norm block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) attention_norm: RmsNorm,
    pub(crate) attention: Attention,
    pub(crate) mlp_norm: RmsNorm,
    pub(crate) mlp: Mlp,
}

/// What the backward of [`Block`] wants.
#[derive(Debug)]
pub(crate) struct SavedBlock {
    input: Buffer,
    attention_norm: Normed,
    attention: SavedAttention,
    /// The stream between attention and feed-forward, `[m, H/y]`.
    middle: Buffer,
    mlp_norm: Normed,
    mlp: SavedMlp,
}

/// Output and statistics of a norm.
#[derive(Debug)]
struct Normed {
    /// The output, if it was not given up meanwhile.
    y: Option<Buffer>,
    inverse_rms: Buffer,
}

impl Normed {
    fn new((y, inverse_rms): (Buffer, Buffer)) -> Self {
        Self {
            y: Some(y),
            inverse_rms,
        }
    }

    /// The output, made again from the norm's input `x` if need be.
    fn output(&mut self, pass: &Pass<'_>, x: &[f32], gain: &[f32]) -> Buffer {
        let kept = self.y.take();
        kept.unwrap_or_else(|| RmsNorm::apply(pass, x, gain, &self.inverse_rms))
    }
}

impl SavedBlock {
    /// Without what elementwise work makes again to the bit: a third of a block, for about 1 % of its time.
    pub(crate) fn lightened(mut self) -> Self {
        self.attention_norm.y = None;
        self.mlp_norm.y = None;
        self.mlp.lighten();
        self
    }

    /// The block's input alone; everything else can be computed again from it.
    pub(crate) fn into_input(self) -> Buffer {
        self.input
    }
}

impl Block {
    /// Weights in the order in which [`Block::recompute`] asks for them.
    pub(crate) fn recompute_order(&self) -> impl Iterator<Item = ParamIndex> {
        [self.attention_norm.gain]
            .into_iter()
            .chain(self.attention.order())
            .chain([self.mlp_norm.gain])
            .chain(self.mlp.inner_order())
    }

    /// Weights in the order in which [`Block::forward`] asks for them.
    pub(crate) fn order(&self) -> impl Iterator<Item = ParamIndex> {
        self.recompute_order().chain(self.mlp.down.order())
    }

    /// Weights in the order in which [`Block::backward`] asks for them.
    pub(crate) fn backward_order(&self) -> impl Iterator<Item = ParamIndex> {
        [self.mlp_norm.gain]
            .into_iter()
            .chain(self.mlp.backward_order())
            .chain([self.attention_norm.gain])
            .chain(self.attention.backward_order())
    }

    /// The only weight that the backward asks for and [`Block::recompute`] does not.
    pub(crate) fn only_in_backward(&self) -> ParamIndex {
        self.mlp.down.weight
    }

    /// `input` `[m, H/y]` gives the same shape.
    pub(crate) fn forward(
        &self,
        pass: &mut Pass<'_>,
        input: Buffer,
        layout: &Layout,
    ) -> Result<(Buffer, SavedBlock)> {
        let saved = self.recompute(pass, input, layout)?;
        let mut out = self.mlp.down(pass, &saved.mlp)?;
        elementwise::add(&mut out, &saved.middle);
        Ok((out, saved))
    }

    /// Everything that the backward wants; the output of the block itself, and so the sum of `down` over X, is left out.
    pub(crate) fn recompute(
        &self,
        pass: &mut Pass<'_>,
        input: Buffer,
        layout: &Layout,
    ) -> Result<SavedBlock> {
        let attention_norm = self.attention_norm.forward(pass, &input)?;
        let (mut middle, attention) = self.attention.forward(pass, &attention_norm.0, layout)?;
        elementwise::add(&mut middle, &input);
        let mlp_norm = self.mlp_norm.forward(pass, &middle)?;
        let mlp = self.mlp.inner(pass, &mlp_norm.0)?;
        Ok(SavedBlock {
            input,
            attention_norm: Normed::new(attention_norm),
            attention,
            middle,
            mlp_norm: Normed::new(mlp_norm),
            mlp,
        })
    }

    /// As [`Block::forward`], for rows that follow those in the cache.
    pub(crate) fn extend(
        &self,
        pass: &mut Pass<'_>,
        mut stream: Buffer,
        layout: &Layout,
        cache: &mut LayerCache,
    ) -> Result<Buffer> {
        let (y, _) = self.attention_norm.forward(pass, &stream)?;
        let y = self.attention.extend(pass, &y, layout, cache)?;
        elementwise::add(&mut stream, &y);
        let (y, _) = self.mlp_norm.forward(pass, &stream)?;
        let inner = self.mlp.inner(pass, &y)?;
        elementwise::add(&mut stream, &self.mlp.down(pass, &inner)?);
        Ok(stream)
    }

    /// Gradient of the input from `gradient`, that of the output, both `[m, H/y]`.
    pub(crate) fn backward(
        &self,
        pass: &mut Pass<'_>,
        saved: SavedBlock,
        mut gradient: Buffer,
        layout: &Layout,
    ) -> Result<Buffer> {
        let SavedBlock {
            input,
            mut attention_norm,
            attention,
            middle,
            mut mlp_norm,
            mlp,
        } = saved;
        let gain = self.mlp_norm.gain(pass)?;
        let y = mlp_norm.output(pass, &middle, &gain);
        let dy = self.mlp.backward(pass, &y, mlp, &gradient)?;
        let r = &mlp_norm.inverse_rms;
        self.mlp_norm
            .backward(pass, gain, &middle, r, &dy, &mut gradient)?;
        drop((y, mlp_norm, middle, dy));

        let gain = self.attention_norm.gain(pass)?;
        let y = attention_norm.output(pass, &input, &gain);
        let dy = self
            .attention
            .backward(pass, &y, attention, &gradient, layout)?;
        let r = &attention_norm.inverse_rms;
        self.attention_norm
            .backward(pass, gain, &input, r, &dy, &mut gradient)?;
        Ok(gradient)
    }
}
