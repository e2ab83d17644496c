//! Products and attention with few rows, as decoding has: one new token of each sequence. There the weights and the cache are
//! read once each, where a general product would first pack them.

#![expect(
    clippy::inline_always,
    reason = "vector code exists only where it is inlined into the function that enables it"
)]

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::attention::{Heads, Segment};
use super::math;
use super::matmul::Output;
use super::narrow;

/// Rows of A up to which this is faster than a general product.
pub(super) const FEW: usize = 32;
/// Rows of A up to which sums along k are faster than [`Broadcast`].
pub(super) const DOTS: usize = 2;
/// Columns of C in a tile of [`Dots`].
const TILE_OUT: usize = 4;
/// Multiplications below which starting threads does not pay.
const SERIAL: usize = 1 << 15;

/// B, `[n, k]`.
#[derive(Clone, Copy)]
pub(super) enum Weights<'a> {
    /// f32
    Full(&'a [f32]),
    /// bf16 in words, `[n, k/2]`; only with up to [`DOTS`] rows of A.
    Narrow(&'a [u32]),
}

/// `C[m, n] = A[m, k] · B[n, k]ᵀ` for m up to [`FEW`]. Each element is one sum in an order that depends on k alone, and on
/// whether m is above [`DOTS`].
pub(super) fn product_nt(
    c: &mut [f32],
    a: &[f32],
    b: Weights<'_>,
    shape: [usize; 3],
    output: Output,
) {
    product_on(Arch::new(), c, a, b, shape, output);
}

/// [`product_nt`] with the vectors of `arch`.
fn product_on(
    arch: Arch,
    c: &mut [f32],
    a: &[f32],
    b: Weights<'_>,
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
    let width = n.div_ceil(tasks).next_multiple_of(16);
    // The columns of C that each task writes, row by row.
    let mut columns: Vec<Vec<&mut [f32]>> = (0..n.div_ceil(width)).map(|_| Vec::new()).collect();
    for row in c.chunks_exact_mut(n) {
        for (task, part) in row.chunks_mut(width).enumerate() {
            columns[task].push(part);
        }
    }
    let groups = if m <= DOTS {
        Vec::new()
    } else {
        interleave(a, m, k, 2 * arch.dispatch(Lanes))
    };
    columns
        .into_par_iter()
        .enumerate()
        .with_min_len(if tasks == 1 { usize::MAX } else { 1 })
        .for_each(|(task, c)| {
            let first = task * width * k;
            match b {
                Weights::Full(b) if m > DOTS => {
                    let (a, b) = (&groups, &b[first..]);
                    arch.dispatch(Broadcast { c, a, b, k, output });
                }
                Weights::Full(b) => {
                    let b = Weights::Full(&b[first..]);
                    arch.dispatch(Dots { c, a, b, k, output });
                }
                Weights::Narrow(b) => {
                    assert!(m <= DOTS, "narrow weights with {m} rows");
                    let b = Weights::Narrow(&b[first / 2..]);
                    arch.dispatch(Dots { c, a, b, k, output });
                }
            }
        });
}

/// Values in a vector.
pub(super) struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// Some rows of A, transposed.
struct Interleaved {
    rows: Range<usize>,
    /// `[k, vectors · lanes]` with zeros after the rows; one or two vectors.
    values: Vec<f32>,
}

/// A cut in groups of up to `most` rows, two vectors of them.
fn interleave(a: &[f32], m: usize, k: usize, most: usize) -> Vec<Interleaved> {
    (0..m)
        .step_by(most)
        .map(|first| {
            let rows = first..m.min(first + most);
            let width = if 2 * m <= most { most / 2 } else { most };
            let mut values = vec![0.0; k * width];
            for (lane, row) in rows.clone().enumerate() {
                let source = &a[row * k..][..k];
                for (places, &value) in values.chunks_exact_mut(width).zip(source) {
                    places[lane] = value;
                }
            }
            Interleaved { rows, values }
        })
        .collect()
}

/// Some columns of a product, summed along k with one row of A in each lane: no vector is added up across its lanes, which
/// for a short k costs more than the product.
struct Broadcast<'a> {
    /// `[m][columns]`
    c: Vec<&'a mut [f32]>,
    a: &'a [Interleaved],
    /// `[columns or more, k]`
    b: &'a [f32],
    k: usize,
    output: Output,
}

