//! What rises or falls with the dose: the trend test of Cochran and Armitage, and the slope of a change with a permutation test
//! over the doses that were assigned.

use rayon::prelude::*;
use statrs::function::erf::erfc;

use super::bootstrap::{Strata, central, sorted_replicates};
use super::{Interval, Random, SLACK, mean};

/// Units at one dose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dose {
    /// The dose, such as a number of exposures; any unit, as only its differences count.
    pub score: f64,
    /// Units with a hit.
    pub hits: u64,
    /// All units.
    pub trials: u64,
}

/// The result of [`cochran_armitage`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Standard normal under no trend; positive where the rate rises.
    pub z: f64,
    /// Two-sided p.
    pub p: f64,
}

/// The trend test of Cochran (1954) and Armitage (1955) on independent units.
///
/// With N units, p their rate of hits and x̄ their mean dose,
///
/// z = Σ hits (x - x̄) / sqrt(p (1 - p) Σ trials (x - x̄)²).
///
/// No hit, no miss, one dose or no unit at all shows no trend: z = 0 and p = 1. The test is
/// asymptotic and takes units for independent; it describes, and a permutation decides.
pub fn cochran_armitage(doses: &[Dose]) -> Trend {
    let sum = |of: &dyn Fn(&Dose) -> f64| doses.iter().map(of).sum::<f64>();
    let trials = sum(&|dose| dose.trials as f64);
    let rate = sum(&|dose| dose.hits as f64) / trials;
    let centre = sum(&|dose| dose.trials as f64 * dose.score) / trials;
    let covariance = sum(&|dose| dose.hits as f64 * (dose.score - centre));
    let spread = sum(&|dose| dose.trials as f64 * (dose.score - centre).powi(2));
    let variance = rate * (1.0 - rate) * spread;
    // An empty table makes it NaN.
    if variance.is_nan() || variance <= 0.0 {
        return Trend { z: 0.0, p: 1.0 };
    }
    let z = covariance / variance.sqrt();
    Trend {
        z,
        p: erfc(z.abs() / std::f64::consts::SQRT_2),
    }
}

/// One cluster: its dose and its change in each trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Dosed {
    /// Dose by trial, such as ln(1 + exposures).
    pub doses: Vec<f64>,
    /// Change by trial.
    pub changes: Vec<f64>,
}

/// How much more a cluster changes for one more unit of dose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slope {
    /// Mean over trials of the least-squares slope of the change on the dose.
    pub estimate: f64,
    /// Percentile interval of the cluster bootstrap within strata of equal doses; none where resamples do not differ.
    pub interval: Option<Interval>,
    /// Two-sided p of the permutation test.
    pub p: f64,
}

/// The slope of changes on doses over clusters, or `None` where no trial has two doses.
///
/// Permutation as in [`did`](super::did): the recorded doses are one of the equally likely assignments of them to clusters, so
/// patterns of doses are shuffled over clusters; p = (b + 1) / (m + 1).
pub fn slope(
    units: &[Dosed],
    level: f64,
    resamples: usize,
    permutations: usize,
    seed: u64,
) -> Option<Slope> {
    let identity: Vec<usize> = (0..units.len()).collect();
    let estimate = statistic(units, &identity, &identity)?;
    let bits = |unit: &Dosed| unit.doses.iter().map(|dose| dose.to_bits()).collect();
    let strata = Strata::new(
        units
            .iter()
            .map(bits)
            .collect::<Vec<Vec<u64>>>()
            .into_iter(),
    );
    let sorted = sorted_replicates(resamples, seed, |random| {
        let drawn = strata.draw(random);
        statistic(units, &drawn, &drawn).unwrap_or(estimate)
    });
    let spread = sorted.last().zip(sorted.first());
    let extreme = (0..permutations as u64)
        .into_par_iter()
        .filter(|&stream| {
            let mut random = Random::new(seed.rotate_left(32), stream);
            statistic(units, &random.shuffled(units.len()), &identity)
                .is_some_and(|value| value.abs() >= estimate.abs() - SLACK)
        })
        .count();
    Some(Slope {
        estimate,
        interval: spread
            .is_some_and(|(most, least)| most - least > SLACK)
            .then(|| central(&sorted, level)),
        p: (extreme + 1) as f64 / (permutations + 1) as f64,
    })
}

/// The estimate when entry i takes its doses from unit `doses[i]` and its changes from `changes[i]`.
fn statistic(units: &[Dosed], doses: &[usize], changes: &[usize]) -> Option<f64> {
    let trials = units.first()?.doses.len();
    let slopes: Vec<f64> = (0..trials)
        .filter_map(|trial| {
            let pairs = || {
                let places = doses.iter().zip(changes);
                places.map(|(&dose, &change)| {
                    (units[dose].doses[trial], units[change].changes[trial])
                })
            };
            let centre = pairs().map(|(dose, _)| dose).sum::<f64>() / units.len() as f64;
            let spread: f64 = pairs().map(|(dose, _)| (dose - centre).powi(2)).sum();
            let covariance: f64 = pairs().map(|(dose, change)| (dose - centre) * change).sum();
            (spread > SLACK).then(|| covariance / spread)
        })
        .collect();
    (!slopes.is_empty()).then(|| mean(&slopes))
}
