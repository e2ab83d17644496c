//! Products and attention with few rows, as decoding has: one new token of each sequence. There the weights and the cache are
//! read once each and the arithmetic hides behind that, where a general product would first pack them.

#![expect(
    clippy::inline_always,
    reason = "vector code exists only where it is inlined into the function that enables it"
)]

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::attention::{Heads, Segment};
use super::math;
use super::matmul::Output;

/// Rows of A up to which this is faster than a general product.
pub(super) const FEW: usize = 16;
/// Rows of the weight in a tile.
const TILE_OUT: usize = 4;
/// Rows of A in a tile: the sums of a tile fill three quarters of 16 vector registers.
const TILE_ROWS: usize = 3;
/// Multiplications below which starting threads does not pay.
const SERIAL: usize = 1 << 15;

/// `C[m, n] = A[m, k] · B[n, k]ᵀ` for m up to [`FEW`]. Each element is one sum in an order that depends on k alone.
pub(super) fn product_nt(
    c: &mut [f32],
    a: &[f32],
    b: &[f32],
    [m, n, k]: [usize; 3],
    output: Output,
) {
    if m == 0 || n == 0 {
        return;
    }
    let tasks = if m * n * k < SERIAL {
        1
    } else {
        4 * rayon::current_num_threads()
    };
    let width = n.div_ceil(tasks).next_multiple_of(TILE_OUT);
    // The columns of C that each task writes, row by row.
    let mut columns: Vec<Vec<&mut [f32]>> = (0..n.div_ceil(width)).map(|_| Vec::new()).collect();
    for row in c.chunks_exact_mut(n) {
        for (task, part) in row.chunks_mut(width).enumerate() {
            columns[task].push(part);
        }
    }
    let arch = Arch::new();
    columns
        .into_par_iter()
        .enumerate()
        .with_min_len(if tasks == 1 { usize::MAX } else { 1 })
        .for_each(|(task, c)| {
            let first = task * width;
            arch.dispatch(Columns {
                c,
                a,
                b: &b[first * k..],
                k,
                output,
            });
        });
}

/// Some columns of a product.
struct Columns<'a> {
    /// `[m][columns]`
    c: Vec<&'a mut [f32]>,
    /// `[m, k]`
    a: &'a [f32],
    /// `[columns or more, k]`
    b: &'a [f32],
    k: usize,
    output: Output,
}

impl WithSimd for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let (rows, columns) = (self.c.len(), self.c[0].len());
        let mut column = 0;
        while column < columns {
            let tall = columns - column >= TILE_OUT;
            let mut row = 0;
            while row < rows {
                match (tall, (rows - row).min(TILE_ROWS)) {
                    (true, 3) => self.tile::<S, TILE_OUT, 3>(simd, column, row),
                    (true, 2) => self.tile::<S, TILE_OUT, 2>(simd, column, row),
                    (true, _) => self.tile::<S, TILE_OUT, 1>(simd, column, row),
                    (false, 3) => self.tile::<S, 1, 3>(simd, column, row),
                    (false, 2) => self.tile::<S, 1, 2>(simd, column, row),
                    (false, _) => self.tile::<S, 1, 1>(simd, column, row),
                }
                row += TILE_ROWS;
            }
            column += if tall { TILE_OUT } else { 1 };
        }
    }
}

impl Columns<'_> {
    #[inline(always)]
    fn tile<S: Simd, const OUT: usize, const ROWS: usize>(
        &mut self,
        simd: S,
        column: usize,
        row: usize,
    ) {
        let k = self.k;
        let b: [&[f32]; OUT] = std::array::from_fn(|i| &self.b[(column + i) * k..][..k]);
        let a: [&[f32]; ROWS] = std::array::from_fn(|j| &self.a[(row + j) * k..][..k]);
        let sums = dots::<S, OUT, ROWS>(simd, b, a);
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let place = &mut self.c[row + j][column + i];
                match self.output {
                    Output::Set => *place = sum,
                    Output::Add => *place += sum,
                }
            }
        }
    }
}

/// All dot products of some rows with some others, all of one length.
#[inline(always)]
fn dots<S: Simd, const OUT: usize, const ROWS: usize>(
    simd: S,
    b: [&[f32]; OUT],
    a: [&[f32]; ROWS],
) -> [[f32; ROWS]; OUT] {
    let b = b.map(S::as_simd_f32s);
    let a = a.map(S::as_simd_f32s);
    let len = b[0].0.len();
    let (b_whole, a_whole) = (b.map(|row| &row.0[..len]), a.map(|row| &row.0[..len]));
    let mut sums = [[simd.splat_f32s(0.0); ROWS]; OUT];
    for at in 0..len {
        for (sums, b) in sums.iter_mut().zip(&b_whole) {
            for (sum, a) in sums.iter_mut().zip(&a_whole) {
                *sum = simd.mul_add_f32s(b[at], a[at], *sum);
            }
        }
    }
    std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let rest = b[i].1.iter().zip(a[j].1).map(|(b, a)| b * a).sum::<f32>();
            simd.reduce_sum_f32s(sums[i][j]) + rest
        })
    })
}

