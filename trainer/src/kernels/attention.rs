//! Causal attention per segment with grouped-query heads, tiled so that no matrix of scores is kept.
//!
//! Forward (Dao et al., 2022): running maximum and sum per row; only the output and the log-sum-exp stay. Backward:
//! the probabilities are computed again from the log-sum-exp.
//!
//! Letters here: N and K are the heads of this rank. `q`, `out` `[rows, N, D]`; `k`, `v` `[key rows, K, D]`;
//! `log_sum_exp` `[rows, N]`.

use rayon::prelude::*;

use super::few_rows;
use super::math::{self, vectored};
use super::matmul::{Matrix, MatrixMut, Output, product_serial};

/// Rows and columns of a tile of scores.
pub(crate) const TILE: usize = 64;

/// A run of query rows and the key rows it sees: query `i` sees keys `0..=keys - queries + i` of its segment.
///
/// In training and plain inference queries and keys are the same rows. With a cache the keys are the past and the
/// new rows, so the mask is the rectangle `[new, past + new]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First query row.
    pub query_start: usize,
    /// Number of query rows.
    pub queries: usize,
    /// First key row.
    pub key_start: usize,
    /// Number of key rows, at least `queries`.
    pub keys: usize,
}

/// Head counts of this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// N: query heads.
    pub query: usize,
    /// K: key-value heads; divides N.
    pub key_value: usize,
    /// D: size of a head.
    pub dim: usize,
}

impl Heads {
    /// Query heads that share one key-value head.
    pub fn group(self) -> usize {
        self.query / self.key_value
    }

    pub(super) fn scale(self) -> f32 {
        (1.0 / (self.dim as f64).sqrt()) as f32
    }

    /// Rows `first..first + rows` of one query head in a `[rows, N, D]` buffer.
    fn query_rows(self, data: &[f32], head: usize, first: usize, rows: usize) -> Matrix<'_> {
        let stride = self.query * self.dim;
        Matrix::strided(
            &data[first * stride + head * self.dim..],
            rows,
            self.dim,
            stride,
        )
    }

    /// Rows `first..first + rows` of one key-value head in a `[rows, K, D]` buffer.
    fn key_rows(self, data: &[f32], head: usize, first: usize, rows: usize) -> Matrix<'_> {
        let stride = self.key_value * self.dim;
        Matrix::strided(
            &data[first * stride + head * self.dim..],
            rows,
            self.dim,
            stride,
        )
    }
}

/// A tile of queries of one segment, and the rows of the output that it owns.
struct QueryTile<'a> {
    segment: Segment,
    /// First query of the tile, within the segment.
    first: usize,
    rows: usize,
    out: &'a mut [f32],
    log_sum_exp: &'a mut [f32],
}

/// `out = softmax(q kᵀ / √D, causal within each segment) v`.
///
/// The segments cover the query rows in order. Parallel over tiles of queries.
pub fn forward(
    out: &mut [f32],
    log_sum_exp: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    segments: &[Segment],
    heads: Heads,
) {
    assert_eq!(out.len(), q.len());
    assert_eq!(k.len(), v.len());
    assert_eq!(log_sum_exp.len() * heads.dim, q.len());
    if segments.iter().all(|segment| segment.queries == 1) {
        few_rows::attend(out, log_sum_exp, [q, k, v], segments, heads);
    } else {
        forward_tiled(out, log_sum_exp, q, k, v, segments, heads);
    }
}

/// [`forward`] by tiles of queries.
pub(super) fn forward_tiled(
    out: &mut [f32],
    log_sum_exp: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    segments: &[Segment],
    heads: Heads,
) {
    let mut tiles = Vec::new();
    let (mut out, mut log_sum_exp) = (out, log_sum_exp);
    let mut row = 0;
    for &segment in segments {
        assert_eq!(segment.query_start, row, "segments cover the rows in order");
        assert!(segment.keys >= segment.queries);
        row += segment.queries;
        for first in (0..segment.queries).step_by(TILE) {
            let rows = TILE.min(segment.queries - first);
            let (own, rest) = out.split_at_mut(rows * heads.query * heads.dim);
            let (own_sums, rest_sums) = log_sum_exp.split_at_mut(rows * heads.query);
            (out, log_sum_exp) = (rest, rest_sums);
            tiles.push(QueryTile {
                segment,
                first,
                rows,
                out: own,
                log_sum_exp: own_sums,
            });
        }
    }
    assert!(out.is_empty(), "segments cover all rows");
    tiles.into_par_iter().for_each(|mut tile| {
        for head in 0..heads.query {
            forward_tile(&mut tile, head, q, k, v, heads);
        }
    });
}

