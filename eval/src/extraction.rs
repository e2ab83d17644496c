//! (n, p)-discoverable extraction: how often a model must be asked until a text comes out.
//!
//! A sampled continuation is the suffix with probability `p_z`. With n independent tries it appears at least once with
//! probability `1 - (1 - p_z)ⁿ`.
//!
//! ```
//! use axmem_eval::extraction::queries;
//! assert_eq!(queries(0.01_f64.ln(), 0.5), 69.0);
//! ```

/// Rounding must not make a whole number of tries one more.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// The fewest tries after which the text has appeared with probability `p`, given ln `p_z`:
/// `ceil(ln(1 - p) / ln(1 - p_z))`.
///
/// Works from the logarithm, so probabilities of long texts keep their digits. Infinite where `p_z` is 0 and where the
/// number is too large for an f64 (ln `p_z` below about -709); 1 where `p_z` is 1. `p` lies between 0 and 1, both
/// excluded; NaN otherwise.
pub fn queries(log_probability: f64, p: f64) -> f64 {
    if !(p > 0.0 && p < 1.0) || log_probability.is_nan() {
        return f64::NAN;
    }
    let missed = -(-p).ln_1p(); // -ln(1 - p)
    let tries = if log_probability < -40.0 {
        // ln(1 - p_z) is -p_z to all digits.
        missed * (-log_probability).exp()
    } else if log_probability < -std::f64::consts::LN_2 {
        missed / -(-log_probability.exp()).ln_1p()
    } else {
        missed / -(-log_probability.exp_m1()).ln()
    };
    (tries * (1.0 - ROUNDING)).ceil().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_values() {
        for (p_z, p, expected) in [
            (0.01, 0.5, 69.0),
            (0.001, 0.5, 693.0),
            (0.5, 0.9, 4.0),
            (0.5, 0.75, 2.0),
            (0.9, 0.5, 1.0),
        ] {
            let found = queries(f64::ln(p_z), p);
            assert!(
                (found - expected).abs() < f64::EPSILON,
                "({p_z}, {p}): {found}"
            );
        }
        assert!(queries(f64::NEG_INFINITY, 0.5).is_infinite());
        assert!((queries(0.0, 0.999) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_probability_that_f64_can_hold_only_as_a_logarithm_gives_its_number() {
        let found = queries(-300.0, 0.5);
        let expected = std::f64::consts::LN_2 * 300.0_f64.exp();
        assert!((found / expected - 1.0).abs() < 1e-12, "{found}");
        // Both sides of the change of formula agree.
        let ratio = queries(-40.001, 0.5) / queries(-39.999, 0.5);
        assert!((ratio - 0.002_f64.exp()).abs() < 1e-9, "{ratio}");
        assert!(queries(-800.0, 0.5).is_infinite());
    }

    #[test]
    fn a_share_that_is_none_is_not_a_number() {
        for p in [0.0, 1.0, -0.1, f64::NAN] {
            assert!(queries(-1.0, p).is_nan());
        }
    }
}
