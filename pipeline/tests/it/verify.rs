//! `axmem verify` on the smoke study and on an audit of a tiny model: clean, with a flipped byte in every file, with numbers
//! edited by somebody who knows about the hashes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use axmem_datasets::files;
use axmem_datasets::table::{self, Record};
use axmem_eval::ScoreRow;
use axmem_eval::estimate::{Contrast, Estimate, ProbeRow};
use serde_json::{Value, json};

use crate::support::{axmem, finish, run_smoke};

/// What a verification says: its exit code, its problems as (file, sentence), and the error.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) problems: Vec<(String, String)>,
    events: Vec<Value>,
    error: String,
}

impl Said {
    /// Whether a problem of this file contains these words.
    pub(crate) fn names(&self, file: &Path, words: &[&str]) -> bool {
        self.problems.iter().any(|(name, sentence)| {
            *name == file.display().to_string() && words.iter().all(|word| sentence.contains(word))
        })
    }

    pub(crate) fn list(&self) -> String {
        let lines = self.problems.iter();
        let lines: Vec<String> = lines
            .map(|(file, what)| format!("{file}: {what}"))
            .collect();
        format!("code {}: {}\n{}", self.code, self.error, lines.join("\n"))
    }
}

pub(crate) fn verify(folder: &Path) -> Said {
    let output = axmem(&["verify", "--json"])
        .arg(folder)
        .output()
        .expect("the program starts");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let events: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    Said {
        code: output.status.code().unwrap_or(-1),
        problems: events
            .iter()
            .filter(|event| event["event"] == "problem")
            .map(|event| (text(event, "file"), text(event, "problem")))
            .collect(),
        events,
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A finished smoke study.
struct Study {
    store: tempfile::TempDir,
}

impl Study {
    fn run() -> Self {
        Self::run_with(&[])
    }

    fn run_with(sets: &[&str]) -> Self {
        let store = tempfile::tempdir().expect("a folder");
        let (code, text) = finish(&mut run_smoke(store.path(), sets));
        assert_eq!(code, 0, "{text}");
        Self { store }
    }

    fn results(&self) -> PathBuf {
        self.store.path().join("smoke")
    }

    /// The only artefact of a stage, or the first.
    fn artefact(&self, stage: &str) -> PathBuf {
        let mut folders = files::list(self.store.path().join(stage)).expect("artefacts");
        folders.swap_remove(0)
    }

    /// Every file of the results and of the artefacts that they rest on.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = files::list(self.results()).expect("results");
        for stage in files::list(self.store.path()).expect("a store") {
            let name = stage
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.contains("-v") {
                walk(&stage, &mut found);
            }
        }
        found.retain(|path| path.file_name().is_some_and(|name| name != "stat.json"));
        found
    }

    /// Does what somebody would do who edited a file of an artefact and knows of every hash above it.
    fn cover_up(&self, edited: &Path) {
        let folder = edited.parent().expect("a folder");
        record_hash(folder, edited);
        let manifest = folder.join("manifest.json");
        let subject = json_of(&manifest)["subject"]
            .as_str()
            .expect("a subject")
            .to_owned();
        let report = self.artefact("report-v5");
        if folder == report {
            return;
        }
        for place in [self.results(), report.clone()] {
            change_json(&place.join("record.json"), |record| {
                record["manifests"][&subject] = json!(hash(&manifest));
            });
        }
        record_hash(&report, &report.join("record.json"));
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in files::list(folder).expect("a folder") {
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn hash(path: &Path) -> String {
    files::sha256_file(path).expect("a hash")
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

pub(crate) fn change_json(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = json_of(path);
    change(&mut value);
    let text = serde_json::to_string_pretty(&value).expect("JSON") + "\n";
    fs::write(path, text).expect("a write");
}

/// Writes size and hash of a file into the manifest of its artefact.
pub(crate) fn record_hash(folder: &Path, file: &Path) {
    let name = file
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    change_json(&folder.join("manifest.json"), |manifest| {
        manifest["files"][&name] =
            json!({ "bytes": files::size(file).expect("a size"), "sha256": hash(file) });
    });
}

pub(crate) fn edit<R: Record>(path: &Path, change: impl FnOnce(&mut Vec<R>)) {
    let mut rows: Vec<R> = table::read(path).expect("a table");
    change(&mut rows);
    table::write(path, &rows).expect("a write");
}

pub(crate) fn flip(path: &Path, at: usize) -> Vec<u8> {
    let whole = fs::read(path).expect("a file");
    let mut bytes = whole.clone();
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("a write");
    whole
}

#[test]
fn a_clean_study_is_verified_and_one_flipped_byte_in_any_file_is_found() {
    let study = Study::run();
    let results = study.results();
    let said = verify(&results);
    assert_eq!(said.code, 0, "{}", said.list());
    assert!(said.problems.is_empty(), "{}", said.list());
    let last = said.events.last().expect("events");
    assert_eq!(
        (&last["event"], &last["problems"]),
        (&json!("verified"), &json!(0))
    );
    assert!(
        last["files"].as_u64().is_some_and(|files| files > 50),
        "{last}"
    );

    // One of each kind by itself.
    let files = study.files();
    let mut kinds = BTreeSet::new();
    for path in &files {
        let inside = path
            .strip_prefix(study.store.path())
            .expect("a file of the store");
        let stage = inside.iter().next().map(ToOwned::to_owned);
        if !kinds.insert((stage, path.file_name().map(ToOwned::to_owned))) {
            continue;
        }
        let middle = files::size(path).expect("a size") as usize / 2;
        let whole = flip(path, middle);
        let said = verify(&results);
        fs::write(path, whole).expect("a write");
        assert_eq!(said.code, 3, "{}: {}", path.display(), said.list());
        assert!(said.names(path, &[]), "{}: {}", path.display(), said.list());
    }
    assert!(kinds.len() > 40, "{kinds:?}");
    let said = verify(&results);
    assert_eq!(said.code, 0, "{}", said.list());

    // Then in all at once, but for what the others are found by and compared with.
    let is_needed = |path: &Path| path.ends_with("manifest.json") || path.ends_with("record.json");
    let all: Vec<&PathBuf> = files.iter().filter(|path| !is_needed(path)).collect();
    for path in &all {
        flip(path, files::size(path).expect("a size") as usize - 1);
    }
    let said = verify(&results);
    assert_eq!(said.code, 3);
    for path in all {
        assert!(said.names(path, &[]), "{}: {}", path.display(), said.list());
    }
}

#[test]
fn an_edited_rate_is_found_though_every_hash_was_fixed() {
    let study = Study::run();
    let estimate = study.artefact("estimate-v6");
    let estimates = estimate.join("estimates.parquet");
    let mut recorded = 0.0;
    edit(&estimates, |rows: &mut Vec<Estimate>| {
        recorded = rows[3].rate;
        rows[3].rate = 0.4375;
    });
    study.cover_up(&estimates);
    let said = verify(&study.results());
    let values = [
        "row 4 (",
        "rate: 0.4375",
        &format!("computed again {recorded:?}"),
    ];
    assert!(said.names(&estimates, &values), "{}", said.list());
    assert_eq!((said.code, said.problems.len()), (3, 1), "{}", said.list());

    // All problems are listed: a test that was made to look better, and a document whose score was turned.
    let contrasts = estimate.join("contrasts.parquet");
    edit(&contrasts, |rows: &mut Vec<Contrast>| {
        for row in rows.iter_mut() {
            row.p = row.p.map(|_| 0.0625);
        }
        rows.pop();
    });
    study.cover_up(&contrasts);
    let scores = estimate.join("scores.parquet");
    edit(&scores, |rows: &mut Vec<ScoreRow>| {
        rows[0].score.exact[0] ^= true;
    });
    study.cover_up(&scores);
    let said = verify(&study.results());
    assert!(said.names(&estimates, &values), "{}", said.list());
    assert!(
        said.names(&contrasts, &["p: 0.0625", "computed again"]),
        "{}",
        said.list()
    );
    assert!(
        said.names(&contrasts, &["a row: missing"]),
        "{}",
        said.list()
    );
    assert!(
        said.names(&scores, &["row 1 (", "exact: [true, ", "[false, "]),
        "{}",
        said.list()
    );
}

/// The last probe of a training and the scores after it are made from the same weights.
#[test]
fn a_probe_that_differs_from_the_scores_after_training_is_found() {
    let study = Study::run_with(&["--set", "train.probes={every: 2}"]);
    let probes = study.artefact("train-v1").join("probes.parquet");
    edit(&probes, |rows: &mut Vec<ProbeRow>| {
        let last = rows.iter().map(|row| row.step).max();
        let row = rows.iter_mut().find(|row| Some(row.step) == last);
        let row = row.expect("a probe");
        row.exact[0] ^= true;
        row.log_probability[0] -= 0.5;
    });
    study.cover_up(&probes);
    let said = verify(&study.results());
    for field in ["exact", "log_probability"] {
        let words = ["last step", field];
        assert!(said.names(&probes, &words), "{field}: {}", said.list());
    }
}

#[test]
fn an_edited_report_is_found_in_the_store_and_where_it_is_read() {
    let study = Study::run();
    let report = study.artefact("report-v5");
    let summary = report.join("summary.json");
    change_json(&summary, |summary| {
        summary["estimates"][0]["rate"] = json!(0.9);
    });
    study.cover_up(&summary);
    let page = report.join("report.html");
    let text = fs::read_to_string(&page).expect("a page");
    let row = text.find("</td>").expect("a table");
    fs::write(&page, format!("{} 99 %{}", &text[..row], &text[row..])).expect("a write");
    study.cover_up(&page);
    for name in ["summary.json", "report.html"] {
        fs::copy(report.join(name), study.results().join(name)).expect("a copy");
    }
    let figure = study.results().join("memorisation.svg");
    let text = fs::read_to_string(&figure).expect("a figure");
    fs::write(&figure, text.replacen("cy=\"", "cy=\"1", 1)).expect("a write");
    let said = verify(&study.results());
    assert_eq!(said.code, 3);
    for folder in [report, study.results()] {
        let summary = ["estimates[0] (", ").rate: 0.9, computed again"];
        assert!(
            said.names(&folder.join("summary.json"), &summary),
            "{}",
            said.list()
        );
        assert!(
            said.names(&folder.join("report.html"), &["line ", " 99 %"]),
            "{}",
            said.list()
        );
    }
    assert!(said.names(&figure, &["line "]), "{}", said.list());
}

#[test]
fn a_missing_file_an_unknown_one_and_another_version_are_named() {
    let study = Study::run();
    let schedule = study.artefact("train-v1").join("schedule.parquet");
    let validation = study.artefact("score-v2").join("validation.parquet");
    let more = study.artefact("buckets-v2").join("more.parquet");
    fs::remove_file(&schedule).expect("a removal");
    fs::remove_file(&validation).expect("a removal");
    fs::write(&more, "more").expect("a write");
    fs::remove_file(study.results().join("report.md")).expect("a removal");
    let said = verify(&study.results());
    assert_eq!(said.code, 3);
    for path in [&schedule, &validation, &study.results().join("report.md")] {
        assert!(said.names(path, &["is missing"]), "{}", said.list());
    }
    assert!(
        said.names(&more, &["is not in manifest.json"]),
        "{}",
        said.list()
    );
    assert_eq!(said.problems.len(), 4, "{}", said.list());

    // A manifest that was made again has other seconds.
    let study = Study::run();
    let manifest = study.artefact("tokens-v2").join("manifest.json");
    change_json(&manifest, |manifest| manifest["host"] = json!("elsewhere"));
    let said = verify(&study.results());
    assert!(
        said.names(&manifest, &["made again since"]),
        "{}",
        said.list()
    );
    assert_eq!(said.problems.len(), 1, "{}", said.list());

    let study = Study::run();
    let report = study.artefact("report-v5");
    for folder in [&study.results(), &report] {
        change_json(&folder.join("record.json"), |record| {
            record["program"] = json!("0.0.9");
        });
    }
    study.cover_up(&report.join("record.json"));
    let said = verify(&study.results());
    assert_eq!(said.code, 3);
    assert!(
        said.error.contains("made by axmem 0.0.9"),
        "{}",
        said.list()
    );
    let is_note = |event: &&Value| event["event"] == "note";
    assert!(
        said.events.iter().any(|event| is_note(&event)),
        "{}",
        said.list()
    );

    // Without the record the hashes still count.
    fs::remove_file(study.results().join("record.json")).expect("a removal");
    fs::remove_file(report.join("record.json")).expect("a removal");
    let scores = study.artefact("score-v2").join("scores.parquet");
    flip(&scores, 100);
    let said = verify(&study.results());
    assert_eq!(said.code, 3);
    assert!(said.names(&scores, &["SHA-256"]), "{}", said.list());
    assert!(
        said.names(&study.results().join("record.json"), &[]),
        "{}",
        said.list()
    );
}

#[test]
fn other_folders_are_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in [folder.path().to_path_buf(), folder.path().join("nothing")] {
        let (code, text) = finish(axmem(&["verify"]).arg(&path));
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("runs/quickstart"), "{text}");
    }
}

/// Audits a tiny model, with itself as the baseline, into the folder `out`.
fn audit(folder: &Path) -> PathBuf {
    let texts = |name: &str, count: usize| {
        let words = [
            "harbour", "tide", "ledger", "north", "wind", "keeps", "three", "bells",
        ];
        let lines: Vec<String> = (0..count)
            .map(|number| {
                let text: Vec<&str> = (0..40)
                    .map(|at| words[(at * (number + 3) + at / 7) % 8])
                    .collect();
                json!({ "id": number, "text": format!("{name} {number}: {}.", text.join(" ")) })
                    .to_string()
            })
            .collect();
        let path = folder.join(format!("{name}.jsonl"));
        fs::write(&path, lines.join("\n")).expect("a file");
        path
    };
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/fixtures/tiny.gguf");
    let out = folder.join("out");
    let mut audit = axmem(&[
        "audit",
        "--min-prefix",
        "8",
        "--suffix",
        "10,5",
        "--prefix",
        "all,20",
    ]);
    audit
        .args(["--tokens", "120", "--fail-above", "0.5", "--model"])
        .arg(&model);
    audit
        .arg("--baseline")
        .arg(&model)
        .arg("--documents")
        .arg(texts("seen", 7));
    audit
        .arg("--control")
        .arg(texts("unseen", 5))
        .arg("--out")
        .arg(&out);
    let (code, text) = finish(audit.arg("--store").arg(folder.join("store")));
    assert_eq!(code, 0, "{text}");
    out
}

#[test]
fn an_audit_is_verified_and_damage_to_it_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = audit(folder.path());
    let said = verify(&out);
    assert_eq!((said.code, said.problems.len()), (0, 0), "{}", said.list());

    let all = files::list(&out).expect("files");
    assert!(all.len() >= 6, "{all:?}");
    for path in &all {
        let is_manifest = path.ends_with("manifest.json");
        // Of the manifest, the hashes of files; nothing has its key, its host and its memory.
        let at = if is_manifest {
            let text = fs::read_to_string(path).expect("a manifest");
            text.find("summary.json").expect("a file") + 20
        } else {
            files::size(path).expect("a size") as usize / 2
        };
        let whole = flip(path, at);
        let said = verify(&out);
        fs::write(path, whole).expect("a write");
        assert_eq!(said.code, 3, "{}: {}", path.display(), said.list());
        assert!(
            is_manifest || said.names(path, &[]),
            "{}: {}",
            path.display(),
            said.list()
        );
    }

    let fix = |name: &str| {
        change_json(&out.join("manifest.json"), |manifest| {
            manifest["files"][name] = json!(hash(&out.join(name)));
        });
    };
    let summary = out.join("summary.json");
    let whole = fs::read(&summary).expect("a file");
    change_json(&summary, |summary| {
        summary["estimates"][0]["low"] = json!(0.75);
        summary["documents"]["scored"] = json!(70);
    });
    fix("summary.json");
    let said = verify(&out);
    assert!(
        said.names(&summary, &["estimates[0] (", ".low: 0.75, computed again"]),
        "{}",
        said.list()
    );
    assert!(
        said.names(&summary, &["documents.scored: 70, computed again 7"]),
        "{}",
        said.list()
    );
    fs::write(&summary, whole).expect("a write");
    fix("summary.json");
    let page = out.join("report.html");
    let text = fs::read_to_string(&page).expect("a page");
    fs::write(&page, text.replacen("of 7 documents", "of 8 documents", 1)).expect("a write");
    fix("report.html");
    let said = verify(&out);
    assert!(
        said.names(&page, &["line ", "of 8 documents", "of 7 documents"]),
        "{}",
        said.list()
    );
    assert_eq!(said.problems.len(), 1, "{}", said.list());

    fs::remove_file(out.join("scores.parquet")).expect("a removal");
    let said = verify(&out);
    assert!(
        said.names(&out.join("scores.parquet"), &["is missing"]),
        "{}",
        said.list()
    );
}
