//! A rate that rises or falls with the dose: the trend test of Cochran and Armitage.

use statrs::function::erf::erfc;

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