impl WithSimd for Broadcast<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // The sums of a tile fill most of the registers.
        let many = S::REGISTER_COUNT >= 32;
        match (many, self.a[0].values.len() == self.k * S::F32_LANES) {
            (true, true) => self.columns::<S, 16, 1>(simd),
            (true, false) => self.columns::<S, 12, 2>(simd),
            (false, true) => self.columns::<S, 12, 1>(simd),
            (false, false) => self.columns::<S, 6, 2>(simd),
        }
    }
}

impl Broadcast<'_> {
    /// Some rows of B are read from memory once, for all rows of A.
    #[inline(always)]
    fn columns<S: Simd, const OUT: usize, const VECTORS: usize>(mut self, simd: S) {
        let columns = self.c[0].len();
        let whole = columns - columns % OUT;
        for column in (0..whole).step_by(OUT) {
            for a in self.a {
                self.tile::<S, OUT, VECTORS>(simd, a, column);
            }
        }
        for column in whole..columns {
            for a in self.a {
                self.tile::<S, 1, VECTORS>(simd, a, column);
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const OUT: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        a: &Interleaved,
        column: usize,
    ) {
        let k = self.k;
        let b: [&[f32]; OUT] = std::array::from_fn(|i| &self.b[(column + i) * k..][..k]);
        let (values, _) = S::as_simd_f32s(&a.values);
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; OUT];
        for (at, a) in values.chunks_exact(VECTORS).enumerate() {
            for (sums, b) in sums.iter_mut().zip(&b) {
                let b = simd.splat_f32s(b[at]);
                for (sum, &a) in sums.iter_mut().zip(a) {
                    *sum = simd.mul_add_f32s(b, a, *sum);
                }
            }
        }
        let c = &mut self.c[a.rows.clone()];
        for (i, sums) in sums.iter().enumerate() {
            for (c, sums) in c.chunks_mut(S::F32_LANES).zip(sums) {
                for (c, sum) in c.iter_mut().zip(lanes::<S>(*sums)) {
                    match self.output {
                        Output::Set => c[column + i] = sum,
                        Output::Add => c[column + i] += sum,
                    }
                }
            }
        }
    }
}

/// More values than any vector has.
const MOST_LANES: usize = 64;

/// The values of a vector, zeros after them.
#[inline(always)]
fn lanes<S: Simd>(vector: S::f32s) -> [f32; MOST_LANES] {
    let mut lanes = [0.0; MOST_LANES];
    S::as_mut_simd_f32s(&mut lanes).0[0] = vector;
    lanes
}

/// Some columns of a product with one or two rows, summed along k by vectors.
struct Dots<'a> {
    /// `[m][columns]`
    c: Vec<&'a mut [f32]>,
    /// `[m, k]`
    a: &'a [f32],
    /// `[columns or more, k]`
    b: Weights<'a>,
    k: usize,
    output: Output,
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match self.c.len() {
            1 => self.columns::<S, 1>(simd),
            _ => self.columns::<S, DOTS>(simd),
        }
    }
}

