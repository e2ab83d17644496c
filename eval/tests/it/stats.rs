//! Intervals and tests against published values, SciPy's, and each other.

use axmem_eval::stats::{
    Interval, Side, Unit, bca, benjamini_hochberg, beta_quantile, clopper_pearson, did, holm,
    korn_graubard, mcnemar, normal_quantile, paired_change, percentile, quantile, sign_flip,
    smallest_detectable, smallest_detectable_gain, student_t_quantile, wilson,
};
use proptest::prelude::{any, prop_assert, proptest};
use serde_json::Value;

use Side::{Control, Neither, Treated};

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

type Adjust = fn(&[f64]) -> Vec<f64>;

/// Relative difference, absolute where the expected value is 0.
fn relative(found: f64, expected: f64) -> f64 {
    let scale = if expected == 0.0 { 1.0 } else { expected.abs() };
    (found - expected).abs() / scale
}

fn fixture(part: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("../fixtures/statistics.json")).unwrap();
    all[part].clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    let items = value.as_array().unwrap().iter();
    items.map(|item| item.as_f64().unwrap()).collect()
}

fn rows(part: &str) -> Vec<Vec<f64>> {
    fixture(part)
        .as_array()
        .unwrap()
        .iter()
        .map(numbers)
        .collect()
}

#[test]
fn s01_no_hit_in_200_keeps_an_upper_end() {
    let interval = wilson(0.0, 200.0, 0.95);
    assert!(interval.low == 0.0 && near(interval.high, 0.01885, 5e-6));
    let interval = clopper_pearson(0.0, 200.0, 0.95);
    assert!(interval.low == 0.0 && near(interval.high, 0.01828, 5e-6));
}

#[test]
fn wilson_and_clopper_pearson_give_the_reference_vectors() {
    let cases = [
        (0, 200, [0.0, 0.01885], [0.0, 0.01828]),
        (1, 200, [0.00088, 0.02777], [0.00013, 0.02754]),
        (10, 200, [0.02738, 0.08958], [0.02423, 0.09003]),
        (20, 200, [0.06567, 0.14941], [0.06216, 0.15021]),
        (134, 200, [0.60217, 0.73143], [0.60017, 0.73470]),
        (200, 200, [0.98115, 1.0], [0.98172, 1.0]),
        (0, 600, [0.0, 0.00636], [0.0, 0.00613]),
        (30, 600, [0.03525, 0.07048], [0.03399, 0.07061]),
    ];
    for (hits, n, [low, high], [exact_low, exact_high]) in cases {
        let (hits, n) = (f64::from(hits), f64::from(n));
        let (score, exact) = (wilson(hits, n, 0.95), clopper_pearson(hits, n, 0.95));
        assert!(
            near(score.low, low, 5.1e-6) && near(score.high, high, 5.1e-6),
            "{score:?}"
        );
        assert!(
            near(exact.low, exact_low, 5.1e-6) && near(exact.high, exact_high, 5.1e-6),
            "{exact:?}"
        );
    }
}

#[test]
fn mcnemar_gives_the_reference_vectors() {
    let cases = [
        (5, 0, 0.0625, 0.03125),
        (6, 0, 0.03125, 0.015_625),
        (10, 0, 0.001_953, 0.000_977),
        (10, 2, 0.03857, 0.02246),
        (12, 5, 0.14346, 0.09625),
        (3, 3, 1.0, 1.0),
        (0, 0, 1.0, 1.0),
    ];
    for (gained, lost, exact, mid_p) in cases {
        let found = mcnemar(gained, lost);
        assert!(
            near(found.exact, exact, 5.1e-6) && near(found.mid_p, mid_p, 5.1e-6),
            "{found:?}"
        );
        assert_eq!(mcnemar(lost, gained), found);
    }
}

