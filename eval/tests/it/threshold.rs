//! The scaling threshold, and the regression below it against another implementation.

use axmem_eval::estimate::{
    Analysis, ContrastKind, Measure, Place, Question, Threshold, contrasts, thresholds,
};
use axmem_eval::stats::{Cell, firth};
use axmem_eval::{Kind, ModelInfo, ScoreRow, Time};
use serde_json::Value;

use crate::estimate::{analysis, row};

const CLUSTERS: usize = 24;
const SIZES: [u64; 5] = [1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000];
const ONCE: Question = Question {
    rate: 0.05,
    exposures: 1,
};

fn numbers(value: &Value) -> Vec<f64> {
    let items = value.as_array().unwrap().iter();
    items.map(|item| item.as_f64().unwrap()).collect()
}

/// Separated designs, which have no maximum likelihood, are among them.
#[test]
fn penalised_logistic_regression_equals_the_reference() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/logistic.json")).unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let rows = case["rows"].as_array().unwrap().iter();
        let cells: Vec<Cell> = rows
            .map(|row| Cell {
                x: numbers(&row[0]),
                hits: row[1].as_f64().unwrap(),
                trials: row[2].as_f64().unwrap(),
            })
            .collect();
        let found = firth(&cells).unwrap();
        for (found, expected) in found.iter().zip(numbers(&case["coefficients"])) {
            let error = (found - expected).abs() / (1.0 + expected.abs());
            assert!(error < 1e-6, "{found} {expected}");
        }
    }
}

fn model(parameters: u64) -> ModelInfo {
    ModelInfo {
        model: parameters.to_string(),
        parameters,
        family: "llama".to_owned(),
        tokenizer: "t".to_owned(),
        dtype: "f32".to_owned(),
    }
}

fn settings() -> Analysis {
    Analysis {
        resamples: 200,
        ..analysis()
    }
}

/// A ladder of documents of which `gained(rung, exposures)` of [`CLUSTERS`] are gained.
fn ladder(gained: impl Fn(usize, u32) -> usize) -> Vec<ScoreRow> {
    let mut rows = Vec::new();
    for (rung, size) in SIZES.iter().enumerate() {
        for exposures in [0, 1, 4] {
            for index in 0..CLUSTERS {
                let document = format!("{exposures}-{index}");
                let hit = index < gained(rung, exposures);
                for (time, exact) in [(Time::Warm, false), (Time::After, hit)] {
                    rows.push(ScoreRow {
                        model: size.to_string(),
                        ..row("standard", 0, time, exposures, &document, exact)
                    });
                }
            }
        }
    }
    rows
}

fn threshold(rows: &[ScoreRow], question: Question) -> Threshold {
    let models = SIZES.map(model);
    let found = thresholds(rows, &models, question, &settings()).unwrap();
    assert_eq!(found.len(), 1);
    found.into_iter().next().unwrap()
}

#[test]
fn a_ladder_that_starts_to_memorise_at_its_fourth_rung_says_so() {
    let rows = ladder(|rung, exposures| match exposures {
        0 => 0,
        1 => [0, 0, 0, 8, 20][rung],
        _ => [0, 2, 10, 20, 24][rung],
    });
    let found = threshold(&rows, ONCE);
    assert_eq!(found.place, Place::Between, "{found:?}");
    let rungs = (found.rung_below, found.rung_above);
    assert_eq!(rungs, (Some(10_000_000), Some(30_000_000)), "{found:?}");
    let (Some(low), Some(at), Some(high)) = (found.low, found.parameters, found.high) else {
        panic!("{found:?}");
    };
    assert!(low < at && at < high && high < 100e6, "{found:?}");
    assert!(found.identified >= 1.0 && found.clusters == 3 * CLUSTERS as u64);
    // More exposures need a smaller model.
    let four = threshold(
        &rows,
        Question {
            exposures: 4,
            ..ONCE
        },
    );
    assert!(four.parameters < found.low, "{four:?}");
    assert_eq!(threshold(&rows, ONCE), found, "the same seed");
}

