//! Intervals of one proportion, and the quantiles that they need.

use statrs::function::{beta::beta_reg, erf::erfc_inv};

use super::{Interval, mean};

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
/// n* = p (1 - p) / var(p), var from the spread of the cluster means, times the square of the ratio
/// of the t quantiles with n - 1 and k - 1 degrees of freedom, at most n. Where the clusters show no
/// spread, n* is the number of clusters k: windows of one cluster may then be copies of each other.
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
    let spread: f64 = cluster_means.iter().map(|value| (value - p).powi(2)).sum();
    // Equal means have a rounded spread that need not be 0.
    let constant = cluster_means
        .iter()
        .all(|value| value.to_bits() == cluster_means[0].to_bits());
    let effective = if cluster_means.len() < 2 || constant {
        clusters
    } else {
        let variance = spread / (clusters * (clusters - 1.0));
        let tail = 0.5 + level / 2.0;
        let ratio = student_t_quantile(tail, n - 1.0) / student_t_quantile(tail, clusters - 1.0);
        (p * (1.0 - p) / variance * ratio * ratio).min(n)
    };
    clopper_pearson(p * effective, effective, level)
}
