//! Sums of buffers: residual connections, biases and their gradients.

use rayon::prelude::*;

use super::rows_per_task;

/// `y += x`
pub fn add(y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len());
    let size = rows_per_task(1);
    y.par_chunks_mut(size)
        .zip(x.par_chunks(size))
        .for_each(|(y, x)| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y += x;
            }
        });
}

/// Adds `bias` `[width]` to each row of `y` `[rows, width]`.
pub fn add_bias(y: &mut [f32], bias: &[f32]) {
    let width = bias.len();
    assert!(y.len().is_multiple_of(width));
    y.par_chunks_exact_mut(width)
        .with_min_len(rows_per_task(width))
        .for_each(|row| {
            for (y, &bias) in row.iter_mut().zip(bias) {
                *y += bias;
            }
        });
}

/// `dbias[j] += Σ_rows dy[row, j]`, rows in order.
pub fn bias_gradient(dbias: &mut [f32], dy: &[f32]) {
    for row in dy.chunks_exact(dbias.len()) {
        for (dbias, &dy) in dbias.iter_mut().zip(row) {
            *dbias += dy;
        }
    }
}
