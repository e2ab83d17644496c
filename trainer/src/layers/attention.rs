//! Grouped-query attention: q, k, v are normal layers split by heads over X, the output projection is transposed.
//!
//! The core has no axis of its own along Y. Under `replicated` every rank of Y computes the same; under `y_sharded` each
//! attends on its share of the sequences: the sum of q, k, v over Y becomes a reduce-scatter by sequences and the result
//! is gathered over Y, mirrored in the backward.

use super::{Layout, Linear, Span, Split};
use crate::comm::Collective;
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::attention::{self as kernel, Forward, Heads};
use crate::kernels::matmul::Output;
use crate::kernels::rotary;
use crate::pass::{Later, ParamIndex, Pass};
use crate::pool::Buffer;

/// Self-attention with rotary positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    /// Heads of this rank: N/x query heads, and K/x key-value heads or the one that x/K ranks share.
    pub(crate) heads: Heads,
}

/// What the backward of [`Attention`] wants. a: rows that the rank attends on, all m or its share along Y; r: rows of the
/// buffers, m or the longest share s, of which the first a count.
#[derive(Debug)]
pub(crate) struct SavedAttention {
    /// `[r, N/x, D]`, rotated.
    q: Buffer,
    /// `[r, K/x, D]`, rotated.
    k: Buffer,
    /// `[r, K/x, D]`
    v: Buffer,
    /// `[m, N/x, D]`
    out: Buffer,
    /// `[a, N/x]`
    log_sum_exp: Buffer,
}

/// Keys and values of the past, for one layer: `[sequences, capacity, K/x, D]` each.
#[derive(Debug)]
pub(crate) struct LayerCache {
    pub(crate) keys: Buffer,
    pub(crate) values: Buffer,
}

impl Attention {
    /// Weights in the order in which the forward asks for them.
    pub(crate) fn order(&self) -> impl Iterator<Item = ParamIndex> {
        // Products first; biases are added to the sums.
        let inputs = [self.query, self.key, self.value];
        let weights = inputs.map(|linear| linear.weight);
        let biases = inputs.into_iter().filter_map(|linear| linear.bias);
        weights.into_iter().chain(biases).chain(self.output.order())
    }

    /// Weights in the order in which the backward asks for them.
    pub(crate) fn backward_order(&self) -> [ParamIndex; 4] {
        [self.output, self.query, self.key, self.value].map(|linear| linear.weight)
    }

    /// `x` `[m, H/y]` gives the same shape.
    pub(crate) fn forward(
        &self,
        pass: &mut Pass<'_>,
        x: &[f32],
        layout: &Layout,
    ) -> Result<(Buffer, SavedAttention)> {
        let [q, k, v] = self.project(pass, x, layout)?;
        let (out, log_sum_exp) = self.attend(pass, [&q, &k, &v], layout.attended(), q.len());
        let out = match &layout.split {
            None => out,
            Some(split) => gather(pass, split, out, self.width(self.heads.query))?.join(pass)?,
        };
        let y = self.output.forward(pass, &out)?;
        let saved = SavedAttention {
            q,
            k,
            v,
            out,
            log_sum_exp,
        };
        Ok((y, saved))
    }

    /// As [`Attention::forward`], for rows that follow those in the cache. The new keys and values are appended; the
    /// key rows of the layout's segments lie in the cache.
    pub(crate) fn extend(
        &self,
        pass: &mut Pass<'_>,
        x: &[f32],
        layout: &Layout,
        cache: &mut LayerCache,
    ) -> Result<Buffer> {
        let [q, k, v] = self.project(pass, x, layout)?;
        let width = self.width(self.heads.key_value);
        for segment in &layout.whole.segments {
            let from = segment.query_start * width..(segment.query_start + segment.queries) * width;
            let end = segment.key_start + segment.keys;
            let to = (end - segment.queries) * width..end * width;
            cache.keys[to.clone()].copy_from_slice(&k[from.clone()]);
            cache.values[to].copy_from_slice(&v[from]);
        }
        let past = [&q[..], &cache.keys, &cache.values];
        let (out, _) = self.attend(pass, past, &layout.whole, q.len());
        self.output.forward(pass, &out)
    }

    /// Elements of a row of `heads` heads.
    fn width(&self, heads: usize) -> usize {
        heads * self.heads.dim
    }

    /// Rotated queries `[r, N/x, D]` and keys, and values `[r, K/x, D]`; r is m, or s under `y_sharded`.
    fn project(&self, pass: &mut Pass<'_>, x: &[f32], layout: &Layout) -> Result<[Buffer; 3]> {
        let mut start = |linear: &Linear| match &layout.split {
            None => linear.start(pass, x),
            Some(split) => linear.start_split(pass, x, split),
        };
        let [q, k, v] = [start(&self.query)?, start(&self.key)?, start(&self.value)?];
        let mut q = self.query.finish(pass, q)?;
        let mut k = self.key.finish(pass, k)?;
        let v = self.value.finish(pass, v)?;
        let span = layout.attended();
        for (rows, heads) in [(&mut q, self.heads.query), (&mut k, self.heads.key_value)] {
            let rows = &mut rows[..span.rows() * self.width(heads)];
            rotary::rotate(rows, &layout.rotary, &span.positions, heads);
        }
        Ok([q, k, v])
    }

