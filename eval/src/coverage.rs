//! How often the intervals of a rate cover it, and how often the tests reject a true null
//! hypothesis, by simulation.
//!
//! A cluster has a number of windows whose hits are correlated as those of a beta-binomial variable
//! are. Draws come from sums, products and quotients of a counter-based generator alone, so that
//! they are the same on every machine. `examples/coverage.rs` makes the tables of `COVERAGE.md`.

mod measured;

use rayon::prelude::*;

use crate::stats::{
    Dose, Interval, Random, Side, Unit, clopper_pearson, cochran_armitage, did, korn_graubard,
    mcnemar, paired_change, percentile, sign_flip, student_t_quantile, wilson,
};

pub use measured::bootstrap_deviation;

/// Level of every interval that is simulated; the tests are at 1 minus it.
pub const LEVEL: f64 = 0.95;

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    /// Clusters, of each side where there are two.
    pub clusters: usize,
    /// Windows of a cluster.
    pub windows: usize,
    /// Correlation of two windows of one cluster, in [0, 1).
    pub correlation: f64,
    /// True rate of hits.
    pub rate: f64,
}

/// Shares of draws whose interval covers the true rate; none where a method does not apply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Covered {
    /// Wilson's, of one window a cluster.
    pub wilson: Option<f64>,
    /// Clopper and Pearson's, of one window a cluster.
    pub clopper_pearson: Option<f64>,
    /// Korn and Graubard's as published, of several windows a cluster.
    pub korn_graubard_published: Option<f64>,
    /// Korn and Graubard's as [`korn_graubard`] has it.
    pub korn_graubard: Option<f64>,
    /// The percentile bootstrap over clusters, Wilson's on their number where they do not differ.
    pub bootstrap: f64,
    /// Share of draws in which they do not differ.
    pub flat: f64,
}

/// Shares of draws in which a test rejects at 5 % although nothing has an effect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rejected {
    /// The exact test of `McNemar`; none with several windows.
    pub mcnemar: Option<f64>,
    /// Its mid-p variant.
    pub mid_p: Option<f64>,
    /// Sign flips of the cluster changes.
    pub sign_flip: f64,
    /// The permutation test of the difference in differences.
    pub permutation: f64,
    /// Cochran and Armitage's on four doses of a quarter of the clusters each; none with several
    /// windows.
    pub cochran_armitage: Option<f64>,
}

/// Shares of draws whose interval of a difference covers it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Differenced {
    /// The paired change of one side: the percentile bootstrap, or recovered variances where clusters do not differ.
    pub paired: f64,
    /// The change of one side minus that of the other: the same within both sides.
    pub did: f64,
}

impl Design {
    /// Cumulated probabilities of 0, 1, ... hits among the windows of a cluster.
    ///
    /// With θ = correlation / (1 - correlation), the beta-binomial probability of j hits among m is
    /// C(m, j) Π(i < j) (p + iθ) Π(i < m - j) (1 - p + iθ) / Π(i < m) (1 + iθ).
    fn distribution(&self) -> Vec<f64> {
        let theta = self.correlation / (1.0 - self.correlation);
        let rising = |from: f64, factors: usize| {
            (0..factors).fold(1.0, |p, i| p * (from + i as f64 * theta))
        };
        let m = self.windows;
        let (mut ways, mut sum) = (1.0, 0.0);
        (0..=m)
            .map(|hits| {
                sum += ways * rising(self.rate, hits) * rising(1.0 - self.rate, m - hits)
                    / rising(1.0, m);
                ways = ways * (m - hits) as f64 / (hits + 1) as f64;
                sum
            })
            .collect()
    }

    /// Hits of one cluster.
    fn hits(distribution: &[f64], random: &mut Random) -> usize {
        let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let hits = distribution.partition_point(|&sum| sum <= uniform);
        // The last sum may be rounded to below 1.
        hits.min(distribution.len() - 1)
    }

