//! From scores to estimates, contrasts and transitions.

use axmem_datasets::exposure::Exposure;
use axmem_eval::estimate::{
    Analysis, Contrast, ContrastKind, Estimate, Measure, Primary, State, contrasts, estimates,
    overlap, transitions,
};
use axmem_eval::stats::{clopper_pearson, korn_graubard, wilson};
use axmem_eval::{Kind, ModelInfo, Score, ScoreRow, Time};

pub(crate) fn row(
    arm: &str,
    trial: u32,
    time: Time,
    epochs: u32,
    document: &str,
    exact: bool,
) -> ScoreRow {
    ScoreRow {
        model: "toy".to_owned(),
        arm: arm.to_owned(),
        trial,
        time,
        epochs,
        score: Score {
            document: document.to_owned(),
            // Windows `a#0` and `a#1` are one cluster.
            cluster: document.split('#').next().unwrap_or_default().to_owned(),
            prefix: "all".to_owned(),
            suffix: vec![50],
            exact: vec![exact],
            matched_prefix: vec![if exact { 50 } else { 20 }],
            log_probability: vec![if exact { -1.0 } else { -100.0 }],
            p_z: vec![0.0],
            log_probability_top_k: vec![f64::NEG_INFINITY],
            p_z_top_k: vec![0.0],
            mean_rank: vec![if exact { 0.0 } else { 12.5 }],
            mean_entropy: vec![1.5],
            margin: vec![if exact { 1.0 } else { -1.0 }],
            fragile: vec![false],
            token_accuracy: vec![if exact { 1.0 } else { 0.5 }],
            target: vec![1, 2],
            predicted: vec![1, 2],
            log_probabilities: vec![-0.25, f32::MIN],
            ranks: vec![0, u32::MAX],
            entropies: vec![0.0, 11.5],
            generated: None,
            generated_matched: None,
            generated_accuracy: None,
            edit_distance: None,
            longest_run: None,
            rouge_l: None,
            rouge_l_words: None,
        },
    }
}

/// Warm and after of one bucket of the standard arm: `(before, after, how many)`.
fn bucket(epochs: u32, cells: &[(bool, bool, usize)]) -> Vec<ScoreRow> {
    let pairs = cells
        .iter()
        .flat_map(|&(before, after, count)| std::iter::repeat_n((before, after), count));
    pairs
        .enumerate()
        .flat_map(|(index, (before, after))| {
            let document = format!("{epochs}-{index}");
            [
                row("standard", 0, Time::Warm, epochs, &document, before),
                row("standard", 0, Time::After, epochs, &document, after),
            ]
        })
        .collect()
}

pub(crate) fn analysis() -> Analysis {
    Analysis {
        primary: Primary {
            time: (Time::Warm, Time::After),
            suffix: 50,
            exposures: None,
            contrast: ContrastKind::Did,
            measure: Measure::Exact,
        },
        reference_arm: "standard".to_owned(),
        level: 0.95,
        power: 0.8,
        resamples: 500,
        permutations: 999,
        seed: 0,
    }
}

pub(crate) fn models() -> Vec<ModelInfo> {
    vec![ModelInfo {
        model: "toy".to_owned(),
        parameters: 7,
        family: "llama".to_owned(),
        tokenizer: "bpe".to_owned(),
        dtype: "f32".to_owned(),
    }]
}

fn find<'a>(rows: &'a [Contrast], kind: ContrastKind, bucket: &str) -> &'a Contrast {
    rows.iter()
        .find(|row| row.kind == kind && row.measure == Measure::Exact && row.bucket == bucket)
        .unwrap()
}

fn of<'a>(rows: &'a [Estimate], trial: &str, bucket: &str, method: &str) -> &'a Estimate {
    rows.iter()
        .find(|row| row.trial == trial && row.bucket == bucket && row.method == method)
        .unwrap()
}

#[test]
fn s03_the_same_documents_are_compared_as_pairs() {
    // 100 of 200 matched before; 10 gained, none lost.
    let rows = bucket(
        6,
        &[(true, true, 100), (false, true, 10), (false, false, 90)],
    );
    let found = contrasts(&rows, &[], &analysis()).unwrap();
    assert_eq!(
        found.len(),
        2,
        "two measures; there is no control and no second arm"
    );
    let paired = find(&found, ContrastKind::Paired, "6");
    assert!((paired.estimate - 0.05).abs() < 1e-12);
    assert!((paired.p.unwrap() - 0.001_953).abs() < 1e-6);
    assert!(paired.low > 0.0 && paired.high < 0.09, "{paired:?}");
    assert_eq!(
        (paired.method.as_str(), paired.clusters),
        ("bootstrap+mcnemar", 200)
    );
}

