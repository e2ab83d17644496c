//! Grouped-query attention: q, k, v are normal layers split by heads over X, the output projection is transposed.

use super::{Layout, Linear};
use crate::comm::Collective;
use crate::error::Result;
use crate::kernels::attention::{self as kernel, Forward, Heads, Segment};
use crate::kernels::matmul::Output;
use crate::kernels::rotary;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;

/// Self-attention with rotary positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    /// Heads of this rank: N/x and K/x.
    pub(crate) heads: Heads,
}

/// What the backward of [`Attention`] wants.
#[derive(Debug)]
pub(crate) struct SavedAttention {
    /// `[m, N/x, D]`, rotated.
    q: Buffer,
    /// `[m, K/x, D]`, rotated.
    k: Buffer,
    /// `[m, K/x, D]`
    v: Buffer,
    /// `[m, N/x, D]`
    out: Buffer,
    /// `[m, N/x]`
    log_sum_exp: Buffer,
}

/// Keys and values of the past, for one layer: `[sequences, capacity, K/x, D]` each.
#[derive(Debug)]
pub(crate) struct LayerCache {
    pub(crate) keys: Buffer,
    pub(crate) values: Buffer,
}

impl Attention {
    /// `x` `[m, H/y]` gives the same shape.
    pub(crate) fn forward(
        &self,
        rank: &Rank,
        params: &[Param],
        x: &[f32],
        layout: &Layout,
    ) -> Result<(Buffer, SavedAttention)> {
        let [q, k, v] = self.project(rank, params, x, layout)?;
        let (out, log_sum_exp) = self.attend(rank, &q, &k, &v, &layout.segments);
        let y = self.output.forward(rank, params, &out)?;
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
        rank: &Rank,
        params: &[Param],
        x: &[f32],
        layout: &Layout,
        cache: &mut LayerCache,
    ) -> Result<Buffer> {
        let [q, k, v] = self.project(rank, params, x, layout)?;
        let width = self.heads.key_value * self.heads.dim;
        for segment in &layout.segments {
            let from = segment.query_start * width..(segment.query_start + segment.queries) * width;
            let end = segment.key_start + segment.keys;
            let to = (end - segment.queries) * width..end * width;
            cache.keys[to.clone()].copy_from_slice(&k[from.clone()]);
            cache.values[to].copy_from_slice(&v[from]);
        }
        let (out, _) = self.attend(rank, &q, &cache.keys, &cache.values, &layout.segments);
        self.output.forward(rank, params, &out)
    }

    /// Rotated queries and keys, and values.
    fn project(
        &self,
        rank: &Rank,
        params: &[Param],
        x: &[f32],
        layout: &Layout,
    ) -> Result<[Buffer; 3]> {
        let mut q = self.query.forward(rank, params, x)?; // [m, N/x, D]
        let mut k = self.key.forward(rank, params, x)?; // [m, K/x, D]
        let v = self.value.forward(rank, params, x)?; // [m, K/x, D]
        rotary::rotate(&mut q, &layout.rotary, &layout.positions, self.heads.query);
        rotary::rotate(
            &mut k,
            &layout.rotary,
            &layout.positions,
            self.heads.key_value,
        );
        Ok([q, k, v])
    }

    fn attend(
        &self,
        rank: &Rank,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        segments: &[Segment],
    ) -> (Buffer, Buffer) {
        let mut out = rank.pool.take(q.len());
        let mut log_sum_exp = rank.pool.take(q.len() / self.heads.dim);
        kernel::forward(&mut out, &mut log_sum_exp, q, k, v, segments, self.heads);
        (out, log_sum_exp)
    }

    /// Gradient of the input `x` from `dy`, both `[m, H/y]`.
    pub(crate) fn backward(
        &self,
        rank: &Rank,
        params: &mut [Param],
        x: &[f32],
        saved: SavedAttention,
        dy: &[f32],
        layout: &Layout,
    ) -> Result<Buffer> {
        let mut dout = rank.pool.take(saved.out.len());
        self.output
            .input_gradient(rank, params, dy, &mut dout, Output::Set)?;
        let pending = rank.groups.y.start(Collective::AllReduceSum, dout);
        self.output.weight_gradient(rank, params, &saved.out, dy)?;
        let [dq, dk, dv] = self.attend_backward(rank, &saved, &pending.wait()?, layout);
        drop(saved);

        let mut dx = rank.pool.take(x.len());
        let inputs = [
            (self.query, &dq, Output::Set),
            (self.key, &dk, Output::Add),
            (self.value, &dv, Output::Add),
        ];
        for (linear, dy, output) in inputs {
            linear.input_gradient(rank, params, dy, &mut dx, output)?;
        }
        let pending = rank.groups.x.start(Collective::AllReduceSum, dx);
        for (linear, dy, _) in inputs {
            linear.weight_gradient(rank, params, x, dy)?;
        }
        pending.wait()
    }

    /// Gradients of the projections' outputs, rotated back.
    fn attend_backward(
        &self,
        rank: &Rank,
        saved: &SavedAttention,
        dout: &[f32],
        layout: &Layout,
    ) -> [Buffer; 3] {
        let mut dq = rank.pool.take(saved.q.len());
        let mut dk = rank.pool.take(saved.k.len());
        let mut dv = rank.pool.take(saved.v.len());
        let mut workspace = rank
            .pool
            .take(kernel::workspace_len(layout.rows(), self.heads));
        kernel::backward(
            [&mut dq, &mut dk, &mut dv],
            dout,
            Forward {
                q: &saved.q,
                k: &saved.k,
                v: &saved.v,
                out: &saved.out,
                log_sum_exp: &saved.log_sum_exp,
            },
            &layout.segments,
            self.heads,
            &mut workspace,
        );
        rotary::rotate_back(&mut dq, &layout.rotary, &layout.positions, self.heads.query);
        rotary::rotate_back(
            &mut dk,
            &layout.rotary,
            &layout.positions,
            self.heads.key_value,
        );
        [dq, dk, dv]
    }
}
