//! Several models in one study.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use axmem_datasets::exposure::Exposure;
use axmem_datasets::table;
use axmem_eval::estimate::Threshold;
use serde_json::Value;

use crate::support::{axmem, finish, run_smoke, smoke};

const NAMES: [&str; 3] = ["small", "middle", "large"];

fn ladder(store: &Path, more: &[&str]) -> (i32, String) {
    let file = smoke().with_file_name("smoke-ladder.yaml");
    finish(
        axmem(&["run"])
            .arg(file)
            .arg("--store")
            .arg(store)
            .args(more),
    )
}

fn rows<R: table::Record>(store: &Path, name: &str) -> Vec<R> {
    let summary = fs::read_to_string(store.join("smoke-ladder/summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let key = summary["artefacts"]["estimate"].as_str().expect("a key");
    table::read(store.join("estimate-v6").join(key).join(name)).expect("a table")
}

#[test]
fn a_ladder_is_one_study_with_one_answer_for_each_arm() {
    let store = tempfile::tempdir().expect("a folder");
    let (code, text) = ladder(store.path(), &[]);
    assert_eq!(code, 0, "{text}");
    for name in NAMES {
        assert!(text.contains(&format!("train {name} goldfish 0")), "{text}");
    }

    let exposures: Vec<Exposure> = rows(store.path(), "exposures.parquet");
    let models: BTreeSet<&str> = exposures.iter().map(|row| &*row.model).collect();
    assert_eq!(models, BTreeSet::from(NAMES));
    // 6 clusters once and 6 twice, under two arms of three models.
    assert_eq!(exposures.len(), 18 * 2 * 3);
    let most = |model: &str| {
        let rates = exposures.iter().filter(|row| row.model == model);
        rates.map(|row| row.rate).fold(0.0, f64::max)
    };
    assert!(most("small") > most("large"), "a rate of its own");

    let thresholds: Vec<Threshold> = rows(store.path(), "thresholds.parquet");
    assert_eq!(thresholds.len(), 4, "two arms, two lengths of suffix");
    for row in &thresholds {
        assert_eq!((row.rungs.len(), row.exposures, row.clusters), (3, 2, 18));
        assert!(row.rungs.is_sorted(), "{row:?}");
    }
    let report = fs::read_to_string(store.path().join("smoke-ladder/report.md")).expect("a report");
    assert!(report.contains("From which size on"), "{report}");
    let summary = fs::read_to_string(store.path().join("smoke-ladder/summary.json")).expect("it");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["threshold"].as_array().expect("rows").len(), 4);

    let (code, text) = ladder(store.path(), &[]);
    assert!(code == 0 && text.contains("nothing to do"), "{text}");
    // A model of the ladder that is left as it was is not trained again.
    let (code, text) = ladder(
        store.path(),
        &["--set", "model.2.rate={ peak: 5e-3, final: 1e-3 }"],
    );
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("train large standard 0: done in"), "{text}");
    assert!(!text.contains("train middle standard 0: done in"), "{text}");
}

#[test]
fn a_list_of_one_model_is_that_model() {
    let store = tempfile::tempdir().expect("a folder");
    assert_eq!(finish(&mut run_smoke(store.path(), &[])).0, 0);
    let shape =
        "{ hidden: 32, layers: 2, heads: 2, kv_heads: 1, ffn: 64, tied: true, max_positions: 64 }";
    let model = format!("model=[{{ random: {shape} }}]");
    let (code, text) = finish(&mut run_smoke(store.path(), &["--set", &model]));
    assert!(code == 0 && text.contains("nothing to do"), "{text}");
}