fn forward_tile(
    tile: &mut QueryTile<'_>,
    head: usize,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    heads: Heads,
) {
    let Segment {
        query_start,
        queries,
        key_start,
        keys,
    } = tile.segment;
    let (rows, stride) = (tile.rows, heads.query * heads.dim);
    let key_head = head / heads.group();
    // Keys that the first query of the tile sees besides its own.
    let past = keys - queries + tile.first;
    let queries = heads.query_rows(q, head, query_start + tile.first, rows);
    let mut scores = [0.0f32; TILE * TILE];
    let mut maximum = [f32::NEG_INFINITY; TILE];
    let mut total = [0.0f32; TILE];

    for start in (0..past + rows).step_by(TILE) {
        let columns = TILE.min(past + rows - start);
        let keys = heads.key_rows(k, key_head, key_start + start, columns);
        product_serial(
            MatrixMut::strided(&mut scores, rows, columns, TILE),
            queries,
            keys.transposed(),
            heads.scale(),
            Output::Set,
        );
        vectored(|| {
            for row in 0..rows {
                let visible = (past + row + 1).saturating_sub(start).min(columns);
                let (seen, hidden) = scores[row * TILE..][..columns].split_at_mut(visible);
                hidden.fill(0.0);
                if visible == 0 {
                    continue;
                }
                let new_maximum = maximum[row].max(math::max(seen));
                let rescale = math::exp(maximum[row] - new_maximum);
                total[row] = total[row] * rescale + math::exp_in_place(seen, new_maximum);
                maximum[row] = new_maximum;
                if start > 0 {
                    for value in &mut tile.out[row * stride + head * heads.dim..][..heads.dim] {
                        *value *= rescale;
                    }
                }
            }
        });
        product_serial(
            MatrixMut::strided(&mut tile.out[head * heads.dim..], rows, heads.dim, stride),
            Matrix::strided(&scores, rows, columns, TILE),
            heads.key_rows(v, key_head, key_start + start, columns),
            1.0,
            if start == 0 { Output::Set } else { Output::Add },
        );
    }
    for row in 0..rows {
        tile.log_sum_exp[row * heads.query + head] = maximum[row] + total[row].ln();
        let inverse = 1.0 / total[row];
        for value in &mut tile.out[row * stride + head * heads.dim..][..heads.dim] {
            *value *= inverse;
        }
    }
}

/// What the forward read and made, for [`backward`].
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// `[rows, N, D]`
    pub q: &'a [f32],
    /// `[rows, K, D]`
    pub k: &'a [f32],
    /// `[rows, K, D]`
    pub v: &'a [f32],
    /// `[rows, N, D]`
    pub out: &'a [f32],
    /// `[rows, N]`
    pub log_sum_exp: &'a [f32],
}

/// Elements of workspace that [`backward`] needs for `rows` rows.
pub fn workspace_len(rows: usize, heads: Heads) -> usize {
    rows * (heads.query + 2 * heads.key_value) * heads.dim
}

/// Gradients of `q`, `k` and `v` (overwritten) for self-attention: queries and keys are the same rows.
///
/// Parallel over (segment, key-value head): each task writes its gradients head by head into its own part of
/// `workspace`, from which they are copied to their places.
pub fn backward(
    [dq, dk, dv]: [&mut [f32]; 3],
    dout: &[f32],
    saved: Forward<'_>,
    segments: &[Segment],
    heads: Heads,
    workspace: &mut [f32],
) {
    let rows: usize = segments.iter().map(|segment| segment.queries).sum();
    assert_eq!(dq.len(), rows * heads.query * heads.dim);
    assert_eq!(dk.len(), rows * heads.key_value * heads.dim);
    assert_eq!(dv.len(), dk.len());
    assert_eq!(workspace.len(), workspace_len(rows, heads));
    let per_row = (heads.group() + 2) * heads.dim;
    let mut tasks = Vec::new();
    let mut rest = &mut *workspace;
    for &segment in segments {
        assert_eq!(segment.queries, segment.keys, "self-attention");
        assert_eq!(segment.query_start, segment.key_start, "self-attention");
        for key_head in 0..heads.key_value {
            let (own, others) = rest.split_at_mut(segment.queries * per_row);
            rest = others;
            tasks.push((segment, key_head, own));
        }
    }
    tasks.into_par_iter().for_each(|(segment, key_head, own)| {
        backward_head(own, segment, key_head, dout, saved, heads);
    });

    let (mut dq, mut dk, mut dv, mut rest) = (dq, dk, dv, &*workspace);
    for &segment in segments {
        let length = segment.queries;
        let (own, others) = rest.split_at(workspace_len(length, heads));
        rest = others;
        let (own_dq, others_dq) = dq.split_at_mut(length * heads.query * heads.dim);
        let (own_dk, others_dk) = dk.split_at_mut(length * heads.key_value * heads.dim);
        let (own_dv, others_dv) = dv.split_at_mut(length * heads.key_value * heads.dim);
        (dq, dk, dv) = (others_dq, others_dk, others_dv);
        collect_heads([own_dq, own_dk, own_dv], own, length, heads);
    }
}

