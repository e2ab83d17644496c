//! Curves over training, and after the last presentation.

use std::collections::BTreeMap;

use axmem_eval::estimate::{Axis, Curve, ProbeRow, curves};

use crate::estimate::analysis;

fn probe(step: u32, document: &str, epochs: u32, exact: bool) -> ProbeRow {
    ProbeRow {
        model: "toy".to_owned(),
        arm: "standard".to_owned(),
        trial: 0,
        step,
        document: document.to_owned(),
        cluster: document.to_owned(),
        epochs,
        prefix: "all".to_owned(),
        suffix: vec![50],
        exact: vec![exact],
        log_probability: vec![if exact { -1.0 } else { -100.0 }],
    }
}

fn at<'a>(found: &'a [Curve], bucket: &str, axis: Axis, at: u32) -> Option<&'a Curve> {
    found
        .iter()
        .find(|row| row.bucket == bucket && row.axis == axis && row.at == at)
}

#[test]
fn a_document_forgets_from_its_own_last_presentation_on() {
    // `a` is presented last at step 12, `b` at step 20; both are forgotten ten steps later.
    let mut rows = Vec::new();
    for step in [10, 20, 30, 40] {
        rows.push(probe(step, "a", 4, step == 20));
        rows.push(probe(step, "b", 4, step == 20 || step == 30));
        rows.push(probe(step, "control", 0, false));
    }
    let last = BTreeMap::from([
        (("toy", "standard", 0, "a"), 12),
        (("toy", "standard", 0, "b"), 20),
    ]);
    let found = curves(&rows, &last, 10, &analysis()).unwrap();
    let rate = |bucket, axis, place| at(&found, bucket, axis, place).map(|row| row.rate);
    assert_eq!(rate("4", Axis::Step, 10), Some(0.0));
    assert_eq!(rate("4", Axis::Step, 20), Some(1.0));
    assert_eq!(rate("4", Axis::Step, 30), Some(0.5));
    // 0 to 9 steps later: `a` at 20 and `b` at 20. 10 to 19: `a` at 30, `b` at 30. 20 to 29: both at 40.
    assert_eq!(rate("4", Axis::SinceLast, 0), Some(1.0));
    assert_eq!(rate("4", Axis::SinceLast, 10), Some(0.5));
    assert_eq!(rate("4", Axis::SinceLast, 20), Some(0.0));
    assert_eq!(rate("control", Axis::SinceLast, 0), None);
    let first = at(&found, "4", Axis::SinceLast, 0).unwrap();
    assert_eq!((first.documents, first.clusters), (2, 2));
    assert!(first.low < 1.0, "no certainty from two clusters: {first:?}");
    assert_eq!(first.log_probability_low, None);
}
