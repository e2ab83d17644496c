//! Every interval and test against SciPy and statsmodels on random and edge inputs
//! (`tests/fixtures/make_scipy.py`): to 1e-9 where the method is a formula, within simulation error
//! where it draws.

use axmem_eval::stats::{
    Dose, Interval, Side, Unit, bca, benjamini_hochberg, clopper_pearson, cochran_armitage, did,
    holm, korn_graubard, mcnemar, paired_change, percentile, sign_flip, wilson,
};
use serde_json::Value;

const TOLERANCE: f64 = 1e-9;
/// Draws of a test, and of a bootstrap.
const DRAWS: usize = 40_000;

fn cases(part: &str) -> Vec<Vec<Value>> {
    let all: Value = serde_json::from_str(include_str!("../fixtures/scipy.json")).unwrap();
    let cases = all[part].as_array().unwrap().iter();
    cases.map(|case| case.as_array().unwrap().clone()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// Compares to 1e-9, relative where the expected value is above 1.
fn equal(found: f64, expected: &Value, case: &[Value]) {
    let expected = number(expected);
    let difference = (found - expected).abs() / expected.abs().max(1.0);
    assert!(difference <= TOLERANCE, "{found} {expected} in {case:?}");
}

fn equal_interval(found: Interval, expected: &[Value], case: &[Value]) {
    equal(found.low, &expected[0], case);
    equal(found.high, &expected[1], case);
}

/// Compares a p of random draws with the exact one: five standard errors, and the draw that is
/// counted for the data themselves.
fn drawn(found: f64, draws: usize, expected: &Value, case: &[Value]) {
    let p = number(expected);
    let error = (p * (1.0 - p) / draws as f64).sqrt();
    let tolerance = 5.0 * error + 1.0 / draws as f64;
    assert!((found - p).abs() <= tolerance, "{found} {p} in {case:?}");
}

#[test]
fn wilson_and_clopper_pearson() {
    for case in cases("proportions") {
        let (hits, n, level) = (number(&case[0]), number(&case[1]), number(&case[2]));
        equal_interval(wilson(hits, n, level), &case[3..5], &case);
        equal_interval(clopper_pearson(hits, n, level), &case[5..7], &case);
    }
}

#[test]
fn korn_and_graubard() {
    for case in cases("korn_graubard") {
        let (hits, windows) = (numbers(&case[0]), number(&case[1]));
        let means: Vec<f64> = hits.iter().map(|hits| hits / windows).collect();
        let documents = means.len() * windows as usize;
        let found = korn_graubard(&means, documents, number(&case[2]));
        equal_interval(found, &case[3..5], &case);
    }
}

#[test]
fn mcnemar_exact_and_mid_p() {
    for case in cases("mcnemar") {
        let found = mcnemar(number(&case[0]) as u64, number(&case[1]) as u64);
        equal(found.exact, &case[2], &case);
        equal(found.mid_p, &case[3], &case);
    }
}

#[test]
fn holm_and_benjamini_hochberg() {
    for case in cases("adjusted") {
        let p = numbers(&case[0]);
        for (found, expected) in [(holm(&p), &case[1]), (benjamini_hochberg(&p), &case[2])] {
            let expected = expected.as_array().unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.into_iter().zip(expected) {
                equal(found, expected, &case);
            }
        }
    }
}

#[test]
fn cochran_and_armitage() {
    for case in cases("cochran_armitage") {
        let rows = case[0].as_array().unwrap().iter().map(numbers);
        let doses: Vec<Dose> = rows
            .map(|row| Dose {
                score: row[0],
                hits: row[1] as u64,
                trials: row[2] as u64,
            })
            .collect();
        let found = cochran_armitage(&doses);
        equal(found.z, &case[1], &case);
        equal(found.p, &case[2], &case);
    }
}

/// All patterns are counted up to fifteen clusters; drawn they are close.
#[test]
fn sign_flips() {
    for case in cases("sign_flip") {
        let changes = numbers(&case[0]);
        equal(sign_flip(&changes, DRAWS, 1), &case[1], &case);
        // Too few for all 2^10 patterns.
        if changes.iter().filter(|change| **change != 0.0).count() >= 10 {
            drawn(sign_flip(&changes, 1_000, 1), 1_000, &case[1], &case);
        }
    }
}

#[test]
fn permutations_of_treated_and_control() {
    for case in cases("permutation") {
        let units = |side: Side, changes: &Value| {
            let unit = move |change| Unit {
                sides: vec![side],
                changes: vec![change],
            };
            numbers(changes).into_iter().map(unit)
        };
        let units: Vec<Unit> = units(Side::Treated, &case[0])
            .chain(units(Side::Control, &case[1]))
            .collect();
        let found = did(&units, 0.95, 10, DRAWS, 1).unwrap();
        drawn(found.p, DRAWS, &case[2], &case);
    }
}

#[test]
fn bootstraps_of_a_mean() {
    for case in cases("bootstrap") {
        let (values, level) = (numbers(&case[0]), number(&case[1]));
        // An end is a quantile of as many draws: 0.013 standard errors of the mean at level 0.95 for
        // either program, and means lie a fifth of a cluster apart.
        let tolerance = 0.1 * number(&case[6]) + 0.2 / values.len() as f64 + 1e-12;
        let near = |found: Interval, expected: &[Value]| {
            for (found, expected) in [(found.low, &expected[0]), (found.high, &expected[1])] {
                let difference = (found - number(expected)).abs();
                assert!(difference <= tolerance, "{found} {expected} in {case:?}");
            }
        };
        let found = percentile(&values, level, DRAWS, 1).unwrap();
        near(found, &case[2..4]);
        let corrected = bca(&values, level, DRAWS, 1);
        assert!(!corrected.fallback);
        near(corrected.interval, &case[4..6]);
        assert_eq!(found, percentile(&values, level, DRAWS, 1).unwrap());
        assert_eq!(corrected, bca(&values, level, DRAWS, 1));
    }
}

#[test]
fn an_empty_table_says_that_nothing_is_known() {
    let all = Interval {
        low: 0.0,
        high: 1.0,
    };
    assert!(percentile(&[], 0.95, 100, 0).is_none());
    assert!(bca(&[], 0.95, 100, 0).fallback);
    assert_eq!(bca(&[], 0.95, 100, 0).interval, all);
    let change = paired_change(&[], 0.95, 100, 0);
    assert_eq!((change.interval.low, change.interval.high), (-1.0, 1.0));
    assert!(did(&[], 0.95, 100, 100, 0).is_none());
}