    fn mean(&self, distribution: &[f64], random: &mut Random) -> f64 {
        Self::hits(distribution, random) as f64 / self.windows as f64
    }

    /// Measures coverage on `draws` samples.
    pub fn covered(&self, draws: usize, resamples: usize, seed: u64) -> Covered {
        let distribution = self.distribution();
        let once = self.windows == 1;
        let documents = self.clusters * self.windows;
        let outcomes: Vec<[bool; 6]> = (0..draws as u64)
            .into_par_iter()
            .map(|draw| {
                let mut random = Random::new(seed, draw);
                let means: Vec<f64> = (0..self.clusters)
                    .map(|_| self.mean(&distribution, &mut random))
                    .collect();
                let (hits, clusters) = (means.iter().sum::<f64>(), means.len() as f64);
                let covers =
                    |interval: Interval| interval.low <= self.rate && self.rate <= interval.high;
                let bootstrap = percentile(&means, LEVEL, resamples, random.next_u64());
                let stand_in = || wilson(hits, clusters, LEVEL);
                [
                    once && covers(wilson(hits, clusters, LEVEL)),
                    once && covers(clopper_pearson(hits, clusters, LEVEL)),
                    !once && covers(published(&means, documents)),
                    !once && covers(korn_graubard(&means, documents, LEVEL)),
                    covers(bootstrap.unwrap_or_else(stand_in)),
                    bootstrap.is_none(),
                ]
            })
            .collect();
        let share = |place: usize| share(&outcomes, place);
        Covered {
            wilson: once.then(|| share(0)),
            clopper_pearson: once.then(|| share(1)),
            korn_graubard_published: (!once).then(|| share(2)),
            korn_graubard: (!once).then(|| share(3)),
            bootstrap: share(4),
            flat: share(5),
        }
    }

    /// Measures coverage of differences on `draws` samples in which a cluster gains the share of its windows that is drawn at
    /// [`Design::rate`], and one of the control at `control`; nothing is lost.
    pub fn differenced(
        &self,
        control: f64,
        draws: usize,
        resamples: usize,
        seed: u64,
    ) -> Differenced {
        let other = Self {
            rate: control,
            ..*self
        };
        let distributions = [self.distribution(), other.distribution()];
        let outcomes: Vec<[bool; 2]> = (0..draws as u64)
            .into_par_iter()
            .map(|draw| {
                let mut random = Random::new(seed, draw);
                let [treated, control] = distributions.each_ref().map(|distribution| {
                    let gains = (0..self.clusters).map(|_| self.mean(distribution, &mut random));
                    gains.collect::<Vec<f64>>()
                });
                let seed = random.next_u64();
                let covers = |interval: Interval, truth: f64| {
                    interval.low <= truth && truth <= interval.high
                };
                let change = paired_change(&treated, LEVEL, resamples, seed);
                // The interval alone, so no permutation.
                let difference = did(&units(&treated, &control), LEVEL, resamples, 0, seed);
                [
                    covers(change.interval, self.rate),
                    difference.is_some_and(|found| covers(found.interval, self.rate - other.rate)),
                ]
            })
            .collect();
        Differenced {
            paired: share(&outcomes, 0),
            did: share(&outcomes, 1),
        }
    }