    /// The core on the rows of `span`; `out` has `len` elements, zero beyond those rows.
    fn attend(
        &self,
        pass: &Pass<'_>,
        [q, k, v]: [&[f32]; 3],
        span: &Span,
        len: usize,
    ) -> (Buffer, Buffer) {
        let pool = &pass.rank.pool;
        let width = self.width(self.heads.query);
        let mut out = pool.take(len);
        let mut log_sum_exp = pool.take(span.rows() * self.heads.query);
        let (real, padding) = out.split_at_mut(span.rows() * width);
        padding.fill(0.0);
        let q = &q[..real.len()];
        kernel::forward(real, &mut log_sum_exp, q, k, v, &span.segments, self.heads);
        (out, log_sum_exp)
    }

    /// Gradient of the input `x` from `dy`, both `[m, H/y]`.
    pub(crate) fn backward(
        &self,
        pass: &mut Pass<'_>,
        x: &[f32],
        saved: SavedAttention,
        dy: &[f32],
        layout: &Layout,
    ) -> Result<Buffer> {
        let mut dout = pass.rank.pool.take(saved.out.len()); // [m, N/x, D]
        self.output
            .input_gradient(pass, dy, &mut dout, Output::Set)?;
        let (collective, dout) = match &layout.split {
            None => (Collective::AllReduceSum, dout),
            Some(split) => {
                let width = self.width(self.heads.query);
                let dout = split.spread(&pass.rank.pool, dout, width);
                (Collective::ReduceScatterSum, dout)
            }
        };
        let dout = pass.start_backward(Axis::Y, collective, dout)?;
        self.output.weight_gradient(pass, &saved.out, dy)?;
        let gradients = self.attend_backward(pass, &saved, &dout.wait()?, layout);
        drop(saved);
        let [dq, dk, dv] = self.all_rows(pass, gradients, layout)?;

        let mut dx = pass.rank.pool.take(x.len()); // [m, H/y]
        let dq = dq.join(pass)?;
        self.query.input_gradient(pass, &dq, &mut dx, Output::Set)?;
        let dk = dk.join(pass)?;
        self.key.input_gradient(pass, &dk, &mut dx, Output::Add)?;
        let dv = dv.join(pass)?;
        self.value.input_gradient(pass, &dv, &mut dx, Output::Add)?;
        let dx = pass.start_backward(Axis::X, Collective::AllReduceSum, dx)?;
        self.query.weight_gradient(pass, x, &dq)?;
        self.key.weight_gradient(pass, x, &dk)?;
        self.value.weight_gradient(pass, x, &dv)?;
        dx.wait()
    }

    /// Gradients of the projections' outputs on the attended rows, rotated back.
    fn attend_backward(
        &self,
        pass: &Pass<'_>,
        saved: &SavedAttention,
        dout: &[f32],
        layout: &Layout,
    ) -> [Buffer; 3] {
        let pool = &pass.rank.pool;
        let Heads {
            query, key_value, ..
        } = self.heads;
        let span = layout.attended();
        let first = layout
            .split
            .as_ref()
            .map_or(0, |split| split.own_rows().start);
        let (wide, narrow) = (
            span.rows() * self.width(query),
            span.rows() * self.width(key_value),
        );
        let mut dq = pool.take(saved.q.len());
        let mut dk = pool.take(saved.k.len());
        let mut dv = pool.take(saved.v.len());
        for (gradient, real) in [(&mut dq, wide), (&mut dk, narrow), (&mut dv, narrow)] {
            gradient[real..].fill(0.0);
        }
        let mut workspace = pool.take(kernel::workspace_len(span.rows(), self.heads));
        kernel::backward(
            [&mut dq[..wide], &mut dk[..narrow], &mut dv[..narrow]],
            &dout[..wide],
            Forward {
                q: &saved.q[..wide],
                k: &saved.k[..narrow],
                v: &saved.v[..narrow],
                out: &saved.out[first * self.width(query)..][..wide],
                log_sum_exp: &saved.log_sum_exp,
            },
            &span.segments,
            self.heads,
            &mut workspace,
        );
        for (gradient, heads) in [(&mut dq[..wide], query), (&mut dk[..narrow], key_value)] {
            rotary::rotate_back(gradient, &layout.rotary, &span.positions, heads);
        }
        [dq, dk, dv]
    }

    /// Gradients of all rows from those of the attended ones.
    fn all_rows<'l>(
        &self,
        pass: &Pass<'_>,
        [dq, dk, dv]: [Buffer; 3],
        layout: &'l Layout,
    ) -> Result<[Rows<'l>; 3]> {
        let Some(split) = &layout.split else {
            return Ok([dq, dk, dv].map(Rows::Whole));
        };
        let (wide, narrow) = (
            self.width(self.heads.query),
            self.width(self.heads.key_value),
        );
        Ok([
            gather(pass, split, dq, wide)?,
            gather(pass, split, dk, narrow)?,
            gather(pass, split, dv, narrow)?,
        ])
    }
}

/// Rows that are there, or that are being gathered over Y.
enum Rows<'l> {
    Whole(Buffer),
    Gathering(&'l Split, Later, usize),
}

impl Rows<'_> {
    /// `[m, width]`
    fn join(self, pass: &Pass<'_>) -> Result<Buffer> {
        match self {
            Self::Whole(rows) => Ok(rows),
            Self::Gathering(split, rows, width) => {
                Ok(split.join(&pass.rank.pool, rows.wait()?, width))
            }
        }
    }
}

/// Starts the all-gather over Y of every rank's `[s, width]`.
fn gather<'l>(pass: &Pass<'_>, split: &'l Split, own: Buffer, width: usize) -> Result<Rows<'l>> {
    let rows = pass.start_backward(Axis::Y, Collective::AllGather, own)?;
    Ok(Rows::Gathering(split, rows, width))
}
