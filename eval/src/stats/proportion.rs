//! Intervals of one proportion, and the quantiles that they need.

use statrs::function::{beta::beta_reg, erf::erfc_inv};

use super::{Interval, is_constant, mean};

/// The standard normal quantile.
pub fn normal_quantile(probability: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erfc_inv(2.0 * probability)
}

/// The quantile of the beta distribution with parameters `a, b > 0`, by bisection of the
/// regularised incomplete beta function: slow beside Newton steps, and safe in both tails.
pub fn beta_quantile(probability: f64, a: f64, b: f64) -> f64 {
    if probability <= 0.0 {
        return 0.0;
    }
    if probability >= 1.0 {
        return 1.0;
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return middle;
        }
        if beta_reg(a, b, middle) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// The upper quantile (probability above one half) of Student's t with `freedom` degrees, through
/// t² = f (1 - y) / y, y beta distributed with parameters f/2 and 1/2.
pub fn student_t_quantile(probability: f64, freedom: f64) -> f64 {
    let y = beta_quantile(2.0 * (1.0 - probability), freedom / 2.0, 0.5);
    (freedom * (1.0 - y) / y).sqrt()
}

/// Wilson's score interval (Wilson 1927) of `hits` in `trials` at `level`. No hit keeps an upper
/// end above 0, and the end at 0 or 1 is exact. No trial gives the whole of [0, 1].
pub fn wilson(hits: f64, trials: f64, level: f64) -> Interval {
    if trials <= 0.0 {
        return Interval {
            low: 0.0,
            high: 1.0,
        };
    }
    let z = normal_quantile(0.5 + level / 2.0);
    let (p, z2) = (hits / trials, z * z);
    let centre = (p + z2 / (2.0 * trials)) / (1.0 + z2 / trials);
    let half =
        z / (1.0 + z2 / trials) * (p * (1.0 - p) / trials + z2 / (4.0 * trials * trials)).sqrt();
    Interval {
        low: if hits <= 0.0 { 0.0 } else { centre - half },
        high: if hits >= trials { 1.0 } else { centre + half },
    }
}

/// The Clopper-Pearson interval (Clopper and Pearson 1934) at `level`: never covers less than it
/// says. Counts may be fractional, as an effective sample size is.
pub fn clopper_pearson(hits: f64, trials: f64, level: f64) -> Interval {
    if trials <= 0.0 {
        return Interval {
            low: 0.0,
            high: 1.0,
        };
    }
    let tail = (1.0 - level) / 2.0;
    Interval {
        low: if hits <= 0.0 {
            0.0
        } else {
            beta_quantile(tail, hits, trials - hits + 1.0)
        },
        high: if hits >= trials {
            1.0
        } else {
            beta_quantile(1.0 - tail, hits + 1.0, trials - hits)
        },
    }
}

/// The Korn-Graubard interval (Korn and Graubard 1998): Clopper-Pearson at the effective sample
/// size of `observations` documents in clusters of equal weight.
///
/// As published, with k clusters, n documents and p the mean of the cluster means,
///
/// n* = n / deff · (t(n - 1) / t(k - 1))², deff = n var(p) / (p (1 - p)),
///
/// at most n (Parker et al. 2017), t(f) Student's quantile with f degrees of freedom, and var(p)
/// from the spread of the cluster means. With few clusters and a small rate this covers too little
/// (94.25 % of 95 at p = 0.05, 25 clusters of five windows and a correlation of 0.3), and less the
/// more windows a cluster has: few clusters have a hit, and var(p) is then far less certain than
/// k - 1 degrees of freedom say. Three changes; `COVERAGE.md` has both forms:
///
/// - t(k - 1) becomes t(f), f the number of clusters with a hit, or with a miss if that is smaller,
///   at most k - 1. If hits are rare, var(p) is a sum of as many squares as clusters have one; the
///   rest add nothing to it. It is the rule for a part of a sample, whose degrees of freedom count
///   the clusters that have any of it (Korn and Graubard 1999).
/// - deff is at least 1: a spread below that of independent windows is taken for chance.
/// - n* is at least k: a mean of values in [0, 1] varies at most as one of zeros and ones does.
///
/// Where the clusters show no spread, n* is k: windows of one cluster may then be copies of each
/// other. With one window a cluster this is the interval of Clopper and Pearson.
pub fn korn_graubard(cluster_means: &[f64], observations: usize, level: f64) -> Interval {
    let clusters = cluster_means.len() as f64;
    let n = observations as f64;
    if cluster_means.is_empty() {
        return Interval {
            low: 0.0,
            high: 1.0,
        };
    }
    let p = mean(cluster_means);
    // Equal means have a rounded spread that need not be 0.
    let effective = if is_constant(cluster_means) {
        clusters
    } else {
        let spread: f64 = cluster_means.iter().map(|value| (value - p).powi(2)).sum();
        let variance = spread / (clusters * (clusters - 1.0));
        let count =
            |has: &dyn Fn(f64) -> bool| cluster_means.iter().filter(|value| has(**value)).count();
        let rarer = count(&|value| value > 0.0).min(count(&|value| value < 1.0));
        let freedom = (rarer as f64).min(clusters - 1.0);
        let design = (n * variance / (p * (1.0 - p))).max(1.0);
        let tail = 0.5 + level / 2.0;
        let ratio = student_t_quantile(tail, n - 1.0) / student_t_quantile(tail, freedom);
        (n / design * ratio * ratio).clamp(clusters, n)
    };
    clopper_pearson(p * effective, effective, level)
}