/// As [`attention::forward`](super::attention::forward) where every segment has one query: `out`, `q` `[segments, N, D]`,
/// `log_sum_exp` `[segments, N]`.
pub(super) fn attend(
    out: &mut [f32],
    log_sum_exp: &mut [f32],
    [q, k, v]: [&[f32]; 3],
    segments: &[Segment],
    heads: Heads,
) {
    let (group, dim) = (heads.group(), heads.dim);
    let arch = Arch::new();
    out.par_chunks_exact_mut(group * dim)
        .zip(log_sum_exp.par_chunks_exact_mut(group))
        .zip(q.par_chunks_exact(group * dim))
        .enumerate()
        .for_each(|(task, ((out, log_sum_exp), q))| {
            let segment = segments[task / heads.key_value];
            arch.dispatch(Query {
                out,
                log_sum_exp,
                q,
                k,
                v,
                segment,
                head: task % heads.key_value,
                heads,
            });
        });
}

/// One query of the heads that share a key-value head.
struct Query<'a> {
    /// `[N/K, D]`
    out: &'a mut [f32],
    /// `[N/K]`
    log_sum_exp: &'a mut [f32],
    /// `[N/K, D]`
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    segment: Segment,
    head: usize,
    heads: Heads,
}

impl WithSimd for Query<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let dim = self.heads.dim;
        let stride = self.heads.key_value * dim;
        let row = |data: &'_ [f32], key: usize| -> std::ops::Range<usize> {
            let start = (self.segment.key_start + key) * stride + self.head * dim;
            debug_assert!(start + dim <= data.len());
            start..start + dim
        };
        let keys = self.segment.keys;
        let mut scores = vec![0.0f32; keys];
        let queries = self.q.chunks_exact(dim);
        let outs = self.out.chunks_exact_mut(dim);
        for ((q, out), log_sum_exp) in queries.zip(outs).zip(self.log_sum_exp) {
            for (key, score) in scores.iter_mut().enumerate() {
                let [[dot]] = dots::<S, 1, 1>(simd, [&self.k[row(self.k, key)]], [q]);
                *score = dot * self.heads.scale();
            }
            let top = math::max(&scores);
            let total = math::exp_in_place(&mut scores, top);
            *log_sum_exp = top + total.ln();
            out.fill(0.0);
            for (key, &score) in scores.iter().enumerate() {
                add_scaled(simd, out, &self.v[row(self.v, key)], score / total);
            }
        }
    }
}

/// `y += scale · x`
#[inline(always)]
fn add_scaled<S: Simd>(simd: S, y: &mut [f32], x: &[f32], scale: f32) {
    let (y, y_rest) = S::as_mut_simd_f32s(y);
    let (x, x_rest) = S::as_simd_f32s(x);
    let splat = simd.splat_f32s(scale);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = simd.mul_add_f32s(splat, x, *y);
    }
    for (y, &x) in y_rest.iter_mut().zip(x_rest) {
        *y += scale * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::attention;
    use crate::kernels::matmul::{Matrix, MatrixMut, product_serial};

    fn values(seed: usize, len: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0)
            .collect()
    }

    #[test]
    fn a_product_with_few_rows_equals_the_general_one() {
        for m in 1..=FEW {
            for (n, k) in [(1, 1), (3, 7), (4, 8), (9, 33), (130, 70), (64, 576)] {
                let (a, b) = (values(1, m * k), values(2, n * k));
                for output in [Output::Set, Output::Add] {
                    let mut expected = values(3, m * n);
                    let mut found = expected.clone();
                    product_serial(
                        MatrixMut::new(&mut expected, m, n),
                        Matrix::new(&a, m, k),
                        Matrix::new(&b, n, k).transposed(),
                        1.0,
                        output,
                    );
                    product_nt(&mut found, &a, &b, [m, n, k], output);
                    for (found, expected) in found.iter().zip(&expected) {
                        assert!(
                            (found - expected).abs() < 1e-6 * k as f32 + 1e-5,
                            "{m} {n} {k}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_does_not_change_with_the_rows_beside_it() {
        let (n, k) = (50, 77);
        let (a, b) = (values(1, FEW * k), values(2, n * k));
        let mut all = vec![0.0; FEW * n];
        product_nt(&mut all, &a, &b, [FEW, n, k], Output::Set);
        for (row, a) in a.chunks_exact(k).enumerate() {
            let mut alone = vec![0.0; n];
            product_nt(&mut alone, a, &b, [1, n, k], Output::Set);
            assert!(all[row * n..][..n] == alone, "row {row}");
        }
    }

    #[test]
    fn attention_of_one_query_equals_the_tiled_one() {
        let heads = Heads {
            query: 6,
            key_value: 2,
            dim: 10,
        };
        let lengths = [1usize, 63, 64, 65, 200];
        let capacity = 200;
        let segments: Vec<Segment> = lengths
            .iter()
            .enumerate()
            .map(|(index, &keys)| Segment {
                query_start: index,
                queries: 1,
                key_start: index * capacity,
                keys,
            })
            .collect();
        let rows = lengths.len();
        let q = values(1, rows * 60);
        let k = values(2, rows * capacity * 20);
        let v = values(3, rows * capacity * 20);
        let (mut out, mut sums) = (vec![0.0; rows * 60], vec![0.0; rows * 6]);
        attend(&mut out, &mut sums, [&q, &k, &v], &segments, heads);
        let (mut tiled, mut tiled_sums) = (vec![0.0; rows * 60], vec![0.0; rows * 6]);
        attention::forward_tiled(&mut tiled, &mut tiled_sums, &q, &k, &v, &segments, heads);
        let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(near(&out, &tiled) && near(&sums, &tiled_sums));
    }
}
