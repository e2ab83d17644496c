//! One row of logits: its largest value, the place of an id in it, sums of exponentials.
//!
//! Plain loops over blocks of fixed size, which the compiler turns into vector code. Exponentials are f32, their sums
//! f64, the largest term is kept apart: a probability close to 1 keeps the digits of its distance from 1.

#![expect(
    clippy::float_cmp,
    reason = "ties of logits are exact, and the largest is one of them"
)]

use axmem_trainer::kernels::math::{exp, vectored};
use rayon::prelude::*;

use crate::{Error, Result};

/// Values that a loop works on side by side.
const LANES: usize = 16;
/// Values added in f32 before their sum goes to f64.
const BLOCK: usize = 16 * LANES;
/// Rows handled on the calling thread if they have no more values than this.
const SERIAL: usize = 1 << 16;

/// Applies `each` to the rows of logits that `read` shows and gives the results in order, with what `read` returns.
/// `each` is given the number of the row, from 0.
///
/// # Errors
/// Those of `read`, and a model that shows more or fewer than `rows` rows.
pub(crate) fn for_rows<R: Send, T>(
    vocab: usize,
    rows: usize,
    each: impl Fn(usize, &[f32]) -> R + Sync,
    read: impl FnOnce(&mut dyn FnMut(&[f32])) -> Result<T>,
) -> Result<(T, Vec<R>)> {
    let mut shown = 0;
    let mut results = Vec::with_capacity(rows);
    let outcome = read(&mut |logits| {
        let first = results.len();
        shown += logits.len();
        if shown > rows * vocab {
            return;
        }
        let numbered = logits.par_chunks_exact(vocab).enumerate();
        results.par_extend(
            numbered
                .with_min_len((SERIAL / vocab).max(1))
                .map(|(row, logits)| each(first + row, logits)),
        );
    })?;
    if shown != rows * vocab {
        return Err(Error::Model(format!(
            "returned {shown} logits where {rows} rows of {vocab} were asked for"
        )));
    }
    Ok((outcome, results))
}

/// The lowest id of the largest logit, or `None` where the row holds NaN or no finite value.
pub(crate) fn argmax(row: &[f32]) -> Option<u32> {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let mut unordered = [false; LANES];
    let mut blocks = row.chunks_exact(LANES);
    for block in &mut blocks {
        for lane in 0..LANES {
            let logit = block[lane];
            largest[lane] = if logit > largest[lane] {
                logit
            } else {
                largest[lane]
            };
            unordered[lane] |= logit.is_nan();
        }
    }
    let rest = blocks.remainder();
    if unordered.contains(&true) || rest.iter().any(|logit| logit.is_nan()) {
        return None;
    }
    let top = largest
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    top.is_finite().then(|| first_of(row, top)).flatten()
}

/// The lowest id with exactly this logit.
pub(crate) fn first_of(row: &[f32], logit: f32) -> Option<u32> {
    // Whole blocks first: the search for a single place is not vectorised.
    let block = row.chunks(BLOCK).position(|block| {
        let equal = block.iter().map(|&value| u32::from(value == logit));
        equal.sum::<u32>() > 0
    })?;
    let within = row[block * BLOCK..]
        .iter()
        .position(|&value| value == logit)?;
    Some((block * BLOCK + within) as u32)
}

/// Where a logit stands among others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The largest of the others; negative infinity of none.
    pub(crate) largest: f32,
    /// Others that are larger.
    pub(crate) greater: u32,
    /// Others that are equal.
    pub(crate) equal: u32,
}

/// Where `logit` stands among `others`. NaN is passed over.
pub(crate) fn standing(logit: f32, others: &[f32]) -> Standing {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let mut greater = [0_u32; LANES];
    let mut equal = [0_u32; LANES];
    let mut blocks = others.chunks_exact(LANES);
    let mut count = |lane: usize, other: f32| {
        largest[lane] = if other > largest[lane] {
            other
        } else {
            largest[lane]
        };
        greater[lane] += u32::from(other > logit);
        equal[lane] += u32::from(other == logit);
    };
    vectored(|| {
        for block in &mut blocks {
            for (lane, &other) in block.iter().enumerate() {
                count(lane, other);
            }
        }
    });
    for (lane, &other) in blocks.remainder().iter().enumerate() {
        count(lane, other);
    }
    Standing {
        largest: largest.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        greater: greater.iter().sum(),
        equal: equal.iter().sum(),
    }
}