#[test]
fn proportions_equal_scipy() {
    let (mut worst_wilson, mut worst_exact) = (0.0_f64, 0.0_f64);
    for row in rows("proportions") {
        let (hits, n, level) = (row[0], row[1], row[2]);
        let (score, exact) = (wilson(hits, n, level), clopper_pearson(hits, n, level));
        worst_wilson = worst_wilson
            .max(relative(score.low, row[3]))
            .max(relative(score.high, row[4]));
        worst_exact = worst_exact
            .max(relative(exact.low, row[5]))
            .max(relative(exact.high, row[6]));
    }
    println!("wilson {worst_wilson:.1e}, clopper_pearson {worst_exact:.1e}");
    assert!(worst_wilson < 1e-9 && worst_exact < 1e-9);
}

#[test]
fn quantiles_equal_scipy() {
    let worst = |part: &str, quantile: &dyn Fn(&[f64]) -> f64| {
        let rows = rows(part);
        let worst = rows.iter().fold(0.0_f64, |worst, row| {
            let (inputs, expected) = row.split_at(row.len() - 1);
            worst.max(relative(quantile(inputs), expected[0]))
        });
        println!("{part} {worst:.1e}");
        worst
    };
    assert!(worst("beta", &|row| beta_quantile(row[0], row[1], row[2])) < 1e-9);
    assert!(worst("normal", &|row| normal_quantile(row[0])) < 1e-9);
    assert!(worst("student", &|row| student_t_quantile(row[0], row[1])) < 1e-9);
}

#[test]
fn mcnemar_equals_scipy() {
    for row in rows("mcnemar") {
        let found = mcnemar(row[0] as u64, row[1] as u64);
        assert!(relative(found.exact, row[2]) < 1e-9, "{row:?} {found:?}");
        assert!(relative(found.mid_p, row[3]) < 1e-9, "{row:?} {found:?}");
    }
}

#[test]
fn adjusted_p_values_equal_the_reference() {
    let reference = fixture("adjusted");
    let p = numbers(&reference["p"]);
    for (name, adjust) in [
        ("holm", holm as Adjust),
        ("benjamini_hochberg", benjamini_hochberg),
    ] {
        for (found, expected) in adjust(&p).iter().zip(numbers(&reference[name])) {
            assert!(near(*found, expected, 1e-15), "{name}: {found} {expected}");
        }
    }
    assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
    assert!(holm(&[]).is_empty());
}

#[test]
fn the_bootstrap_has_the_exact_distribution_of_every_resample() {
    let (resamples, seed) = (200_000, 3);
    for case in fixture("bootstrap").as_array().unwrap() {
        let values = numbers(&case["values"]);
        let (means, shares) = (numbers(&case["means"]), numbers(&case["shares"]));
        let step = means[1] - means[0];
        let mut certain = 0;
        for level in [0.9, 0.95, 0.99] {
            let ends = &case["ends"][level.to_string()];
            let exact = numbers(&ends["percentile"]);
            let found = percentile(&values, level, resamples, seed).unwrap();
            let corrected = bca(&values, level, resamples, seed);
            assert!(!corrected.fallback);
            let tails = [(1.0 - level) / 2.0, f64::midpoint(1.0, level)];
            for (index, found) in [found.low, found.high].into_iter().enumerate() {
                // A share is known to 1 / sqrt(resamples); only there may the end be the next mean.
                if shares
                    .iter()
                    .all(|share| !near(*share, tails[index], 0.003))
                {
                    assert!(near(found, exact[index], 1e-12), "{found} {exact:?}");
                    certain += 1;
                }
            }
            let exact = numbers(&ends["bca"]);
            let corrected = corrected.interval;
            for (found, exact) in [corrected.low, corrected.high].iter().zip(exact) {
                assert!(near(*found, exact, step + 1e-12), "{found} {exact}");
            }
        }
        assert!(certain >= 3, "{certain} of 6 ends were compared");
    }
}

