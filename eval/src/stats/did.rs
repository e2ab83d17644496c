//! Difference in differences: the change of treated clusters minus the change of control clusters.
//!
//! Trials are crossed with clusters and a fixed factor: the estimate is the mean over trials of the
//! difference within a trial, and both resampling and permutation move a cluster with all its trials.

use rayon::prelude::*;

use super::bootstrap::{Strata, central, sorted_replicates};
use super::paired::difference;
use super::{Interval, Random, SLACK, is_constant, mean, paired_change};

/// The side of a cluster in one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// In the bucket whose effect is asked for.
    Treated,
    /// In the 0-epoch bucket.
    Control,
    /// In another bucket.
    Neither,
}

/// One cluster: its side and its change in each trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Side by trial.
    pub sides: Vec<Side>,
    /// Change by trial, in [-1, 1].
    pub changes: Vec<f64>,
}

/// A difference in differences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Did {
    /// Mean over trials of (mean change of treated - mean change of control).
    pub estimate: f64,
    /// Percentile interval of the cluster bootstrap within strata of equal sides, or the one of
    /// recovered variances.
    pub interval: Interval,
    /// Two-sided p of the permutation test.
    pub p: f64,
    /// Whether resampling showed no spread, so that the interval is the one of recovered variances.
    pub fallback: bool,
}

/// Estimates the difference in differences over clusters, or `None` where no trial has both sides.
///
/// Interval: clusters are resampled within each stratum of equal sides. If one side changed by the
/// same amount in all its clusters (a control without hits, typically), resampling it shows no
/// spread, and the interval would take its mean for certain. Then each side gets its own interval
/// (percentile, or Wilson's where it is flat; see [`paired_change`]) and the two are combined by
/// recovered variances (Newcombe 1998; Zou and Donner 2008). That asks for sides that do not vary
/// together, and a flat side varies with nothing. The same is done if all resamples agree because
/// the trials cancel; the sides then vary together upwards, which makes the interval too wide.
///
/// Permutation: under no effect of any treatment the recorded assignment is one of the equally
/// likely ones, so patterns of sides are shuffled over clusters; p = (b + 1) / (m + 1).
pub fn did(
    units: &[Unit],
    level: f64,
    resamples: usize,
    permutations: usize,
    seed: u64,
) -> Option<Did> {
    let units: Vec<&Unit> = units
        .iter()
        .filter(|unit| unit.sides.iter().any(|side| *side != Side::Neither))
        .collect();
    let identity: Vec<usize> = (0..units.len()).collect();
    let trials = Trials::new(&units);
    let estimate = trials.statistic(&identity, &identity)?;

    let treated = side_means(&units, Side::Treated);
    let control = side_means(&units, Side::Control);
    let resampled = (!is_constant(&treated) && !is_constant(&control))
        .then(|| resample(&units, &trials, estimate, resamples, seed))
        .filter(|sorted| {
            let ends = sorted.first().zip(sorted.last());
            ends.is_some_and(|(least, most)| most - least > SLACK)
        });
    let fallback = resampled.is_none();
    let interval = if let Some(sorted) = resampled {
        central(&sorted, level)
    } else {
        let side = |values: &[f64], seed: u64| {
            let change = paired_change(values, level, resamples, seed);
            (change.estimate, change.interval)
        };
        let around = difference(side(&treated, seed), side(&control, seed ^ 1));
        let shift = estimate - (mean(&treated) - mean(&control));
        Interval {
            low: around.low + shift,
            high: around.high + shift,
        }
    };

    let extreme = (0..permutations as u64)
        .into_par_iter()
        .filter(|&stream| {
            let mut random = Random::new(seed.rotate_left(32), stream);
            trials
                .statistic(&random.shuffled(units.len()), &identity)
                .is_some_and(|value| value.abs() >= estimate.abs() - SLACK)
        })
        .count();
    Some(Did {
        estimate,
        interval,
        p: (extreme + 1) as f64 / (permutations + 1) as f64,
        fallback,
    })
}

/// Sorted estimates of resamples that draw clusters within each stratum of equal sides.
fn resample(
    units: &[&Unit],
    trials: &Trials,
    estimate: f64,
    resamples: usize,
    seed: u64,
) -> Vec<f64> {
    let strata = Strata::new(units.iter().map(|unit| &unit.sides));
    sorted_replicates(resamples, seed, |random| {
        let drawn = strata.draw(random);
        // A stratum keeps its size, so a trial with both sides keeps both.
        trials.statistic(&drawn, &drawn).unwrap_or(estimate)
    })
}

/// Sides and changes by trial, then by unit, so that a resample passes over them in order.
struct Trials(Vec<(Vec<Side>, Vec<f64>)>);

impl Trials {
    fn new(units: &[&Unit]) -> Self {
        let trials = units.first().map_or(0, |unit| unit.sides.len());
        let of_trial = |trial: usize| {
            units
                .iter()
                .map(move |unit| (unit.sides[trial], unit.changes[trial]))
        };
        Self((0..trials).map(|trial| of_trial(trial).unzip()).collect())
    }

    /// The estimate when entry i takes its sides from unit `sides[i]` and its changes from `changes[i]`.
    fn statistic(&self, sides: &[usize], changes: &[usize]) -> Option<f64> {
        let (mut total, mut counted) = (0.0, 0_u32);
        for (side_of, change_of) in &self.0 {
            let (mut sums, mut counts) = ([0.0; 3], [0_u32; 3]);
            for (&side, &change) in sides.iter().zip(changes) {
                let side = side_of[side] as usize;
                sums[side] += change_of[change];
                counts[side] += 1;
            }
            let mean = |side: Side| {
                let count = counts[side as usize];
                (count > 0).then(|| sums[side as usize] / f64::from(count))
            };
            if let (Some(treated), Some(control)) = (mean(Side::Treated), mean(Side::Control)) {
                total += treated - control;
                counted += 1;
            }
        }
        (counted > 0).then(|| total / f64::from(counted))
    }
}

fn side_means(units: &[&Unit], wanted: Side) -> Vec<f64> {
    units
        .iter()
        .filter_map(|unit| {
            let changes: Vec<f64> = unit
                .sides
                .iter()
                .zip(&unit.changes)
                .filter(|(side, _)| **side == wanted)
                .map(|(_, change)| *change)
                .collect();
            (!changes.is_empty()).then(|| mean(&changes))
        })
        .collect()
}