/// `Σ e^d` and `Σ d e^d` with `d = logit - top`, where no logit is above `top`. NaN where a logit is NaN.
pub(crate) fn exponential_sums(row: &[f32], top: f32) -> (f64, f64) {
    // Below it e^d is 0; it keeps negative infinity out of the products.
    let floor = top - 100.0;
    let terms = |logit: f32| {
        let logit = if logit < floor { floor } else { logit };
        let d = logit - top;
        // What the subtraction rounded away: without it e^d has an error of |d| units in the last place.
        let back = d + top;
        let lost = (logit - back) - (top - (back - d));
        let e = exp(d);
        let e = e + e * lost;
        (e, d * e)
    };
    let (mut sum, mut weighted) = (0.0_f64, 0.0_f64);
    for block in row.chunks(BLOCK) {
        let (sums, weights) = vectored(|| {
            let mut sums = [0.0_f32; LANES];
            let mut weights = [0.0_f32; LANES];
            let mut lanes = block.chunks_exact(LANES);
            for logits in &mut lanes {
                for lane in 0..LANES {
                    let (e, de) = terms(logits[lane]);
                    sums[lane] += e;
                    weights[lane] += de;
                }
            }
            for (lane, &logit) in lanes.remainder().iter().enumerate() {
                let (e, de) = terms(logit);
                sums[lane] += e;
                weights[lane] += de;
            }
            (sums, weights)
        });
        sum += sums.iter().map(|&lane| f64::from(lane)).sum::<f64>();
        weighted += weights.iter().map(|&lane| f64::from(lane)).sum::<f64>();
    }
    (sum, weighted)
}

/// `Σ e^(logit - top)` over the `k` largest logits, or over all if there are fewer.
pub(crate) fn top_k_sum(row: &[f32], top: f32, k: usize) -> f64 {
    let (start, rest) = row.split_at(k.min(row.len()));
    let mut best = start.to_vec(); // descending
    best.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut threshold = best.last().copied().unwrap_or(f32::INFINITY);
    for block in rest.chunks(LANES) {
        // Almost no block of a long row holds one of the largest.
        let larger = block.iter().map(|&logit| u32::from(logit > threshold));
        if larger.sum::<u32>() == 0 {
            continue;
        }
        for &logit in block {
            if logit > threshold {
                best.pop();
                let place = best.partition_point(|&other| other >= logit);
                best.insert(place, logit);
                threshold = best[best.len() - 1];
            }
        }
    }
    let difference = |&logit: &f32| (f64::from(logit) - f64::from(top)).exp();
    best.iter().map(difference).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_pieces_are_numbered_and_counted() {
        let logits: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let show = |pieces: &'static [usize]| {
            let logits = &logits;
            move |visit: &mut dyn FnMut(&[f32])| {
                let mut start = 0;
                for &rows in pieces {
                    visit(&logits[start * 3..(start + rows) * 3]);
                    start += rows;
                }
                Ok(())
            }
        };
        let each = |row: usize, logits: &[f32]| (row, logits[0]);
        for pieces in [&[4][..], &[1, 2, 1], &[3, 0, 1]] {
            let ((), rows) = for_rows(3, 4, each, show(pieces)).unwrap();
            assert_eq!(rows, [(0, 0.0), (1, 3.0), (2, 6.0), (3, 9.0)]);
        }
        for pieces in [&[3][..], &[], &[2, 2]] {
            let wanted = if pieces.len() == 2 { 3 } else { 4 };
            assert!(for_rows(3, wanted, each, show(pieces)).is_err());
        }
    }

    #[test]
    fn g12_the_lowest_id_of_equal_logits_is_chosen_wherever_it_is() {
        for first in [0, 15, 16, 255, 256, 300] {
            let mut row = vec![-1.0; 320];
            row[first] = 2.0;
            row[310] = 2.0;
            assert_eq!(argmax(&row), Some(first as u32));
        }
        assert_eq!(argmax(&[f32::NEG_INFINITY; 20]), None);
        assert_eq!(argmax(&[]), None);
        for place in [0, 17] {
            let mut row = vec![1.0; 18];
            row[place] = f32::NAN;
            assert_eq!(argmax(&row), None);
        }
    }

    #[test]
    fn the_largest_are_summed_in_any_order() {
        let ascending: Vec<f32> = (0..1000).map(|i| i as f32 * 0.01).collect();
        let mut descending = ascending.clone();
        descending.reverse();
        let mixed: Vec<f32> = (0..1000).map(|i| (i * 7 % 1000) as f32 * 0.01).collect();
        let expected: f64 = ascending[960..]
            .iter()
            .map(|&logit| (f64::from(logit) - 9.99).exp())
            .sum();
        for row in [ascending, descending, mixed] {
            let sum = top_k_sum(&row, 9.99, 40);
            assert!((sum / expected - 1.0).abs() < 1e-6, "{sum}");
        }
        assert!((top_k_sum(&[0.0; 3], 0.0, 40) - 3.0).abs() < 1e-12);
    }
}