#[test]
fn the_bootstrap_is_a_function_of_its_seed_alone() {
    let values: Vec<f64> = (0..40).map(|i| f64::from(i % 3 == 0)).collect();
    let on = |threads: usize, seed: u64| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let interval = percentile(&values, 0.95, 999, seed).unwrap();
            (
                interval,
                bca(&values, 0.95, 999, seed),
                sign_flip(&values, 999, seed),
            )
        })
    };
    assert_eq!(on(1, 5), on(3, 5));
    let few = |seed: u64| percentile(&values, 0.9, 50, seed);
    assert!((0..20).any(|seed| few(seed) != few(99)), "the seed matters");
}

#[test]
fn s07_five_copies_of_a_document_are_one_cluster() {
    // Ten documents, four of them hit, five identical spans each.
    let means: Vec<f64> = (0..10).map(|i| f64::from(i < 4)).collect();
    let spans: Vec<f64> = means.iter().flat_map(|mean| [*mean; 5]).collect();
    let width = |interval: Interval| interval.high - interval.low;
    let naive = width(percentile(&spans, 0.95, 2000, 0).unwrap());
    let clustered = width(percentile(&means, 0.95, 2000, 0).unwrap());
    assert!(clustered > 2.0 * naive, "{clustered} {naive}");
    let by_design = width(korn_graubard(&means, spans.len(), 0.95));
    let by_clusters = width(clopper_pearson(4.0, 10.0, 0.95));
    assert!(by_design > 0.95 * by_clusters, "{by_design} {by_clusters}");
    assert!(by_design > 1.5 * width(clopper_pearson(20.0, 50.0, 0.95)));
}