impl Dots<'_> {
    #[inline(always)]
    fn columns<S: Simd, const ROWS: usize>(&mut self, simd: S) {
        let columns = self.c[0].len();
        let whole = columns - columns % TILE_OUT;
        for column in (0..whole).step_by(TILE_OUT) {
            self.tile::<S, TILE_OUT, ROWS>(simd, column);
        }
        for column in whole..columns {
            self.tile::<S, 1, ROWS>(simd, column);
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const OUT: usize, const ROWS: usize>(&mut self, simd: S, column: usize) {
        let k = self.k;
        let a: [&[f32]; ROWS] = std::array::from_fn(|j| &self.a[j * k..][..k]);
        let sums = match self.b {
            Weights::Full(b) => {
                let b = std::array::from_fn(|i| &b[(column + i) * k..][..k]);
                dots::<S, OUT, ROWS>(simd, b, a)
            }
            Weights::Narrow(b) => {
                let k = k / 2;
                let b = std::array::from_fn(|i| &b[(column + i) * k..][..k]);
                narrow::dots::<S, OUT, ROWS>(simd, b, a)
            }
        };
        for (i, sums) in sums.into_iter().enumerate() {
            for (c, sum) in self.c.iter_mut().zip(sums) {
                match self.output {
                    Output::Set => c[column + i] = sum,
                    Output::Add => c[column + i] += sum,
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
            total::<S>(sums[i][j]) + rest
        })
    })
}

/// The sum of the values of a vector, by halves. (`reduce_sum_f32s` is not inlined for every vector, and then costs more
/// than a dot product.)
#[inline(always)]
pub(super) fn total<S: Simd>(vector: S::f32s) -> f32 {
    let mut lanes = lanes::<S>(vector);
    let mut width = S::F32_LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
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
        let row = |data: &'_ [f32], key: usize| -> Range<usize> {
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
    use crate::kernels::narrow::Narrow;

    fn numbers(seed: usize, len: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0)
            .collect()
    }

    /// All that this processor has.
    fn vectors() -> Vec<Arch> {
        vec![
            Arch::Scalar,
            #[cfg(target_arch = "x86_64")]
            pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3),
            Arch::new(),
        ]
    }

    #[test]
    fn a_product_with_few_rows_equals_the_general_one() {
        for (arch, m) in vectors()
            .into_iter()
            .flat_map(|arch| (1..=FEW).map(move |m| (arch, m)))
        {
            for (n, k) in [(1, 1), (3, 7), (4, 8), (9, 33), (130, 70), (64, 576)] {
                let (a, b) = (numbers(1, m * k), numbers(2, n * k));
                for output in [Output::Set, Output::Add] {
                    let mut expected = numbers(3, m * n);
                    let mut found = expected.clone();
                    product_serial(
                        MatrixMut::new(&mut expected, m, n),
                        Matrix::new(&a, m, k),
                        Matrix::new(&b, n, k).transposed(),
                        1.0,
                        output,
                    );
                    let weights = Weights::Full(&b);
                    product_on(arch, &mut found, &a, weights, [m, n, k], output);
                    for (found, expected) in found.iter().zip(&expected) {
                        assert!(
                            (found - expected).abs() < 1e-6 * k as f32 + 1e-5,
                            "{arch:?} {m} {n} {k}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_does_not_change_with_the_rows_beside_it() {
        let (n, k) = (50, 77);
        let (a, b) = (numbers(1, FEW * k), numbers(2, n * k));
        let b = Weights::Full(&b);
        let mut all = vec![0.0; FEW * n];
        product_nt(&mut all, &a, b, [FEW, n, k], Output::Set);
        for rows in DOTS + 1..FEW {
            let mut some = vec![0.0; rows * n];
            product_nt(&mut some, &a[..rows * k], b, [rows, n, k], Output::Set);
            assert!(all[..rows * n] == some, "{rows} rows");
        }
        let mut both = vec![0.0; 2 * n];
        product_nt(&mut both, &a[..2 * k], b, [2, n, k], Output::Set);
        let mut alone = vec![0.0; n];
        product_nt(&mut alone, &a[..k], b, [1, n, k], Output::Set);
        assert!(both[..n] == alone);
    }

    #[test]
    fn narrow_weights_give_the_same_bits() {
        for arch in vectors() {
            for (n, k) in [(1, 64), (9, 128), (130, 192), (64, 576)] {
                let a = numbers(1, DOTS * k);
                let b: Vec<f32> = numbers(2, n * k)
                    .iter()
                    .map(|value| f32::from_bits(value.to_bits() & 0xffff_0000))
                    .collect();
                let narrow = Narrow::on(arch, &b, k).expect("bf16 numbers");
                for m in 1..=DOTS {
                    for output in [Output::Set, Output::Add] {
                        let mut expected = numbers(3, m * n);
                        let mut found = expected.clone();
                        let (a, shape) = (&a[..m * k], [m, n, k]);
                        product_on(arch, &mut expected, a, Weights::Full(&b), shape, output);
                        let words = Weights::Narrow(narrow.words());
                        product_on(arch, &mut found, a, words, shape, output);
                        assert!(found == expected, "{arch:?} {m} {n} {k}");
                    }
                }
            }
        }
        let mut b = numbers(2, 128);
        assert!(Narrow::new(&b, 64).is_none(), "no bf16 numbers");
        b.fill(0.5);
        assert!(Narrow::new(&b, 64).is_some());
        assert!(Narrow::on(Arch::Scalar, &b[..3], 3).is_none(), "odd rows");
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
        let q = numbers(1, rows * 60);
        let k = numbers(2, rows * capacity * 20);
        let v = numbers(3, rows * capacity * 20);
        let (mut out, mut sums) = (vec![0.0; rows * 60], vec![0.0; rows * 6]);
        attend(&mut out, &mut sums, [&q, &k, &v], &segments, heads);
        let (mut tiled, mut tiled_sums) = (vec![0.0; rows * 60], vec![0.0; rows * 6]);
        attention::forward_tiled(&mut tiled, &mut tiled_sums, &q, &k, &v, &segments, heads);
        let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(near(&out, &tiled) && near(&sums, &tiled_sums));
    }
}
