//! Bootstrap intervals of a mean over clusters: percentile, and `BCa` where it is defined.

use std::collections::BTreeMap;

use rayon::prelude::*;
use statrs::function::erf::erfc;

use super::proportion::normal_quantile;
use super::{Interval, Random, SLACK, is_constant, mean, wilson};

/// The quantile of at least one sorted value, with linear interpolation between order statistics.
pub fn quantile(sorted: &[f64], probability: f64) -> f64 {
    let place = probability.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

/// Sorted replicates of the mean of `values`; replicate i draws from stream i of `seed`.
fn replicates(values: &[f64], resamples: usize, seed: u64) -> Vec<f64> {
    sorted_replicates(resamples, seed, |random| {
        let sum: f64 = (0..values.len())
            .map(|_| values[random.below(values.len())])
            .sum();
        sum / values.len() as f64
    })
}

/// Sorted values of a statistic that draws its own resample from the stream it is given.
pub(crate) fn sorted_replicates(
    resamples: usize,
    seed: u64,
    statistic: impl Fn(&mut Random) -> f64 + Sync,
) -> Vec<f64> {
    let mut replicates: Vec<f64> = (0..resamples as u64)
        .into_par_iter()
        .map(|stream| statistic(&mut Random::new(seed, stream)))
        .collect();
    replicates.sort_by(f64::total_cmp);
    replicates
}

/// Units by what was assigned to them, which a resample leaves as it is.
pub(crate) struct Strata(Vec<Vec<usize>>);

impl Strata {
    /// Groups units by their assignment.
    pub(crate) fn new<K: Ord>(assignments: impl Iterator<Item = K>) -> Self {
        let mut strata: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        for (index, assignment) in assignments.enumerate() {
            strata.entry(assignment).or_default().push(index);
        }
        Self(strata.into_values().collect())
    }

    /// As many units of each stratum as it has, with replacement.
    pub(crate) fn draw(&self, random: &mut Random) -> Vec<usize> {
        let mut drawn = Vec::new();
        for members in &self.0 {
            drawn.extend(members.iter().map(|_| members[random.below(members.len())]));
        }
        drawn
    }
}

/// The central share `level` of sorted replicates.
pub(crate) fn central(sorted: &[f64], level: f64) -> Interval {
    let tail = (1.0 - level) / 2.0;
    Interval {
        low: quantile(sorted, tail),
        high: quantile(sorted, 1.0 - tail),
    }
}

/// The percentile interval (Efron 1979) of the mean of cluster values, or `None` where fewer than
/// two distinct values leave nothing to resample: an interval of width 0 would claim certainty.
pub fn percentile(values: &[f64], level: f64, resamples: usize, seed: u64) -> Option<Interval> {
    if is_constant(values) || resamples == 0 {
        return None;
    }
    Some(central(&replicates(values, resamples, seed), level))
}

/// A `BCa` interval of a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BcaInterval {
    /// The interval.
    pub interval: Interval,
    /// Whether it is Wilson's on the number of clusters, because `BCa` is not defined here.
    pub fallback: bool,
}

/// The bias-corrected and accelerated interval (Efron 1987) of the mean of cluster rates in [0, 1],
/// acceleration by the jackknife. Undefined (fewer than two distinct values, every replicate on one
/// side of the estimate, or a correction past infinity), it falls back to Wilson's interval on the
/// clusters and says so.
pub fn bca(values: &[f64], level: f64, resamples: usize, seed: u64) -> BcaInterval {
    let clusters = values.len() as f64;
    let hits: f64 = values.iter().sum();
    let fallback = BcaInterval {
        interval: wilson(hits, clusters, level),
        fallback: true,
    };
    if is_constant(values) || resamples == 0 {
        return fallback;
    }
    let estimate = mean(values);
    let sorted = replicates(values, resamples, seed);
    // Sums in another order differ in the last bits, so equality has a width.
    let below = sorted.partition_point(|&value| value < estimate - SLACK);
    let not_above = sorted.partition_point(|&value| value <= estimate + SLACK);
    let share = f64::midpoint(below as f64, not_above as f64) / resamples as f64;
    let bias = normal_quantile(share);
    // Jackknife of a mean: leaving i out moves it by (mean - value) / (k - 1), a common factor.
    let (squares, cubes) = values.iter().fold((0.0, 0.0), |(squares, cubes), value| {
        let influence = value - estimate;
        (squares + influence.powi(2), cubes + influence.powi(3))
    });
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    let tail = (1.0 - level) / 2.0;
    let end = |probability: f64| {
        let z = bias + normal_quantile(probability);
        let stretch = 1.0 - acceleration * z;
        // At or below 0 the corrected quantile has passed infinity.
        (z.is_finite() && stretch > 0.0)
            .then(|| quantile(&sorted, normal_probability(bias + z / stretch)))
    };
    match (end(tail), end(1.0 - tail)) {
        (Some(low), Some(high)) => BcaInterval {
            interval: Interval { low, high },
            fallback: false,
        },
        _ => fallback,
    }
}

fn normal_probability(z: f64) -> f64 {
    0.5 * erfc(-z / std::f64::consts::SQRT_2)
}