#[test]
fn korn_graubard_is_clopper_pearson_at_its_effective_sample_size() {
    let means = [0.0, 0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8];
    let variance = 0.48 / 56.0; // sum of squares over k (k - 1)
    let ratio = student_t_quantile(0.975, 39.0) / student_t_quantile(0.975, 7.0);
    let effective = (0.4 * 0.6 / variance) * ratio * ratio;
    assert!(effective < 40.0 && effective > 8.0);
    let found = korn_graubard(&means, 40, 0.95);
    let expected = clopper_pearson(0.4 * effective, effective, 0.95);
    assert!(near(found.low, expected.low, 1e-12) && near(found.high, expected.high, 1e-12));
    // One cluster with hits says little about the spread: never fewer than a window a cluster.
    let found = korn_graubard(&[0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 40, 0.95);
    let expected = clopper_pearson(0.4, 8.0, 0.95);
    assert!(near(found.low, expected.low, 1e-12) && near(found.high, expected.high, 1e-12));
    // Windows that vary less than independent ones count as those.
    let ratio = student_t_quantile(0.975, 39.0) / student_t_quantile(0.975, 7.0);
    let effective = 40.0 * ratio * ratio;
    let found = korn_graubard(&[0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.6, 0.2], 40, 0.95);
    let expected = clopper_pearson(0.4 * effective, effective, 0.95);
    assert!(near(found.low, expected.low, 1e-12) && near(found.high, expected.high, 1e-12));
    // No spread tells nothing about the windows: they count as one a cluster.
    assert_eq!(
        korn_graubard(&[0.0; 8], 40, 0.95),
        clopper_pearson(0.0, 8.0, 0.95)
    );
    assert_eq!(
        korn_graubard(&[1.0; 8], 40, 0.95),
        clopper_pearson(8.0, 8.0, 0.95)
    );
    // Thirds have a mean that is rounded, and so a spread that is not quite 0.
    let found = korn_graubard(&[1.0 / 3.0; 10], 30, 0.95);
    let expected = clopper_pearson(10.0 / 3.0, 10.0, 0.95);
    assert!(near(found.low, expected.low, 1e-12) && near(found.high, expected.high, 1e-12));
}

#[test]
fn s09_constant_and_almost_constant_data_give_no_nan() {
    let fallback = bca(&[0.0; 24], 0.95, 500, 0);
    assert!(fallback.fallback);
    assert_eq!(fallback.interval, wilson(0.0, 24.0, 0.95));
    assert!(percentile(&[0.0; 24], 0.95, 500, 0).is_none());
    assert!(percentile(&[], 0.95, 500, 0).is_none());

    let mut one = [0.0; 24];
    one[3] = 1.0;
    for level in [0.5, 0.95, 0.9999] {
        let interval = bca(&one, level, 2000, 0).interval;
        assert!(interval.low.is_finite() && interval.high.is_finite());
        assert!(
            interval.low <= 1.0 / 24.0 && 1.0 / 24.0 <= interval.high,
            "{interval:?}"
        );
    }

    let flat = paired_change(&[0.0; 24], 0.95, 500, 0);
    assert!(flat.fallback && flat.estimate == 0.0);
    let high = wilson(0.0, 24.0, 0.95).high;
    assert!(near(flat.interval.high, high, 1e-12) && near(flat.interval.low, -high, 1e-12));
    let all = paired_change(&[1.0; 24], 0.95, 500, 0);
    assert!(
        near(all.interval.high, 1.0, 1e-12) && all.interval.low > 0.7 && all.interval.low < 1.0
    );
}

#[test]
fn quantiles_interpolate_between_order_statistics() {
    let sorted = [1.0, 2.0, 4.0];
    for (probability, expected) in [(0.0, 1.0), (0.25, 1.5), (0.5, 2.0), (0.75, 3.0), (1.0, 4.0)] {
        assert!(near(quantile(&sorted, probability), expected, 1e-15));
    }
}

#[test]
fn the_sign_flip_test_counts_patterns() {
    // Of the eight patterns of three equal changes, two are as far from 0.
    let p = sign_flip(&[1.0, 1.0, 1.0], 40_000, 1);
    assert!(near(p, 0.25, 0.01), "{p}");
    assert!(near(sign_flip(&[0.0; 5], 100, 1), 1.0, 1e-12));
}

fn unit(sides: &[Side], changes: &[f64]) -> Unit {
    Unit {
        sides: sides.to_vec(),
        changes: changes.to_vec(),
    }
}

#[test]
fn difference_in_differences_by_hand() {
    let of = |side: Side, changes: &[f64]| -> Vec<Unit> {
        changes
            .iter()
            .map(|&change| unit(&[side], &[change]))
            .collect()
    };
    // Two of four gained among the treated, one of four among control.
    let mut units = of(Treated, &[1.0, 1.0, 0.0, 0.0]);
    units.extend(of(Control, &[1.0, 0.0, 0.0, 0.0]));
    units.extend(of(Neither, &[1.0, 1.0, -1.0]));
    let found = did(&units, 0.95, 4000, 20_000, 0).unwrap();
    assert!(near(found.estimate, 0.25, 1e-12) && !found.fallback);
    assert!(
        found.interval.low < 0.0 && found.interval.high > 0.6,
        "{found:?}"
    );
    // Three gains on eight places, 56 ways; the treated have 2 or 1 of them in 48 ways, both at
    // a distance of 1/4, and 3 or 0 in the other 8, at 3/4: all are at least as far.
    assert!(near(found.p, 1.0, 1e-12), "{}", found.p);

    // All treated and no control gained: of the 6 placements of two gains, 2 are as extreme.
    let mut units = of(Treated, &[1.0, 1.0]);
    units.extend(of(Control, &[0.0, 0.0]));
    let found = did(&units, 0.95, 100, 40_000, 0).unwrap();
    assert!(near(found.estimate, 1.0, 1e-12) && found.fallback);
    assert!(near(found.p, 1.0 / 3.0, 0.01), "{}", found.p);
    // Above 1: control may have lost what was not seen in two clusters.
    assert!(found.interval.low < 1.0 && found.interval.high > 1.0 && found.interval.high < 2.0);

    assert!(
        did(&of(Treated, &[1.0]), 0.95, 10, 10, 0).is_none(),
        "no control"
    );
    assert!(did(&[], 0.95, 10, 10, 0).is_none());
}

#[test]
fn a_flat_control_keeps_its_uncertainty_in_the_difference() {
    let mut units: Vec<Unit> = (0..24)
        .map(|i| unit(&[Treated], &[f64::from(i < 15)]))
        .collect();
    units.extend((0..24).map(|_| unit(&[Control], &[0.0])));
    let found = did(&units, 0.95, 4000, 2000, 0).unwrap();
    assert!(found.fallback && near(found.estimate, 15.0 / 24.0, 1e-12));
    let treated: Vec<f64> = (0..24).map(|i| f64::from(i < 15)).collect();
    let alone = percentile(&treated, 0.95, 4000, 0).unwrap();
    assert!(found.interval.low < alone.low && found.interval.high > alone.high);
    assert!(found.interval.low > 0.3 && found.p < 0.001, "{found:?}");
}

#[test]
fn trials_are_crossed_with_clusters() {
    // Two groups change sides between two trials.
    let design = |changes: [[f64; 2]; 4]| {
        let sides = [
            [Treated, Control],
            [Treated, Control],
            [Control, Treated],
            [Control, Treated],
        ];
        let units: Vec<Unit> = sides
            .iter()
            .zip(changes)
            .map(|(sides, changes)| unit(sides, &changes))
            .collect();
        did(&units, 0.95, 2000, 1000, 0).unwrap()
    };
    // 1/2 - 1/2 in the first trial, 1 - 1/2 in the second; one resample in 16 is at either end.
    let found = design([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]]);
    assert!(near(found.estimate, 0.25, 1e-12) && !found.fallback);
    assert!(
        near(found.interval.low, -0.5, 1e-12) && near(found.interval.high, 1.0, 1e-12),
        "{found:?}"
    );
    // A cluster that always changes adds to both sides, and cancels in every resample.
    let found = design([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]);
    assert!(near(found.estimate, 0.5, 1e-12) && found.fallback);
    assert!(
        found.interval.low < 0.5 && found.interval.high > 0.5,
        "{found:?}"
    );
}