#[test]
fn what_a_ladder_cannot_be_is_refused_with_the_place() {
    let store = tempfile::tempdir().expect("a folder");
    for (set, said) in [
        ("model=[]", "model: is an empty list"),
        (
            "model.1.name=small",
            "model.1.name: a second model is called small",
        ),
        ("model.1.random.heads=5", "model.1.random.heads"),
        (
            "model.2={ name: large, source: \"x.gguf\" }",
            "model.2: a ladder is either",
        ),
        ("model.0.rate.peak=1e9", "model.0.rate.peak"),
        (
            "model.0.random.max_positions=32",
            "documents.tokens: 64 is more than the 32 positions",
        ),
        (
            "analysis.threshold.exposures=3",
            "analysis.threshold.exposures: 3 is not from 1",
        ),
        (
            "analysis.threshold.rate=0",
            "analysis.threshold.rate: must be between",
        ),
        (
            "model={ random: { hidden: 16, layers: 1, heads: 2, kv_heads: 1, ffn: 32, max_positions: 64 } }",
            "analysis.threshold: needs several models",
        ),
        ("model=3", "a mapping with `random` or `source`, or a list"),
    ] {
        let (code, text) = ladder(store.path(), &["--set", set]);
        assert_eq!(code, 2, "{set}: {text}");
        assert!(text.contains(said), "{set}: {text}");
    }
}

#[test]
fn a_file_with_a_matrix_runs_its_experiments_on_one_store() {
    let store = tempfile::tempdir().expect("a folder");
    let file = smoke().with_file_name("smoke-threshold.yaml");
    let command = |name: &str, more: &[&str]| {
        let mut command = axmem(&[name]);
        command.arg(&file).arg("--store").arg(store.path());
        command.args(more);
        command
    };
    let output = command("plan", &[]).output().expect("a plan");
    let plan = String::from_utf8_lossy(&output.stdout).into_owned();
    let shared = |line: &&str| line.contains(" shared ") && !line.contains("made once");
    assert!(plan.contains("smoke-threshold-narrow: ") && plan.contains("smoke-threshold-deep: "));
    assert_eq!(
        plan.lines().filter(shared).count(),
        3,
        "corpus, tokens, buckets: {plan}"
    );
    assert!(
        plan.contains("2 experiments, ") && plan.contains("; 3 are shared"),
        "{plan}"
    );

    let (code, text) = finish(&mut command("run", &[]));
    assert_eq!(code, 0, "{text}");
    for name in ["narrow", "deep"] {
        let summary = store
            .path()
            .join(format!("smoke-threshold-{name}/summary.json"));
        let summary: Value =
            serde_json::from_str(&fs::read_to_string(summary).expect("a summary")).expect("JSON");
        assert_eq!(summary["experiment"], format!("smoke-threshold-{name}"));
        assert_ne!(summary["threshold"], Value::Null);
    }
    assert_eq!(files(&store.path().join("buckets-v2")), 1, "made once");
    let (code, text) = finish(&mut command("run", &[]));
    assert_eq!(
        (code, text.matches("nothing to do").count()),
        (0, 2),
        "{text}"
    );
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn a_model_with_its_own_batch_and_grid_is_trained_so_and_the_others_are_not() {
    let store = tempfile::tempdir().expect("a folder");
    let sets = ["--set", "model.1.batch=2", "--set", "model.2.grid={z: 2}"];
    let (code, text) = ladder(store.path(), &sets);
    assert_eq!(code, 0, "{text}");
    let exposures: Vec<Exposure> = rows(store.path(), "exposures.parquet");
    let last = |model: &str| {
        let steps = exposures.iter().filter(|row| row.model == model);
        steps.map(|row| row.step).max()
    };
    // 18 treated rows after 10 steps, in batches of 4 and of 2.
    assert_eq!((last("small"), last("middle")), (Some(15), Some(19)));
    let manifests = fs::read_dir(store.path().join("train-v1")).expect("trained models");
    let grids: BTreeSet<(String, String)> = manifests
        .map(|folder| {
            let path = folder.expect("a folder").path().join("manifest.json");
            let text = fs::read_to_string(path).expect("a manifest");
            let manifest: Value = serde_json::from_str(&text).expect("JSON");
            let model = manifest["settings"]["model"].as_str().expect("a model");
            (model.to_owned(), manifest["grid"].to_string())
        })
        .collect();
    let expected = [
        ("small", "[1,1,1,1]"),
        ("middle", "[1,1,1,1]"),
        ("large", "[1,1,2,1]"),
    ];
    let expected = expected.map(|(model, grid)| (model.to_owned(), grid.to_owned()));
    assert_eq!(grids, BTreeSet::from(expected));
}