    /// Measures rejections on `draws` samples in which as much is lost as gained, both sides alike:
    /// a cluster changes in a share of its windows that is drawn at [`Design::rate`], up or down
    /// with equal chances.
    pub fn rejected(&self, draws: usize, permutations: usize, seed: u64) -> Rejected {
        let distribution = self.distribution();
        let once = self.windows == 1;
        let outcomes: Vec<[bool; 5]> = (0..draws as u64)
            .into_par_iter()
            .map(|draw| {
                let mut random = Random::new(seed, draw);
                let mut side = || -> Vec<f64> {
                    let mut change = |_| {
                        let up = random.next_u64() >> 63 == 0;
                        let size = self.mean(&distribution, &mut random);
                        if up { size } else { -size }
                    };
                    (0..self.clusters).map(&mut change).collect()
                };
                let (treated, control) = (side(), side());
                let count = |sign: f64| {
                    let changed = treated.iter().filter(|change| **change * sign > 0.0);
                    changed.count() as u64
                };
                let paired = mcnemar(count(1.0), count(-1.0));
                let seed = random.next_u64();
                let difference = did(&units(&treated, &control), LEVEL, 1, permutations, seed);
                let quarter = treated.len().div_ceil(4);
                let doses: Vec<Dose> = [0.0, 1.0, 4.0, 6.0]
                    .into_iter()
                    .zip(treated.chunks(quarter))
                    .map(|(score, changes)| Dose {
                        score,
                        hits: changes.iter().filter(|change| **change != 0.0).count() as u64,
                        trials: changes.len() as u64,
                    })
                    .collect();
                let rejects = |p: f64| p <= 1.0 - LEVEL + 1e-12;
                [
                    once && rejects(paired.exact),
                    once && rejects(paired.mid_p),
                    rejects(sign_flip(&treated, permutations, seed)),
                    difference.is_some_and(|difference| rejects(difference.p)),
                    once && rejects(cochran_armitage(&doses).p),
                ]
            })
            .collect();
        let share = |place: usize| share(&outcomes, place);
        Rejected {
            mcnemar: once.then(|| share(0)),
            mid_p: once.then(|| share(1)),
            sign_flip: share(2),
            permutation: share(3),
            cochran_armitage: once.then(|| share(4)),
        }
    }
}

/// Clusters of both sides in one trial, with their changes.
fn units(treated: &[f64], control: &[f64]) -> Vec<Unit> {
    let unit = |side: Side| {
        move |change: &f64| Unit {
            sides: vec![side],
            changes: vec![*change],
        }
    };
    let treated = treated.iter().map(unit(Side::Treated));
    treated
        .chain(control.iter().map(unit(Side::Control)))
        .collect()
}

fn share<const N: usize>(outcomes: &[[bool; N]], place: usize) -> f64 {
    let count = outcomes.iter().filter(|outcome| outcome[place]).count();
    count as f64 / outcomes.len() as f64
}

/// The interval of Korn and Graubard as published, which [`korn_graubard`] changes; the number of
/// clusters where they do not differ.
fn published(means: &[f64], documents: usize) -> Interval {
    let (k, n) = (means.len() as f64, documents as f64);
    let p = means.iter().sum::<f64>() / k;
    let spread: f64 = means.iter().map(|value| (value - p).powi(2)).sum();
    let effective = if spread < 1e-12 {
        k
    } else {
        let tail = 0.5 + LEVEL / 2.0;
        let ratio = student_t_quantile(tail, n - 1.0) / student_t_quantile(tail, k - 1.0);
        (p * (1.0 - p) * k * (k - 1.0) / spread * ratio * ratio).min(n)
    };
    clopper_pearson(p * effective, effective, LEVEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_the_rate_and_the_correlation_that_were_asked_for() {
        for (rate, correlation) in [(0.3, 0.0), (0.3, 0.3), (0.005, 0.3), (0.0, 0.3), (1.0, 0.0)] {
            let design = Design {
                clusters: 1,
                windows: 5,
                correlation,
                rate,
            };
            let sums = design.distribution();
            let probability =
                |hits: usize| sums[hits] - if hits == 0 { 0.0 } else { sums[hits - 1] };
            let moment = |power: i32| -> f64 {
                let hits = 0..=5_usize;
                hits.map(|hits| (hits as f64).powi(power) * probability(hits))
                    .sum()
            };
            assert!((sums[5] - 1.0).abs() < 1e-12);
            assert!((moment(1) - 5.0 * rate).abs() < 1e-12);
            let variance = 5.0 * rate * (1.0 - rate) * (1.0 + 4.0 * correlation);
            assert!((moment(2) - moment(1).powi(2) - variance).abs() < 1e-12);
        }
    }
}
