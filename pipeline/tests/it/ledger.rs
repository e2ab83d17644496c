//! The exposure ledger against the plan, and against what the trainer counted in its loss.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use axmem_datasets::bucket::Assignment;
use axmem_datasets::exposure::Exposure;
use axmem_datasets::{files, record};

use crate::support::{finish, rows, run_smoke};

/// A row of `steps`.
#[derive(Debug)]
struct Made {
    model: String,
    arm: String,
    trial: u32,
    phase: String,
    step: u64,
    loss: f64,
    kept_tokens: u64,
    tokens: u64,
    rate: f64,
    grad_norm: f64,
}

record!(Made as "steps" {
    model: String, arm: String, trial: u32, phase: String, step: u64, loss: f64, kept_tokens: u64,
    tokens: u64, rate: f64, grad_norm: f64,
});

/// Four ranks, of which two take no row of some micro-batches, batches that never fill the grid, and Goldfish arms with all
/// that `compensate` knows.
const SETS: [&str; 10] = [
    "--set",
    "grid={z: 2, data: 2}",
    "--set",
    "train.batch=5",
    "--set",
    "train.micro_batch=2",
    "--set",
    "background.rows=60",
    "--set",
    "train.arms=[standard, {goldfish: {k: 2, h: 4}}, {goldfish: {k: 2, h: 4, name: twice, compensate: presentations}}, \
     {goldfish: {k: 2, h: 4, name: wide, compensate: batch}}]",
];

/// Kills the first run in the middle of a training, so that the rest is a resumed one.
fn run_interrupted(store: &Path) {
    let mut child = run_smoke(store, &SETS)
        .args(["--set", "train.checkpoint.every=1"])
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let started = Instant::now();
    let is_training = || {
        files::list(store.join("train-v1"))
            .unwrap_or_default()
            .iter()
            .any(|folder| files::list(folder.join("partial")).is_ok_and(|found| !found.is_empty()))
    };
    while !is_training() && started.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait().expect("it ends");
    let (code, text) = finish(run_smoke(store, &SETS).args(["--set", "train.checkpoint.every=1"]));
    assert_eq!(code, 0, "{text}");
}

#[test]
fn the_ledger_is_the_plan_with_padding_resume_and_four_ranks() {
    let store = tempfile::tempdir().expect("a folder");
    run_interrupted(store.path());
    let assignments: Vec<Assignment> = rows(store.path(), "buckets-v2", "buckets.parquet");
    let levels: BTreeMap<(&str, u32), u32> = assignments
        .iter()
        .map(|row| ((row.document.as_str(), row.trial), row.epochs))
        .collect();
    let ledger: Vec<Exposure> = rows(store.path(), "estimate-v6", "exposures.parquet");

    // Every document as often as its bucket says, numbered from 1.
    let mut presented: BTreeMap<(&str, u32, &str), Vec<u32>> = BTreeMap::new();
    for row in &ledger {
        let key = (row.arm.as_str(), row.trial, row.document.as_str());
        presented.entry(key).or_default().push(row.presentation);
    }
    for arm in ["standard", "goldfish", "twice", "wide"] {
        for ((document, trial), level) in &levels {
            let expected = if arm == "twice" { 2 * level } else { *level };
            let mut found = presented
                .remove(&(arm, *trial, *document))
                .unwrap_or_default();
            found.sort_unstable();
            let expected: Vec<u32> = (1..=expected).collect();
            assert_eq!(found, expected, "{arm} {document}");
        }
    }
    assert!(
        presented.is_empty(),
        "documents outside the plan: {presented:?}"
    );

    // The targets that the trainer counted in each step are those of the ledger.
    let steps: Vec<Made> = rows(store.path(), "train-v1", "steps.parquet");
    let mut kept: BTreeMap<(&str, u32, u64), u64> = BTreeMap::new();
    for row in &ledger {
        let key = (row.arm.as_str(), row.trial, u64::from(row.step));
        *kept.entry(key).or_default() += u64::from(row.kept_tokens);
    }
    assert!(steps.len() > 12, "{}", steps.len());
    for step in &steps {
        let key = (step.arm.as_str(), step.trial, step.step);
        assert_eq!(kept.remove(&key), Some(step.kept_tokens), "{step:?}");
    }
    assert!(kept.is_empty(), "steps that were not made: {kept:?}");
}
