//! The tables of a study fit together, and a scoring that was broken off goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use axmem_datasets::exposure::Exposure;
use axmem_datasets::schedule::Slot;
use axmem_datasets::table::{self, Record};
use axmem_datasets::{files, record};
use axmem_eval::{Score, ScoreRow};

use crate::support::{finish, run_smoke, tables};

/// A row of `steps`.
#[derive(Debug)]
struct Recorded {
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

record!(Recorded as "steps" {
    model: String, arm: String, trial: u32, phase: String, step: u64, loss: f64, kept_tokens: u64,
    tokens: u64, rate: f64, grad_norm: f64,
});

/// The tables of one name of all artefacts of a stage.
fn paths(store: &Path, stage: &str, name: &str) -> Vec<PathBuf> {
    let folders = files::list(store.join(stage)).expect("artefacts");
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .collect()
}

fn rows<R: Record>(store: &Path, stage: &str, name: &str) -> Vec<R> {
    let tables = paths(store, stage, name);
    let rows = tables
        .iter()
        .flat_map(|path| table::read(path).expect("a table"));
    rows.collect()
}

#[test]
fn one_count_of_steps_joins_all_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, text) = finish(&mut run_smoke(folder.path(), &[]));
    assert_eq!(code, 0, "{text}");
    let steps: Vec<Recorded> = rows(folder.path(), "train-v1", "steps.parquet");
    let rates: BTreeMap<(&str, u32, u64), f64> = steps
        .iter()
        .map(|row| ((row.arm.as_str(), row.trial, row.step), row.rate))
        .collect();
    assert_eq!(rates.len(), steps.len());
    for row in &steps {
        assert!(row.phase == "train" && !row.model.is_empty(), "{row:?}");
        assert!(
            row.kept_tokens <= row.tokens && row.kept_tokens > 0,
            "{row:?}"
        );
        assert!(row.loss.is_finite() && row.grad_norm > 0.0, "{row:?}");
    }
    // Ten steps of warm-up, then those of the treatment.
    assert_eq!(steps.iter().map(|row| row.step).min(), Some(11));
    let warmup: Vec<Recorded> = rows(folder.path(), "warmup-v1", "steps.parquet");
    assert_eq!(warmup.iter().map(|row| row.step).min(), Some(1));
    assert_eq!(warmup.iter().map(|row| row.step).max(), Some(10));
    let exposures: Vec<Exposure> = rows(folder.path(), "estimate-v6", "exposures.parquet");
    assert!(!exposures.is_empty());
    for row in &exposures {
        let rate = rates[&(row.arm.as_str(), row.trial, u64::from(row.step))];
        assert_eq!(rate.to_bits(), row.rate.to_bits(), "{row:?}");
    }
    let slots: Vec<Slot> = rows(folder.path(), "train-v1", "schedule.parquet");
    let last = slots.iter().map(|slot| u64::from(slot.step)).max();
    assert_eq!(last, steps.iter().map(|row| row.step).max());

    // Weights are weights: no setting of the training, which is not in their key, is beside them.
    for path in paths(folder.path(), "weights-v1", "checkpoint/index.json") {
        let index = files::read_to_string(&path).expect("an index");
        assert!(
            !index.contains("optimizer") && !index.contains("\"m\""),
            "{index}"
        );
    }
}

#[test]
fn scoring_goes_on_after_the_last_chunk_of_documents() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(finish(&mut run_smoke(folder.path(), &[])).0, 0);
    let before = tables(folder.path());
    let path = paths(folder.path(), "score-v2", "scores.parquet").remove(0);
    let artefact = path.parent().expect("a folder");
    let whole: Vec<ScoreRow> = table::read(&path).expect("scores");
    assert_eq!(whole.len(), 18);
    let measured = files::read_to_string(artefact.join("tolerance.json")).expect("a file");
    let measured: serde_json::Value = serde_json::from_str(&measured).expect("JSON");
    let tolerance = measured["tolerance"].as_f64().expect("a number") as f32;

    let broken_off = |change: f64| {
        let mut scores: Vec<Score> = whole[..16].iter().map(|row| row.score.clone()).collect();
        scores[3].log_probability[0] += change;
        fs::remove_file(artefact.join("manifest.json")).expect("a removal");
        let partial = artefact.join("partial");
        fs::create_dir(&partial).expect("a folder");
        table::write(partial.join("scores-000000.parquet"), &scores).expect("a table");
        fs::write(partial.join("tolerance"), tolerance.to_bits().to_string()).expect("a write");
        finish(&mut run_smoke(folder.path(), &[]))
    };
    let (code, text) = broken_off(0.0);
    assert_eq!(code, 0, "{text}");
    assert_eq!(tables(folder.path()), before);
    assert!(!artefact.join("partial").exists());
    // What was scored before is taken, not made again.
    let (code, text) = broken_off(1.0);
    assert!(code == 0 || code == 3, "{text}");
    let again: Vec<ScoreRow> = table::read(&path).expect("scores");
    for (index, (old, new)) in whole.iter().zip(&again).enumerate() {
        assert_eq!(old == new, index != 3, "{index}");
    }
}
