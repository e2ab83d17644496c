//! Cross-entropy of one chunk of rows whose vocabulary may be split over ranks.
//!
//! `loss = ln Σ e^(l - max) + max - l[target]`. The steps are apart, so that all-reduces fit between them: logits over Y
//! before [`row_max`], maxima over X after it, sums and target logits over X after [`exp_sums`]. `width` is the local
//! vocabulary, `first` its first id.

use rayon::prelude::*;

use super::math::{self, vectored};
use super::rows_per_task;

/// Sets the columns from `valid` on (padding of the vocabulary) to negative infinity.
pub fn mask_padding(logits: &mut [f32], width: usize, valid: usize) {
    if valid < width {
        for row in logits.chunks_exact_mut(width) {
            row[valid..].fill(f32::NEG_INFINITY);
        }
    }
}

/// Largest logit of each row.
pub fn row_max(maxima: &mut [f32], logits: &[f32], width: usize) {
    assert_eq!(logits.len(), maxima.len() * width);
    maxima
        .par_iter_mut()
        .zip(logits.par_chunks_exact(width))
        .with_min_len(rows_per_task(width))
        .for_each(|(maximum, logits)| *maximum = vectored(|| math::max(logits)));
}

/// Logit of each row's target, or 0 where another rank has it.
pub fn target_logits(out: &mut [f32], logits: &[f32], targets: &[u32], first: usize, width: usize) {
    assert_eq!(logits.len(), targets.len() * width);
    for ((out, logits), &target) in out.iter_mut().zip(logits.chunks_exact(width)).zip(targets) {
        *out = local(target, first, width).map_or(0.0, |index| logits[index]);
    }
}

/// Replaces each logit by `e^(logit - maximum)` and gives the sum of each row.
pub fn exp_sums(sums: &mut [f32], logits: &mut [f32], maxima: &[f32], width: usize) {
    assert_eq!(logits.len(), maxima.len() * width);
    (sums, logits.par_chunks_exact_mut(width), maxima)
        .into_par_iter()
        .with_min_len(rows_per_task(width))
        .for_each(|(sum, logits, &maximum)| {
            *sum = vectored(|| math::exp_in_place(logits, maximum));
        });
}

/// Sum over the rows of their losses, in f64. All values are global by now.
pub fn loss_sum(sums: &[f32], maxima: &[f32], target_logits: &[f32]) -> f64 {
    sums.iter()
        .zip(maxima)
        .zip(target_logits)
        .map(|((&sum, &maximum), &target)| {
            f64::from(sum).ln() + (f64::from(maximum) - f64::from(target))
        })
        .sum()
}

/// Replaces `e^(logit - maximum)` by the gradient of the logit, `scale · (softmax - [is target])`.
pub fn backward(
    exponentials: &mut [f32],
    sums: &[f32],
    targets: &[u32],
    first: usize,
    width: usize,
    scale: f32,
) {
    assert_eq!(exponentials.len(), targets.len() * width);
    (exponentials.par_chunks_exact_mut(width), sums, targets)
        .into_par_iter()
        .with_min_len(rows_per_task(width))
        .for_each(|(row, &sum, &target)| {
            let factor = scale / sum;
            vectored(|| {
                for value in row.iter_mut() {
                    *value *= factor;
                }
            });
            if let Some(index) = local(target, first, width) {
                row[index] -= scale;
            }
        });
}

fn local(id: u32, first: usize, width: usize) -> Option<usize> {
    (id as usize)
        .checked_sub(first)
        .filter(|&index| index < width)
}
