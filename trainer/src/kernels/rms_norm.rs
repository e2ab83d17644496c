//! `RMSNorm`: `y = x · r · g` with `r = 1/√(Σx²/H + ε)` per row.
//!
//! Split in statistics and application, so that the sums can be all-reduced over Y between them when a rank holds only
//! part of a row. `width` is the local part of the row, `hidden` its global size H.

use rayon::prelude::*;

use super::math::{self, vectored};
use super::rows_per_task;

/// Columns per task of [`gain_gradient`]: four cache lines, so that tasks do not share lines.
const COLUMNS: usize = 64;

/// `sums[row] = Σ x²` over the local part of each row of `x` `[rows, width]`.
pub fn sum_of_squares(sums: &mut [f32], x: &[f32], width: usize) {
    assert_eq!(x.len(), sums.len() * width);
    sums.par_iter_mut()
        .zip(x.par_chunks_exact(width))
        .with_min_len(rows_per_task(width))
        .for_each(|(sum, x)| *sum = vectored(|| math::dot(x, x)));
}

/// Turns the global sums of squares into `r`, in place.
pub fn inverse_rms(sums: &mut [f32], hidden: usize, eps: f64) {
    for sum in sums {
        *sum = (1.0 / (f64::from(*sum) / hidden as f64 + eps).sqrt()) as f32;
    }
}

/// `y = x · r · g` for `x` `[rows, width]`, `gain` `[width]`, `inverse_rms` `[rows]`.
pub fn forward(y: &mut [f32], x: &[f32], gain: &[f32], inverse_rms: &[f32]) {
    let width = gain.len();
    assert_eq!(x.len(), inverse_rms.len() * width);
    assert_eq!(y.len(), x.len());
    (
        y.par_chunks_exact_mut(width),
        x.par_chunks_exact(width),
        inverse_rms,
    )
        .into_par_iter()
        .with_min_len(rows_per_task(width))
        .for_each(|(y, x, &r)| {
            vectored(|| {
                for ((y, &x), &gain) in y.iter_mut().zip(x).zip(gain) {
                    *y = x * r * gain;
                }
            });
        });
}

/// `sums[row] = Σ dy·g·x` over the local part of each row.
pub fn backward_sums(sums: &mut [f32], dy: &[f32], x: &[f32], gain: &[f32]) {
    let width = gain.len();
    assert_eq!(x.len(), sums.len() * width);
    assert_eq!(dy.len(), x.len());
    (sums, dy.par_chunks_exact(width), x.par_chunks_exact(width))
        .into_par_iter()
        .with_min_len(rows_per_task(width))
        .for_each(|(sum, dy, x)| *sum = vectored(|| math::dot3(dy, gain, x)));
}

/// `dx += r·g·dy - x · r³/H · Σ dy·g·x`; `sums` are the global sums of [`backward_sums`].
///
/// Added, because the residual stream around a norm already carries a gradient.
pub fn backward(
    dx: &mut [f32],
    dy: &[f32],
    x: &[f32],
    gain: &[f32],
    inverse_rms: &[f32],
    sums: &[f32],
    hidden: usize,
) {
    let width = gain.len();
    assert_eq!(x.len(), sums.len() * width);
    assert_eq!(dy.len(), x.len());
    assert_eq!(dx.len(), x.len());
    assert_eq!(inverse_rms.len(), sums.len());
    (
        dx.par_chunks_exact_mut(width),
        dy.par_chunks_exact(width),
        x.par_chunks_exact(width),
        inverse_rms,
        sums,
    )
        .into_par_iter()
        .with_min_len(rows_per_task(width))
        .for_each(|(dx, dy, x, &r, &sum)| {
            let pull = r * r * r * sum / hidden as f32;
            vectored(|| {
                for (((dx, &dy), &x), &gain) in dx.iter_mut().zip(dy).zip(x).zip(gain) {
                    *dx += r * gain * dy - x * pull;
                }
            });
        });
}

/// `dgain[j] += Σ_rows dy·x·r`, rows in order.
pub fn gain_gradient(dgain: &mut [f32], dy: &[f32], x: &[f32], inverse_rms: &[f32]) {
    let width = dgain.len();
    assert_eq!(x.len(), inverse_rms.len() * width);
    assert_eq!(dy.len(), x.len());
    dgain
        .par_chunks_mut(COLUMNS)
        .enumerate()
        .for_each(|(block, dgain)| {
            let first = block * COLUMNS;
            for (row, &r) in inverse_rms.iter().enumerate() {
                let start = row * width + first;
                let dy = &dy[start..start + dgain.len()];
                let x = &x[start..start + dgain.len()];
                for ((dgain, &dy), &x) in dgain.iter_mut().zip(dy).zip(x) {
                    *dgain += dy * x * r;
                }
            }
        });
}
