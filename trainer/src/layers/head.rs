//! Output head and loss, by chunks of rows: the logits of all rows never exist at one time.

use crate::comm::Collective;
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::cross_entropy as kernel;
use crate::kernels::matmul::{Output, matmul_nn, matmul_nt_narrow, matmul_tn};
use crate::pass::{ParamIndex, Pass};
use crate::pool::Buffer;

/// `logits = x Wᵀ` and their cross-entropy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// W, `[V, H]`; the embedding itself when tied.
    pub(crate) weight: ParamIndex,
    /// c: rows of a chunk.
    pub(crate) chunk: usize,
}

/// The targets of a batch that count, and the rows whose logits predict them, `[kept]` each.
#[derive(Debug)]
pub(crate) struct Targets {
    /// Rows of the batch, ascending.
    pub(crate) rows: Vec<usize>,
    /// The id that each of these rows predicts.
    pub(crate) ids: Vec<u32>,
}

impl Head {
    /// Sum of the losses of the targets, and the gradient of `x` `[m, H/y]` under a loss of `inverse_count · Σ loss`.
    ///
    /// Only the rows with a target are multiplied with the vocabulary. Ranks along Z and Data hold other rows, so the
    /// chunks contain no collective over these axes and may differ in number.
    pub(crate) fn loss_and_gradient(
        &self,
        pass: &mut Pass<'_>,
        x: &[f32],
        targets: &Targets,
        inverse_count: f64,
    ) -> Result<(f64, Buffer)> {
        let [vocab, width] = pass.params[self.weight].block.shape; // [V/x, H/y]
        let mut dweight = pass.zero_gradient(self.weight);
        let kept = pass.rank.pool.take(targets.rows.len() * width);
        let kept = gather_rows(kept, x, &targets.rows, width); // [kept, H/y]
        let mut dkept = pass.rank.pool.take(kept.len());
        let weight = pass.weight(self.weight)?;
        let mut loss = 0.0;
        // The last chunk's share of dW is made while dX is summed.
        let mut last: Option<(&[f32], Buffer)> = None;
        let chunks = kept
            .chunks(self.chunk * width)
            .zip(dkept.chunks_mut(self.chunk * width))
            .zip(targets.ids.chunks(self.chunk));
        for ((x, dx), ids) in chunks {
            if let Some((x, dlogits)) = last.take() {
                add_outer(&mut dweight, &dlogits, x, [vocab, width]);
            }
            let rows = ids.len();
            let (chunk_loss, dlogits) =
                self.chunk_loss(pass, &weight, x, ids, inverse_count as f32)?;
            loss += chunk_loss;
            matmul_nn(dx, &dlogits, &weight, [rows, width, vocab], Output::Set);
            last = Some((x, dlogits));
        }
        drop(weight);
        let dkept = pass.start_backward(Axis::X, Collective::AllReduceSum, dkept)?;
        if let Some((x, dlogits)) = last {
            add_outer(&mut dweight, &dlogits, x, [vocab, width]);
        }
        pass.reduce(self.weight, dweight)?;
        let dkept = dkept.wait()?;
        let mut dx = pass.rank.pool.zeros(x.len());
        for (row, dkept) in targets.rows.iter().zip(dkept.chunks_exact(width)) {
            dx[row * width..][..width].copy_from_slice(dkept);
        }
        Ok((loss, dx))
    }

    /// Sum of the losses of the targets.
    pub(crate) fn loss(&self, pass: &mut Pass<'_>, x: &[f32], targets: &Targets) -> Result<f64> {
        let width = pass.params[self.weight].block.shape[1];
        let weight = pass.weight(self.weight)?;
        let mut loss = 0.0;
        for (rows, ids) in targets
            .rows
            .chunks(self.chunk)
            .zip(targets.ids.chunks(self.chunk))
        {
            let kept = gather_rows(pass.rank.pool.take(rows.len() * width), x, rows, width);
            loss += self.chunk_loss(pass, &weight, &kept, ids, 0.0)?.0;
        }
        Ok(loss)
    }

    /// Logits `[rows, V]` of rows `x` `[rows, H/y]`, on every rank.
    pub(crate) fn logits(&self, pass: &mut Pass<'_>, x: &[f32]) -> Result<Vec<f32>> {
        let param = &pass.params[self.weight];
        let [vocab, width] = param.block.shape;
        let rows = x.len() / width;
        let weight = pass.weight(self.weight)?;
        let own = self.local_logits(pass, &weight, x, [rows, vocab, width])?;
        let x_group = &pass.rank.groups.x;
        let parts = x_group.start(Collective::AllGather, own).wait()?; // [x, rows, V/x]
        let mut logits = vec![0.0; rows * param.shape[0]];
        for (row, logits) in logits.chunks_exact_mut(param.shape[0]).enumerate() {
            for (part, logits) in logits.chunks_mut(vocab).enumerate() {
                // The last part may end in padding, which is left behind.
                logits.copy_from_slice(&parts[(part * rows + row) * vocab..][..logits.len()]);
            }
        }
        Ok(logits)
    }

    /// `x Wᵀ`, `[rows, V/x]`, summed over Y.
    fn local_logits(
        &self,
        pass: &Pass<'_>,
        weight: &[f32],
        x: &[f32],
        shape: [usize; 3],
    ) -> Result<Buffer> {
        let mut logits = pass.rank.pool.take(shape[0] * shape[1]);
        let narrow = pass.narrow(self.weight);
        matmul_nt_narrow(&mut logits, x, weight, narrow, shape, Output::Set);
        pass.all_reduce(Axis::Y, logits)
    }

    /// Loss of one chunk of rows and the gradient of its logits, `[c, V/x]`.
    fn chunk_loss(
        &self,
        pass: &Pass<'_>,
        weight: &[f32],
        x: &[f32],
        ids: &[u32],
        scale: f32,
    ) -> Result<(f64, Buffer)> {
        let block = &pass.params[self.weight].block;
        let [vocab, width] = block.shape;
        let (rows, first) = (ids.len(), block.rows.start);
        let mut logits = self.local_logits(pass, weight, x, [rows, vocab, width])?;
        kernel::mask_padding(&mut logits, vocab, block.rows.len());
        let mut maxima = pass.rank.pool.take(rows);
        kernel::row_max(&mut maxima, &logits, vocab);
        let x_group = &pass.rank.groups.x;
        let maxima = x_group.start(Collective::AllReduceMax, maxima).wait()?; // [c]
        let mut statistics = pass.rank.pool.take(2 * rows);
        let (sums, target_logits) = statistics.split_at_mut(rows);
        kernel::target_logits(target_logits, &logits, ids, first, vocab);
        kernel::exp_sums(sums, &mut logits, &maxima, vocab);
        let statistics = pass.all_reduce(Axis::X, statistics)?; // [2, c]
        let (sums, target_logits) = statistics.split_at(rows);
        let loss = kernel::loss_sum(sums, &maxima, target_logits);
        kernel::backward(&mut logits, sums, ids, first, vocab, scale);
        Ok((loss, logits))
    }
}

/// `dweight += dlogitsᵀ x`, `[V/x, H/y]`.
fn add_outer(dweight: &mut [f32], dlogits: &[f32], x: &[f32], [vocab, width]: [usize; 2]) {
    let rows = x.len() / width;
    matmul_tn(dweight, dlogits, x, [vocab, width, rows], Output::Add);
}

fn gather_rows(mut out: Buffer, x: &[f32], rows: &[usize], width: usize) -> Buffer {
    for (out, row) in out.chunks_exact_mut(width).zip(rows) {
        out.copy_from_slice(&x[row * width..][..width]);
    }
    out
}
