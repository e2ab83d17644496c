//! The global norm of the gradient and the factor that clips it. Each element of the model counts once, whatever the
//! grid: replicas are left out, and padding is zero.

use rayon::prelude::*;

use crate::error::Result;
use crate::grid::Axis;
use crate::param::Param;
use crate::rank::Rank;
use crate::reduction::owned;
use crate::schedule::Schedule;

/// Elements per partial sum; fixed, so that the sum does not depend on the number of threads.
const CHUNK: usize = 1 << 14;

/// Sum of squares in f64, by chunks of fixed size added in order.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    let partial: Vec<f64> = values
        .par_chunks(CHUNK)
        .map(|chunk| chunk.iter().map(|&value| f64::from(value).powi(2)).sum())
        .collect();
    partial.iter().sum()
}

/// The Euclidean norm of the whole model's gradient; the same number on every rank. Collective.
///
/// With a sharded optimizer each rank of Data knows the sums of its own share only; otherwise all know all, and the first
/// counts.
pub fn global_norm(rank: &Rank, params: &[Param], schedule: &Schedule) -> Result<f64> {
    let counts = |param: &&Param| {
        param.placement.counts(rank.coord) && (schedule.shard_optimizer || rank.coord.data == 0)
    };
    let owned = params
        .iter()
        .filter(counts)
        .map(|param| {
            let own = owned(param.gradient.len(), rank, schedule);
            sum_of_squares(&param.gradient[own])
        })
        .sum();
    let mut total: f64 = owned;
    for axis in [Axis::X, Axis::Y, Axis::Z, Axis::Data] {
        total = rank.group(axis).sum_f64(total)?;
    }
    Ok(total.sqrt())
}

/// The factor min(1, `limit` / (`norm` + 1e-6)) by which gradients are multiplied; 1 without a limit.
pub fn clip_factor(norm: f64, limit: Option<f64>) -> f32 {
    limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0) as f32)
}
