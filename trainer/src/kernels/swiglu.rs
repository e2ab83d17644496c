//! `SwiGLU`: `y = silu(gate) · up` with `silu(a) = a · σ(a)`.

use rayon::prelude::*;

use super::math::{exp, vectored};
use super::rows_per_task;

/// `y = silu(gate) · up`, elementwise.
pub fn forward(y: &mut [f32], gate: &[f32], up: &[f32]) {
    assert_eq!(y.len(), gate.len());
    assert_eq!(y.len(), up.len());
    let size = rows_per_task(1);
    (
        y.par_chunks_mut(size),
        gate.par_chunks(size),
        up.par_chunks(size),
    )
        .into_par_iter()
        .for_each(|(y, gate, up)| {
            vectored(|| {
                for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
                    *y = gate / (1.0 + exp(-gate)) * up;
                }
            });
        });
}

/// Replaces `gate` and `up` by their gradients: `dgate = dy·up·σ·(1 + gate·(1 - σ))`, `dup = dy·silu(gate)`.
///
/// In place, because the backward is the last reader of both.
pub fn backward(gate: &mut [f32], up: &mut [f32], dy: &[f32]) {
    assert_eq!(dy.len(), gate.len());
    assert_eq!(dy.len(), up.len());
    let size = rows_per_task(1);
    (
        gate.par_chunks_mut(size),
        up.par_chunks_mut(size),
        dy.par_chunks(size),
    )
        .into_par_iter()
        .for_each(|(gate, up, dy)| {
            vectored(|| {
                for ((gate, up), &dy) in gate.iter_mut().zip(up).zip(dy) {
                    let sigmoid = 1.0 / (1.0 + exp(-*gate));
                    let silu = *gate * sigmoid;
                    let dgate = dy * *up * (sigmoid + silu * (1.0 - sigmoid));
                    *up = dy * silu;
                    *gate = dgate;
                }
            });
        });
}
