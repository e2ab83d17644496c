//! Kernels of the engine: functions on `f32` slices, each forward beside its backward.
//!
//! They know sizes and strides, not layers, ranks or parameters. Every kernel writes into a buffer of its caller, and
//! cuts its *output* into disjoint pieces for the threads; sums inside a piece run in one order. So a result does not
//! depend on the number of threads. Shapes are checked by `assert!`: a mismatch is a mistake of the engine, not of a user.

pub mod attention;
pub mod cross_entropy;
pub mod elementwise;
pub mod embedding;
mod few_rows;
pub mod math;
pub mod matmul;
pub mod narrow;
pub mod rms_norm;
pub mod rotary;
pub mod swiglu;

/// Rows per task so that a task moves about 16 Ki elements: below that, starting a task costs more than it saves.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (16 * 1024 / width.max(1)).max(1)
}