#[test]
fn the_smallest_detectable_effect_says_what_nothing_seen_could_have_missed() {
    let flat = paired_change(&[0.0; 24], 0.95, 100, 0);
    let found = smallest_detectable(flat.estimate, flat.interval, 0.95, 0.8);
    // 0 of 24: Wilson's 0.138 times (1.96 + 0.84) / 1.96.
    assert!(
        near(found, 0.137_976 * 2.801_585 / 1.959_964, 1e-5),
        "{found}"
    );
    // Six of 24 must be gained for p = 2 / 2^6 < 0.05; scipy.stats.binom.sf(5, 24, 0.3094) = 0.80.
    let gain = smallest_detectable_gain(24, 0.95, 0.8);
    assert!(near(gain, 0.309_4, 2e-3), "{gain}");
    assert!(smallest_detectable_gain(200, 0.95, 0.8) < 0.05);
    assert!(smallest_detectable_gain(5, 0.95, 0.8) >= 1.0);
}

proptest! {
    #[test]
    fn intervals_of_a_rate_lie_in_zero_to_one_and_cover_it(
        n in 1_u32..5000, share in 0.0_f64..=1.0, level in 0.5_f64..0.999,
    ) {
        let hits = (f64::from(n) * share).floor();
        let rate = hits / f64::from(n);
        for interval in [wilson(hits, f64::from(n), level), clopper_pearson(hits, f64::from(n), level)] {
            prop_assert!(0.0 <= interval.low && interval.low <= rate + 1e-12);
            prop_assert!(rate - 1e-12 <= interval.high && interval.high <= 1.0);
        }
    }

    #[test]
    fn adjusting_keeps_the_order_and_never_lowers_p(
        p in proptest::collection::vec(0.0_f64..=1.0, 1..20), seed in any::<u64>(),
    ) {
        for adjusted in [holm(&p), benjamini_hochberg(&p)] {
            for (i, a) in adjusted.iter().enumerate() {
                prop_assert!(*a >= p[i] && *a <= 1.0);
                let j = seed as usize % p.len();
                prop_assert!(p[i] > p[j] || *a <= adjusted[j]);
            }
        }
    }
}
