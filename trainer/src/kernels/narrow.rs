//! Weights that are bf16 numbers, once more in half the memory, for products with one or two rows: those wait for memory.
//!
//! A bf16 number is the upper half of an f32. It is widened in registers, and sums run in the order of the f32 kernel, so
//! that no bit of a result says which of the two was read.

#![expect(
    clippy::inline_always,
    reason = "vector code exists only where it is inlined into the function that enables it"
)]

use pulp::{Arch, Simd};
use rayon::prelude::*;

use super::few_rows::{self, Lanes};

/// Rows of the other factor up to which it is read.
pub const MOST_ROWS: usize = few_rows::DOTS;

const UPPER: u32 = 0xffff_0000;

/// A matrix `[n, k]` of bf16 numbers.
#[derive(Clone, Debug)]
pub struct Narrow {
    /// `[n, k/2]`: of every two vectors of a row, a word holds an element of the first in its upper half and one of the
    /// second in its lower half.
    words: Vec<u32>,
}

impl Narrow {
    /// The same numbers as `weight` `[n, k]`; none if some are no bf16 numbers, or a row is not a whole number of pairs of
    /// vectors.
    pub fn new(weight: &[f32], k: usize) -> Option<Self> {
        Self::on(Arch::new(), weight, k)
    }

    pub(super) fn on(arch: Arch, weight: &[f32], k: usize) -> Option<Self> {
        let lanes = arch.dispatch(Lanes);
        let is_bf16 = |value: &f32| value.to_bits() & !UPPER == 0;
        if !k.is_multiple_of(2 * lanes) || !weight.par_iter().all(is_bf16) {
            return None;
        }
        let mut words = vec![0; weight.len() / 2];
        let pairs = weight.par_chunks_exact(2 * lanes);
        words
            .par_chunks_exact_mut(lanes)
            .zip(pairs)
            .with_min_len(1 << 10)
            .for_each(|(words, pair)| {
                let (first, second) = pair.split_at(lanes);
                for ((word, first), second) in words.iter_mut().zip(first).zip(second) {
                    *word = first.to_bits() | second.to_bits() >> 16;
                }
            });
        Some(Self { words })
    }

    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }
}

/// As the dot products of f32 rows, with rows of words.
#[inline(always)]
pub(super) fn dots<S: Simd, const OUT: usize, const ROWS: usize>(
    simd: S,
    b: [&[u32]; OUT],
    a: [&[f32]; ROWS],
) -> [[f32; ROWS]; OUT] {
    let b = b.map(|row| S::as_simd_u32s(row).0);
    let pairs = b[0].len();
    let b = b.map(|row| &row[..pairs]);
    let a = a.map(|row| &S::as_simd_f32s(row).0[..2 * pairs]);
    let (upper, half) = (simd.splat_u32s(UPPER), simd.splat_u32s(16));
    let mut sums = [[simd.splat_f32s(0.0); ROWS]; OUT];
    for at in 0..pairs {
        for (sums, b) in sums.iter_mut().zip(&b) {
            let first = simd.transmute_f32s_u32s(simd.and_u32s(b[at], upper));
            let second = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(b[at], half));
            for (sum, a) in sums.iter_mut().zip(&a) {
                *sum = simd.mul_add_f32s(first, a[2 * at], *sum);
                *sum = simd.mul_add_f32s(second, a[2 * at + 1], *sum);
            }
        }
    }
    sums.map(|sums| sums.map(few_rows::total::<S>))
}
