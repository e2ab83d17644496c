//! One report from several finished studies.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{axmem, finish, smoke};

const MODELS: [&str; 3] = [
    "{name: small, random: {hidden: 16, layers: 1, heads: 2, kv_heads: 1, ffn: 32, tied: true, max_positions: 64}, \
     rate: {peak: 2e-2, final: 2e-3}}",
    "{name: middle, random: {hidden: 32, layers: 2, heads: 2, kv_heads: 1, ffn: 64, tied: true, max_positions: 64}}",
    "{name: large, random: {hidden: 64, layers: 2, heads: 4, kv_heads: 2, ffn: 128, tied: true, max_positions: 64}}",
];

fn run(store: &Path, sets: &[String]) {
    let file = smoke().with_file_name("smoke-ladder.yaml");
    let mut command = axmem(&["run"]);
    command.arg(file).arg("--store").arg(store);
    for set in sets {
        command.arg("--set").arg(set);
    }
    let (code, text) = finish(&mut command);
    assert_eq!(code, 0, "{text}");
}

fn summary(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("summary.json")).expect("a summary");
    serde_json::from_str(&text).expect("JSON")
}

/// Three studies of one model each say together what the ladder of the three says.
#[test]
fn studies_of_single_models_join_into_the_ladder() {
    let store = tempfile::tempdir().expect("a folder");
    run(
        store.path(),
        &["analysis.threshold={rate: 0.05, exposures: 1}".to_owned()],
    );
    let mut folders = Vec::new();
    for (index, model) in MODELS.iter().enumerate() {
        run(
            store.path(),
            &[
                format!("name=alone-{index}"),
                format!("model={model}"),
                "analysis={primary: {suffix: 10}, resamples: 200}".to_owned(),
            ],
        );
        folders.push(store.path().join(format!("alone-{index}")));
    }
    let out = store.path().join("joined");
    let (code, text) = finish(axmem(&["report"]).args(&folders).arg("--out").arg(&out));
    assert_eq!(code, 0, "{text}");
    let (joined, ladder) = (summary(&out), summary(&store.path().join("smoke-ladder")));
    for part in ["estimates", "contrasts", "overlap", "threshold", "hazards"] {
        let sorted = |summary: &Value| {
            let rows = summary[part].as_array().expect("rows").iter();
            let mut rows: Vec<String> = rows.map(ToString::to_string).collect();
            rows.sort();
            rows
        };
        assert_eq!(sorted(&joined), sorted(&ladder), "{part}");
    }
    assert!(out.join("threshold.png").is_file());

    let one = store.path().join("one");
    let (code, text) = finish(
        axmem(&["report", "--figure", "overlap", "--out"])
            .arg(&one)
            .args(&folders),
    );
    assert_eq!(code, 0, "{text}");
    let mut files: Vec<String> = fs::read_dir(&one)
        .expect("a folder")
        .map(|file| {
            file.expect("a file")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    files.sort();
    assert_eq!(files, ["overlap.png", "overlap.svg"]);
}

#[test]
fn studies_that_do_not_belong_together_are_not_joined() {
    let store = tempfile::tempdir().expect("a folder");
    let name = |name: &str| format!("name={name}");
    run(store.path(), &[name("one")]);
    run(store.path(), &[name("other"), "seed=1".to_owned()]);
    let folder = |name: &str| store.path().join(name);
    let report = |folders: &[&str]| {
        let folders = folders.iter().map(|name| folder(name));
        let mut command = axmem(&["report"]);
        finish(command.args(folders).arg("--out").arg(folder("joined")))
    };
    let (code, text) = report(&["one", "other"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("have different documents in their buckets"),
        "{text}"
    );
    let (code, text) = report(&["one", "one"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("two studies have a model called small"),
        "{text}"
    );
    let (code, text) = finish(axmem(&["report"]).arg(folder("one")));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("--out DIR"), "{text}");
    let (code, text) = report(&["nothing"]);
    assert_eq!(code, 3, "{text}");
}