#[test]
fn nothing_is_said_beyond_the_ends_of_the_ladder() {
    let most = |rate| Question { rate, ..ONCE };
    // None of 24 leaves up to 14.2 % open, by Clopper-Pearson.
    let never = threshold(&ladder(|_, _| 0), most(0.15));
    assert_eq!(
        (never.place, never.low_place, never.high_place),
        (Place::Above, Place::Above, Place::Above)
    );
    assert_eq!((never.gained, never.documents), (vec![0; 5], vec![24; 5]));
    let never = threshold(&ladder(|_, _| 0), most(0.14));
    assert_eq!(
        (never.place, never.high_place),
        (Place::Unidentified, Place::Unidentified)
    );
    let always = threshold(
        &ladder(|_, exposures| if exposures > 0 { 24 } else { 0 }),
        ONCE,
    );
    assert_eq!(
        (always.place, always.low_place),
        (Place::Below, Place::Below)
    );
    // Gains after other numbers of presentations leave those after one open.
    let last = threshold(
        &ladder(|rung, exposures| usize::from(rung == 4 && exposures == 4)),
        ONCE,
    );
    assert_eq!(last.place, Place::Unidentified, "none of 24 at 1: {last:?}");
    // What the control gains is no evidence of what was asked.
    let control = threshold(
        &ladder(|_, exposures| if exposures == 0 { 6 } else { 0 }),
        most(0.1),
    );
    assert_eq!(control.place, Place::Unidentified, "{control:?}");
    assert_eq!(control.control_gained, vec![6; 5]);
    let more = Question {
        exposures: 5,
        ..ONCE
    };
    assert_eq!(
        threshold(&ladder(|rung, _| 5 * rung), more).place,
        Place::Unidentified
    );
}

#[test]
fn a_ladder_that_memorises_less_as_it_grows_has_no_threshold() {
    let falls = threshold(
        &ladder(|rung, exposures| if exposures == 0 { 0 } else { 20 - 5 * rung }),
        ONCE,
    );
    assert_eq!(falls.place, Place::Unidentified, "{falls:?}");
    assert!(falls.identified < 0.5, "{falls:?}");
}

#[test]
fn one_rung_has_no_threshold() {
    let mut rows = ladder(|_, exposures| if exposures == 0 { 0 } else { 12 });
    rows.retain(|row| row.model == "1000000");
    assert_eq!(threshold(&rows, ONCE).place, Place::Unidentified);
}

#[test]
fn what_was_reproduced_before_is_no_gain() {
    let mut rows = ladder(|_, exposures| if exposures == 0 { 0 } else { 24 });
    for row in &mut rows {
        row.score.exact = vec![row.epochs > 0];
    }
    // Only control is left, without a hit: a single exposure, so no curve.
    let found = threshold(&rows, ONCE);
    assert_eq!(found.place, Place::Unidentified, "{found:?}");
}

#[test]
fn windows_of_a_cluster_weigh_as_one() {
    let once = ladder(|rung, exposures| if exposures == 0 { 0 } else { 5 * rung });
    let mut twice = once.clone();
    for row in &once {
        let mut copy = row.clone();
        copy.score.document = format!("{}#1", row.score.document);
        twice.push(copy);
    }
    let (once, twice) = (threshold(&once, ONCE), threshold(&twice, ONCE));
    assert_eq!(once.coefficients, twice.coefficients);
}

#[test]
fn a_model_outside_the_ladder_is_named() {
    let error = thresholds(&ladder(|_, _| 0), &[model(SIZES[0])], ONCE, &settings()).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("not of the ladder"), "{error}");
    let rate = Question { rate: 1.0, ..ONCE };
    let error = thresholds(&ladder(|_, _| 0), &SIZES.map(model), rate, &settings()).unwrap_err();
    assert!(error.to_string().contains("threshold.rate"), "{error}");
}

/// One bucket of two rungs: 10 more documents under the larger, none fewer, is exact `McNemar` of 10 against 0.
#[test]
fn neighbouring_sizes_are_compared_document_by_document() {
    let rows = ladder(|rung, exposures| if exposures == 1 { 5 * rung } else { 0 });
    let models = SIZES.map(model);
    let found = contrasts(&rows, &models, &settings()).unwrap();
    let exact = |from: u64, to: u64| {
        found
            .iter()
            .find(|row| {
                row.kind == ContrastKind::Size
                    && row.measure == Measure::Exact
                    && row.bucket == "1"
                    && (&row.from, &row.to) == (&from.to_string(), &to.to_string())
            })
            .unwrap()
    };
    let sizes = found.iter().filter(|row| row.kind == ContrastKind::Size);
    assert_eq!(sizes.count(), 4 * 3 * 2, "pairs, buckets, measures");
    let first = exact(SIZES[0], SIZES[1]);
    assert!((first.estimate - 5.0 / 24.0).abs() < 1e-12, "{first:?}");
    assert!((first.p.unwrap() - 0.0625).abs() < 1e-12, "{first:?}");
    assert!(first.method.ends_with("+mcnemar") && first.clusters == 24);

    // Another tokenizer means other ids of the same article: no pairs.
    let mut models = models;
    models[1].tokenizer = "other".to_owned();
    let found = contrasts(&rows, &models, &settings()).unwrap();
    let unpaired = found
        .iter()
        .find(|row| {
            row.kind == ContrastKind::Size && row.to == SIZES[1].to_string() && row.bucket == "1"
        })
        .unwrap();
    assert!(unpaired.method.starts_with("unpaired:") && unpaired.method.ends_with("+permutation"));
    assert_eq!(unpaired.clusters, 48, "{unpaired:?}");
}
