//! One block of the residual stream: `x + attention(norm(x))`, then `+ mlp(norm(·))`.

use super::attention::{Attention, SavedAttention};
use super::mlp::{Mlp, SavedMlp};
use super::{LayerCache, Layout, RmsNorm};
use crate::error::Result;
use crate::kernels::elementwise;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;

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
    y: Buffer,
    inverse_rms: Buffer,
}

impl SavedBlock {
    /// The block's input alone; everything else can be computed again from it.
    pub(crate) fn into_input(self) -> Buffer {
        self.input
    }
}

impl Block {
    /// `input` `[m, H/y]` gives the same shape.
    pub(crate) fn forward(
        &self,
        rank: &Rank,
        params: &[Param],
        input: Buffer,
        layout: &Layout,
    ) -> Result<(Buffer, SavedBlock)> {
        let (y, inverse_rms) = self.attention_norm.forward(rank, params, &input)?;
        let attention_norm = Normed { y, inverse_rms };
        let (mut middle, attention) =
            self.attention
                .forward(rank, params, &attention_norm.y, layout)?;
        elementwise::add(&mut middle, &input);
        let (y, inverse_rms) = self.mlp_norm.forward(rank, params, &middle)?;
        let mlp_norm = Normed { y, inverse_rms };
        let (mut out, mlp) = self.mlp.forward(rank, params, &mlp_norm.y)?;
        elementwise::add(&mut out, &middle);
        let saved = SavedBlock {
            input,
            attention_norm,
            attention,
            middle,
            mlp_norm,
            mlp,
        };
        Ok((out, saved))
    }

    /// As [`Block::forward`], for rows that follow those in the cache.
    pub(crate) fn extend(
        &self,
        rank: &Rank,
        params: &[Param],
        mut stream: Buffer,
        layout: &Layout,
        cache: &mut LayerCache,
    ) -> Result<Buffer> {
        let (y, _) = self.attention_norm.forward(rank, params, &stream)?;
        let y = self.attention.extend(rank, params, &y, layout, cache)?;
        elementwise::add(&mut stream, &y);
        let (y, _) = self.mlp_norm.forward(rank, params, &stream)?;
        let (y, _) = self.mlp.forward(rank, params, &y)?;
        elementwise::add(&mut stream, &y);
        Ok(stream)
    }

    /// Gradient of the input from `gradient`, that of the output, both `[m, H/y]`.
    pub(crate) fn backward(
        &self,
        rank: &Rank,
        params: &mut [Param],
        saved: SavedBlock,
        mut gradient: Buffer,
        layout: &Layout,
    ) -> Result<Buffer> {
        let norm = saved.mlp_norm;
        let dy = self
            .mlp
            .backward(rank, params, &norm.y, saved.mlp, &gradient)?;
        self.mlp_norm.backward(
            rank,
            params,
            &saved.middle,
            &norm.inverse_rms,
            &dy,
            &mut gradient,
        )?;
        drop((norm, saved.middle, dy));

        let norm = saved.attention_norm;
        let dy =
            self.attention
                .backward(rank, params, &norm.y, saved.attention, &gradient, layout)?;
        self.attention_norm.backward(
            rank,
            params,
            &saved.input,
            &norm.inverse_rms,
            &dy,
            &mut gradient,
        )?;
        Ok(gradient)
    }
}