#[test]
fn overlap_counts_what_transitions_list() {
    let mut rows = bucket(
        4,
        &[
            (true, true, 3),
            (false, true, 2),
            (true, false, 1),
            (false, false, 5),
        ],
    );
    rows.extend(bucket(0, &[(false, false, 4)]));
    let counts = overlap(&rows).unwrap();
    assert_eq!(counts.len(), 2, "initial was not scored");
    let (control, treated) = (&counts[0], &counts[1]);
    assert_eq!(
        (control.bucket.as_str(), control.never, control.jaccard),
        ("control", 4, None)
    );
    assert_eq!(
        (treated.kept, treated.gained, treated.lost, treated.never),
        (3, 2, 1, 5)
    );
    assert!((treated.jaccard.unwrap() - 0.5).abs() < 1e-12);
    assert_eq!((treated.from, treated.to), (Time::Warm, Time::After));

    let listed = transitions(&rows).unwrap();
    assert_eq!(listed.len(), 15);
    let gained = |bucket: &str| {
        let gained = listed
            .iter()
            .filter(|row| row.state == State::Gained && row.bucket == bucket);
        gained.map(|row| row.document.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(gained("4"), ["4-3", "4-4"]);
    assert!(gained("control").is_empty());
}

#[test]
fn the_largest_bucket_against_control_is_primary_and_the_rest_is_secondary() {
    let mut rows = bucket(0, &[(false, false, 24)]);
    rows.extend(bucket(8, &[(false, true, 1), (false, false, 23)]));
    rows.extend(bucket(96, &[(false, true, 15), (false, false, 9)]));
    let found = contrasts(&rows, &[], &analysis()).unwrap();
    let primary: Vec<&Contrast> = found.iter().filter(|row| row.family == "primary").collect();
    assert_eq!(primary.len(), 1);
    let did = primary[0];
    assert_eq!((did.kind, did.bucket.as_str()), (ContrastKind::Did, "96"));
    assert_eq!(did.method, "recovered_variance+permutation");
    assert!((did.estimate - 0.625).abs() < 1e-12 && did.low > 0.3 && did.clusters == 48);
    assert_eq!(did.p_adjusted, did.p);
    // One permutation in 1000 is the least that 999 can show.
    assert!((did.p.unwrap() - 0.001).abs() < 1e-12);
    for row in found.iter().filter(|row| row.family == "secondary") {
        assert!(row.p_adjusted >= row.p, "{row:?}");
        if row.measure == Measure::Exact && row.kind != ContrastKind::Trend {
            assert!(row.detectable.unwrap() > 0.0);
        }
    }
    let control = find(&found, ContrastKind::Paired, "control");
    assert_eq!(control.method, "recovered_variance+mcnemar");
    assert!(control.estimate == 0.0 && control.low < 0.0 && control.high > 0.0);
}

/// Slope by SciPy's `linregress` (1.17.1) of gains on ln(1 + e) over the documents, z from its definition by `NumPy`.
#[test]
fn a_trend_is_the_slope_on_the_logarithm_of_exposures() {
    let mut rows = bucket(0, &[(false, false, 24)]);
    rows.extend(bucket(8, &[(false, true, 6), (false, false, 18)]));
    let two = contrasts(&rows, &[], &analysis()).unwrap();
    assert!(two.iter().all(|row| row.kind != ContrastKind::Trend));
    rows.extend(bucket(96, &[(false, true, 24)]));
    let found = contrasts(&rows, &[], &analysis()).unwrap();
    let trend = find(&found, ContrastKind::Trend, "all");
    assert!(
        (trend.estimate - 0.219_914_798_438_697_88).abs() < 1e-12,
        "{trend:?}"
    );
    assert!(
        (trend.z.unwrap() - 7.070_796_206_048_213).abs() < 1e-12,
        "{trend:?}"
    );
    assert!(trend.low > 0.15 && trend.low < trend.estimate && trend.estimate < trend.high);
    assert_eq!((trend.p, trend.clusters), (Some(0.001), 72));
    // Without an effect of the dose no permutation is rare.
    let mut flat = Vec::new();
    for exposures in [0, 8, 96] {
        flat.extend(bucket(exposures, &[(false, true, 6), (false, false, 18)]));
    }
    let found = contrasts(&flat, &[], &analysis()).unwrap();
    let trend = find(&found, ContrastKind::Trend, "all");
    assert!(
        trend.estimate.abs() < 1e-12 && trend.p == Some(1.0),
        "{trend:?}"
    );
}

#[test]
fn arms_are_compared_document_by_document() {
    let mut rows = bucket(8, &[(false, true, 6), (false, false, 6)]);
    let goldfish: Vec<ScoreRow> = rows
        .iter()
        .map(|one| row("goldfish", 0, one.time, 8, &one.score.document, false))
        .collect();
    rows.extend(goldfish);
    let found = contrasts(&rows, &[], &analysis()).unwrap();
    let arm = find(&found, ContrastKind::Arm, "8");
    assert_eq!(
        (arm.arm.as_str(), arm.from.as_str(), arm.to.as_str()),
        ("goldfish", "standard", "goldfish")
    );
    assert!((arm.estimate + 0.5).abs() < 1e-12);
    assert!((arm.p.unwrap() - 0.03125).abs() < 1e-12);

    rows.pop();
    rows.pop();
    let error = contrasts(&rows, &[], &analysis()).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
}

#[test]
fn each_rate_has_its_intervals_by_trial_and_pooled() {
    // Two trials in which the groups change places.
    let mut rows = Vec::new();
    for trial in 0..2_u32 {
        for index in 0..20_u32 {
            let epochs = if (index < 10) == (trial == 0) { 8 } else { 0 };
            let document = format!("d{index:02}");
            let hit = epochs == 8 && index % 10 < 4 + trial;
            rows.push(row("standard", trial, Time::After, epochs, &document, hit));
        }
    }
    let found = estimates(&rows, &models(), None, &analysis()).unwrap();
    let first = of(&found, "0", "8", "wilson");
    assert_eq!(
        (
            first.hits,
            first.documents,
            first.clusters,
            first.exposures_nominal
        ),
        (4, 10, 10, 8)
    );
    let interval = wilson(4.0, 10.0, 0.95);
    assert!((first.low - interval.low).abs() < 1e-12 && (first.high - interval.high).abs() < 1e-12);
    assert!((first.token_accuracy - 0.7).abs() < 1e-12);
    assert!(first.exposures_ledger.is_none());
    let pooled = of(&found, "pooled", "8", "clopper_pearson");
    assert_eq!(
        (pooled.hits, pooled.documents, pooled.clusters),
        (9, 20, 20)
    );
    let interval = clopper_pearson(9.0, 20.0, 0.95);
    assert!((pooled.low - interval.low).abs() < 1e-12);
    let bootstrap = of(&found, "pooled", "8", "bootstrap");
    assert!(bootstrap.low < 0.45 && bootstrap.high > 0.45);
    // A control without hits: the bootstrap has nothing to resample and says so.
    let control = of(&found, "pooled", "control", "bootstrap_wilson");
    assert!(control.rate == 0.0 && control.high > 0.1);
}

#[test]
fn several_windows_of_an_article_weigh_as_one_cluster() {
    let mut rows = Vec::new();
    for article in 0..10 {
        for window in 0..5 {
            let document = format!("a{article}#{window}");
            rows.push(row("standard", 0, Time::After, 8, &document, article < 4));
        }
    }
    rows.push(row("standard", 0, Time::After, 8, "single", true));
    let found = estimates(&rows, &models(), None, &analysis()).unwrap();
    let rate = of(&found, "0", "8", "korn_graubard");
    assert_eq!((rate.documents, rate.clusters, rate.hits), (51, 11, 21));
    assert!((rate.rate - 5.0 / 11.0).abs() < 1e-12);
    let means: Vec<f64> = (0..11).map(|i| f64::from(i < 4 || i == 10)).collect();
    assert!((rate.high - korn_graubard(&means, 51, 0.95).high).abs() < 1e-12);
    assert!(found.iter().all(|row| row.method != "wilson"));
}

#[test]
fn fragile_documents_are_counted_in_and_out() {
    let mut rows = bucket(8, &[(false, true, 3), (false, false, 5)]);
    for (index, one) in rows.iter_mut().enumerate() {
        one.score.fragile[0] = index == 1 || index == 15; // one hit and one miss after training
    }
    let found = estimates(&rows, &models(), None, &analysis()).unwrap();
    let after = found.iter().find(|row| row.time == Time::After).unwrap();
    assert_eq!((after.fragile, after.hits), (2, 3));
    assert_eq!(
        (after.hits_without_fragile, after.hits_with_fragile),
        (2, 4)
    );
}

fn exposure(document: &str, presentation: u32, kept: u32) -> Exposure {
    Exposure {
        model: "toy".to_owned(),
        arm: "standard".to_owned(),
        trial: 0,
        step: presentation,
        rate: 1e-3,
        document: document.to_owned(),
        presentation,
        kept_tokens: 100,
        kept_suffix: vec![kept],
        suffix: vec![50],
    }
}

#[test]
fn the_ledger_gives_the_exposures_and_must_know_every_trained_document() {
    let mut rows = bucket(2, &[(false, false, 2)]);
    rows.extend(bucket(0, &[(false, false, 2)]));
    let ledger = [
        exposure("2-0", 1, 50),
        exposure("2-0", 2, 50),
        exposure("2-1", 1, 25),
        exposure("2-1", 2, 25),
    ];
    let found = estimates(&rows, &models(), Some(&ledger), &analysis()).unwrap();
    let exposures = |time: Time, bucket: &str| {
        let mut rows = found
            .iter()
            .filter(|row| row.time == time && row.bucket == bucket);
        rows.next().unwrap().exposures_ledger.unwrap()
    };
    assert!((exposures(Time::After, "2") - 1.5).abs() < 1e-12);
    assert!(exposures(Time::Warm, "2") == 0.0 && exposures(Time::After, "control") == 0.0);

    let error = estimates(&rows, &models(), Some(&ledger[..2]), &analysis()).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("`2-1`"), "{error}");
}

#[test]
fn records_that_do_not_form_the_design_are_refused() {
    let rows = bucket(8, &[(false, true, 3)]);
    let refused = |rows: &[ScoreRow], analysis: &Analysis| {
        let error = contrasts(rows, &[], analysis).unwrap_err();
        (error.kind(), error.to_string())
    };
    let mut twice = rows.clone();
    twice.push(rows[0].clone());
    let (kind, text) = refused(&twice, &analysis());
    assert!(kind == Kind::Data && text.contains("two scores"), "{text}");
    let (kind, text) = refused(&rows[..5], &analysis());
    assert!(
        kind == Kind::Data && text.contains("only one of warm and after"),
        "{text}"
    );
    let mut moved = rows.clone();
    moved[1].epochs = 4;
    let (kind, text) = refused(&moved, &analysis());
    assert!(
        kind == Kind::Data && text.contains("another bucket"),
        "{text}"
    );
    let wrong = Analysis {
        level: 1.0,
        ..analysis()
    };
    let (kind, text) = refused(&rows, &wrong);
    assert!(
        kind == Kind::Usage && text.starts_with("analysis.level:"),
        "{text}"
    );
    let error = estimates(&rows, &[], None, &analysis()).unwrap_err();
    assert!(error.to_string().contains("`toy`"), "{error}");
}

#[test]
fn changes_of_log_probability_are_contrasted_where_no_document_is_reproduced() {
    // Treated suffixes become 20 nats likelier, give or take one; those of the control stay.
    let mut rows = bucket(0, &[(false, false, 12)]);
    rows.extend(bucket(4, &[(false, false, 12)]));
    for (index, row) in rows.iter_mut().enumerate() {
        let noise = [-1.0, 0.0, 1.0][(index / 2) % 3];
        let gain = if row.time == Time::After && row.epochs == 4 {
            20.0
        } else {
            0.0
        };
        row.score.log_probability =
            vec![-100.0 + gain + if row.time == Time::After { noise } else { 0.0 }];
    }
    let mut analysis = analysis();
    analysis.primary.measure = Measure::LogProbability;
    let found = contrasts(&rows, &[], &analysis).unwrap();
    let primary: Vec<&Contrast> = found.iter().filter(|row| row.family == "primary").collect();
    assert_eq!(primary.len(), 1);
    let did = primary[0];
    assert_eq!(
        (did.kind, did.measure),
        (ContrastKind::Did, Measure::LogProbability)
    );
    assert!((did.estimate - 20.0).abs() < 1e-9 && did.low > 18.5 && did.high < 21.5);
    assert_eq!(did.method, "bootstrap+permutation");
    assert!((did.p.unwrap() - 0.001).abs() < 1e-12 && did.detectable.unwrap() < 3.0);
    let exact = found
        .iter()
        .find(|row| row.kind == ContrastKind::Did && row.measure == Measure::Exact);
    assert!(exact.unwrap().estimate.abs() < 1e-12);
}
