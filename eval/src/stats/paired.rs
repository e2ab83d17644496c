//! The same documents measured twice: `McNemar`'s test, the sign-flip test, the difference of rates.

use rayon::prelude::*;
use statrs::distribution::{Binomial, DiscreteCDF as _};
use statrs::function::gamma::ln_gamma;

use super::bootstrap::percentile;
use super::proportion::normal_quantile;
use super::{Interval, Random, SLACK, mean, wilson};

/// Two-sided p-values of `McNemar`'s test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct McNemar {
    /// The exact conditional test; 1 where nothing changed.
    pub exact: f64,
    /// Its mid-p variant (Fagerland, Lydersen and Laake 2013).
    pub mid_p: f64,
}

/// `McNemar`'s test of `gained` against `lost` documents: under no effect, half of the changes go
/// either way.
pub fn mcnemar(gained: u64, lost: u64) -> McNemar {
    let (changed, fewer) = (gained + lost, gained.min(lost));
    if changed == 0 {
        return McNemar {
            exact: 1.0,
            mid_p: 1.0,
        };
    }
    let at = |k: u64| {
        let (n, k) = (changed as f64, k as f64);
        (ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0) - n * std::f64::consts::LN_2)
            .exp()
    };
    let tail: f64 = (0..=fewer).map(at).sum();
    McNemar {
        exact: (2.0 * tail).min(1.0),
        mid_p: (2.0 * tail - at(fewer)).min(1.0),
    }
}

/// The sign-flip test of a mean change over clusters. Clusters that did not change do not matter; where the 2^n patterns of
/// the n others are at most `permutations`, all are counted and p is exact, else p = (b + 1) / (m + 1), b of m random patterns
/// giving a mean at least as far from 0.
pub fn sign_flip(changes: &[f64], permutations: usize, seed: u64) -> f64 {
    let changes: Vec<f64> = changes
        .iter()
        .copied()
        .filter(|value| *value != 0.0)
        .collect();
    let observed = changes.iter().sum::<f64>().abs();
    let is_extreme = |sum: f64| sum.abs() >= observed - SLACK;
    let patterns = u32::try_from(changes.len())
        .ok()
        .and_then(|clusters| 1_usize.checked_shl(clusters))
        .filter(|patterns| *patterns <= permutations);
    if let Some(patterns) = patterns {
        let extreme = (0..patterns).filter(|pattern| {
            let signed = changes.iter().enumerate();
            is_extreme(
                signed
                    .map(|(bit, change)| {
                        if pattern >> bit & 1 == 0 {
                            *change
                        } else {
                            -change
                        }
                    })
                    .sum(),
            )
        });
        return extreme.count() as f64 / patterns as f64;
    }
    let extreme = (0..permutations as u64)
        .into_par_iter()
        .filter(|&stream| {
            let mut random = Random::new(seed, stream);
            let flipped = changes.iter().map(|change| {
                if random.next_u64() >> 63 == 0 {
                    *change
                } else {
                    -change
                }
            });
            is_extreme(flipped.sum())
        })
        .count();
    (extreme + 1) as f64 / (permutations + 1) as f64
}

/// A mean change over clusters with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Mean over clusters.
    pub estimate: f64,
    /// Its interval.
    pub interval: Interval,
    /// Whether the interval comes from Wilson's, because all clusters changed by the same amount.
    pub fallback: bool,
}

/// The mean of cluster changes in [-1, 1] with a percentile bootstrap interval over clusters.
///
/// Where all clusters changed alike, the bootstrap would have width 0. Then the share that gained
/// and the share that lost get Wilson intervals, and their difference the interval of recovered
/// variances (Zou and Donner 2008).
pub fn paired_change(changes: &[f64], level: f64, resamples: usize, seed: u64) -> Change {
    let estimate = if changes.is_empty() {
        0.0
    } else {
        mean(changes)
    };
    if let Some(interval) = percentile(changes, level, resamples, seed) {
        return Change {
            estimate,
            interval,
            fallback: false,
        };
    }
    let clusters = changes.len() as f64;
    let share = |share: f64| (share, wilson(share * clusters, clusters, level));
    let interval = difference(share(estimate.max(0.0)), share((-estimate).max(0.0)));
    Change {
        estimate,
        interval,
        fallback: true,
    }
}

/// The interval of a - b from the intervals of independent a and b by recovered variances, also
/// called MOVER (Zou and Donner 2008; with two Wilson intervals it is method 10 of Newcombe 1998):
///
/// low = (a - b) - sqrt((a - a.low)² + (b.high - b)²),
/// high = (a - b) + sqrt((a.high - a)² + (b - b.low)²).
///
/// Each end takes the distance that its own side's interval allows, so it stays right where an
/// interval is far from symmetric, as at a rate of 0 or 1.
pub(crate) fn difference(a: (f64, Interval), b: (f64, Interval)) -> Interval {
    let estimate = a.0 - b.0;
    Interval {
        low: estimate - (a.0 - a.1.low).hypot(b.1.high - b.0),
        high: estimate + (a.1.high - a.0).hypot(b.0 - b.1.low),
    }
}

/// The smallest true effect that a two-sided test at `level` would find with probability `power`, from the interval of
/// the estimate at hand: (z of level + z of power) / (z of level) times its longer arm.
///
/// An interval that keeps its width where nothing varies (Wilson, recovered variances) makes a "near zero" result say
/// what it could have missed.
pub fn smallest_detectable(estimate: f64, interval: Interval, level: f64, power: f64) -> f64 {
    let tail = normal_quantile(0.5 + level / 2.0);
    let arm = (estimate - interval.low).max(interval.high - estimate);
    (tail + normal_quantile(power)) / tail * arm
}

/// The smallest share of `clusters` that must be gained, with none lost, for the exact test of `McNemar` at `level` to
/// find it with probability `power`; 1 where even all of them would not do.
pub fn smallest_detectable_gain(clusters: u64, level: f64, power: f64) -> f64 {
    let Some(needed) = (1..=clusters).find(|&gained| mcnemar(gained, 0).exact <= 1.0 - level)
    else {
        return 1.0;
    };
    let found =
        |share: f64| Binomial::new(share, clusters).map_or(0.0, |gains| gains.sf(needed - 1));
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if found(middle) < power {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovered_variances_of_two_wilson_intervals_give_newcombes_example() {
        // Newcombe (1998), method 10: 56 of 70 against 48 of 80.
        let rate = |hits: f64, n: f64| (hits / n, wilson(hits, n, 0.95));
        let found = difference(rate(56.0, 70.0), rate(48.0, 80.0));
        assert!((found.low - 0.0524).abs() < 5e-5 && (found.high - 0.3339).abs() < 5e-5);
    }
}
