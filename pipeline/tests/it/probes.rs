//! Scores in the middle of training.

use std::path::Path;

use axmem_datasets::files;
use axmem_eval::estimate::{Axis, Curve, ProbeRow};
use axmem_eval::{ScoreRow, Time};

use crate::support::{finish, rows, run_smoke};

/// The documents in the middle of training are those of the scores, and the last of them are the scores after training.
#[test]
fn training_is_scored_every_few_steps_and_at_its_end() {
    let plain = tempfile::tempdir().expect("a folder");
    let probed = tempfile::tempdir().expect("a folder");
    assert_eq!(finish(&mut run_smoke(plain.path(), &[])).0, 0);
    let sets = ["--set", "train.probes={every: 2}"];
    let (code, text) = finish(&mut run_smoke(probed.path(), &sets));
    assert_eq!(code, 0, "{text}");

    // Looking on the way changes nothing.
    let after = |store: &Path| -> Vec<ScoreRow> {
        let mut scores: Vec<ScoreRow> = rows(store, "score-v2", "scores.parquet");
        scores.retain(|row| row.time == Time::After);
        scores.sort_by_key(|row| (row.arm.clone(), row.trial, row.score.document.clone()));
        scores
    };
    let scores = after(probed.path());
    assert_eq!(scores, after(plain.path()));

    // 18 presentations in batches of 4 are 5 steps after 10 of warm-up.
    let probes: Vec<ProbeRow> = rows(probed.path(), "train-v1", "probes.parquet");
    let mut steps: Vec<u32> = probes.iter().map(|row| row.step).collect();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps, [12, 14, 15]);
    assert_eq!(probes.len(), 3 * scores.len());
    let last = |score: &ScoreRow| {
        probes.iter().find(|row| {
            (row.step, &row.arm, row.trial, &row.document)
                == (15, &score.arm, score.trial, &score.score.document)
        })
    };
    for score in &scores {
        let probe = last(score).expect("a probe");
        assert_eq!(probe.epochs, score.epochs, "{probe:?}");
        assert_eq!(probe.exact, score.score.exact, "{probe:?}");
        assert_eq!(
            probe.log_probability, score.score.log_probability,
            "{probe:?}"
        );
    }

    let curves: Vec<Curve> = rows(probed.path(), "estimate-v6", "curves.parquet");
    let at_end = |row: &&Curve| row.axis == Axis::Step && row.at == 15;
    // Two arms, three buckets, two lengths of suffix.
    assert_eq!(curves.iter().filter(at_end).count(), 12);
    let before = |row: &&Curve| row.axis == Axis::Step && row.at == 10;
    assert_eq!(
        curves.iter().filter(before).count(),
        12,
        "after the warm-up"
    );
    assert!(curves.iter().any(|row| row.axis == Axis::SinceLast));
    assert!(probed.path().join("smoke/dose.png").is_file());

    // Six clusters in each of two trials, in a bar for each arm and bucket.
    let overlap = files::read_to_string(probed.path().join("smoke/overlap.svg")).expect("a figure");
    for bar in ["standard, control", "standard, 2 ×", "goldfish, 1 ×"] {
        assert!(overlap.contains(bar), "{bar}: {overlap}");
    }
    assert!(overlap.contains("\n12\n"), "{overlap}");
}