/// Copies the gradients of one segment from `[K][(N/K + 2)][length][D]` to `[length][N or K][D]`.
fn collect_heads([dq, dk, dv]: [&mut [f32]; 3], own: &[f32], length: usize, heads: Heads) {
    let (dim, group) = (heads.dim, heads.group());
    let source = |key_head: usize, slot: usize, row: usize| {
        &own[((key_head * (group + 2) + slot) * length + row) * dim..][..dim]
    };
    (
        dq.par_chunks_exact_mut(heads.query * dim),
        dk.par_chunks_exact_mut(heads.key_value * dim),
        dv.par_chunks_exact_mut(heads.key_value * dim),
    )
        .into_par_iter()
        .enumerate()
        .with_min_len(super::rows_per_task(
            (heads.query + 2 * heads.key_value) * dim,
        ))
        .for_each(|(row, (dq, dk, dv))| {
            for (head, dq) in dq.chunks_exact_mut(dim).enumerate() {
                dq.copy_from_slice(source(head / group, head % group, row));
            }
            for (head, (dk, dv)) in dk
                .chunks_exact_mut(dim)
                .zip(dv.chunks_exact_mut(dim))
                .enumerate()
            {
                dk.copy_from_slice(source(head, group, row));
                dv.copy_from_slice(source(head, group + 1, row));
            }
        });
}

/// `own` is `[(N/K query heads, dk, dv)][length][D]`.
fn backward_head(
    own: &mut [f32],
    segment: Segment,
    key_head: usize,
    dout: &[f32],
    saved: Forward<'_>,
    heads: Heads,
) {
    let (length, dim, origin) = (segment.queries, heads.dim, segment.query_start);
    own.fill(0.0);
    let (dqs, dk_dv) = own.split_at_mut(heads.group() * length * dim);
    let (dk, dv) = dk_dv.split_at_mut(length * dim);
    let mut probabilities = [0.0f32; TILE * TILE];
    let mut gradients = [0.0f32; TILE * TILE];
    let mut deltas = [0.0f32; TILE];

    for (slot, dq) in dqs.chunks_exact_mut((length * dim).max(1)).enumerate() {
        let head = key_head * heads.group() + slot;
        for first in (0..length).step_by(TILE) {
            let rows = TILE.min(length - first);
            let queries = heads.query_rows(saved.q, head, origin + first, rows);
            let douts = heads.query_rows(dout, head, origin + first, rows);
            for (row, delta) in deltas[..rows].iter_mut().enumerate() {
                let at = ((origin + first + row) * heads.query + head) * dim;
                *delta = vectored(|| math::dot(&dout[at..at + dim], &saved.out[at..at + dim]));
            }
            for start in (0..first + rows).step_by(TILE) {
                let columns = TILE.min(first + rows - start);
                let keys = heads.key_rows(saved.k, key_head, origin + start, columns);
                let values = heads.key_rows(saved.v, key_head, origin + start, columns);
                let target = MatrixMut::strided(&mut probabilities, rows, columns, TILE);
                product_serial(
                    target,
                    queries,
                    keys.transposed(),
                    heads.scale(),
                    Output::Set,
                );
                let target = MatrixMut::strided(&mut gradients, rows, columns, TILE);
                product_serial(target, douts, values.transposed(), 1.0, Output::Set);
                vectored(|| {
                    for row in 0..rows {
                        let visible = (first + row + 1).saturating_sub(start).min(columns);
                        let probabilities = &mut probabilities[row * TILE..][..columns];
                        let gradients = &mut gradients[row * TILE..][..columns];
                        let log_sum =
                            saved.log_sum_exp[(origin + first + row) * heads.query + head];
                        let (delta, scale) = (deltas[row], heads.scale());
                        for (p, ds) in probabilities[..visible]
                            .iter_mut()
                            .zip(&mut gradients[..visible])
                        {
                            *p = math::exp(*p - log_sum);
                            *ds = *p * (*ds - delta) * scale;
                        }
                        probabilities[visible..].fill(0.0);
                        gradients[visible..].fill(0.0);
                    }
                });
                let probabilities = Matrix::strided(&probabilities, rows, columns, TILE);
                let gradients = Matrix::strided(&gradients, rows, columns, TILE);
                let target =
                    MatrixMut::new(&mut dv[start * dim..(start + columns) * dim], columns, dim);
                product_serial(target, probabilities.transposed(), douts, 1.0, Output::Add);
                let target =
                    MatrixMut::new(&mut dk[start * dim..(start + columns) * dim], columns, dim);
                product_serial(target, gradients.transposed(), queries, 1.0, Output::Add);
                let target = MatrixMut::new(&mut dq[first * dim..(first + rows) * dim], rows, dim);
                product_serial(target, gradients, keys, 1.0, Output::Add);
            }
        }
    }
}
