//! `axmem audit` on a tiny GGUF model and on weights of a study.

use std::fs;
use std::path::{Path, PathBuf};

use axmem::weights;
use axmem_datasets::table;
use axmem_eval::{ScoreRow, Time};
use axmem_trainer::Published;
use serde_json::{Value, json};

use crate::support::{axmem, finish, smoke};

/// A model of 300 ids with its tokenizer inside.
fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/fixtures/tiny.gguf")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// Texts of some length, each different, as JSON lines.
fn write_texts(path: &Path, name: &str, count: usize) {
    let words = [
        "harbour", "tide", "ledger", "north", "wind", "keeps", "three", "bells", "late", "boats",
    ];
    let lines: Vec<String> = (0..count)
        .map(|number| {
            let text: Vec<&str> = (0..40)
                .map(|at| words[(at * (number + 3) + at / 7 + name.len()) % words.len()])
                .collect();
            json!({ "id": number, "text": format!("{name} {number}: {}.", text.join(" ")) })
                .to_string()
        })
        .collect();
    fs::write(path, lines.join("\n")).expect("a file");
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        write_texts(&folder.path().join("documents.jsonl"), "seen", 7);
        write_texts(&folder.path().join("control.jsonl"), "unseen", 5);
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Audits the tiny model into the folder `out`.
    fn audit(&self, out: &str, more: &[&str]) -> (i32, String) {
        finish(
            axmem(&[
                "audit",
                "--min-prefix",
                "8",
                "--suffix",
                "10",
                "--tokens",
                "120",
                "--model",
            ])
            .arg(model())
            .arg("--documents")
            .arg(self.path("documents.jsonl"))
            .arg("--out")
            .arg(self.path(out))
            .arg("--store")
            .arg(self.path("store"))
            .args(more),
        )
    }

    fn control(&self) -> String {
        self.path("control.jsonl").display().to_string()
    }
}

#[test]
fn an_audit_leaves_a_report_a_summary_and_scores() {
    let folder = Folder::new();
    let control = folder.control();
    let more = [
        "--control",
        &control,
        "--prefix",
        "all,20",
        "--suffix",
        "10,5",
        "--generate",
    ];
    let (code, text) = folder.audit("out", &more);
    assert_eq!(code, 0, "{text}");
    let out = folder.path("out");
    let page = fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("Audit of tiny") && page.contains("reproduces"));
    let summary = read(&out.join("summary.json"));
    assert_eq!(summary["documents"]["scored"], 7);
    assert_eq!(summary["control"]["scored"], 5);
    assert_eq!(summary["settings"]["suffix"], json!([5, 10]));
    assert!(
        summary["tokenizer"]["bos"]
            .as_str()
            .is_some_and(|bos| bos.contains('('))
    );
    assert_eq!(
        summary["models"]["model"]["files"][0][1]
            .as_str()
            .map(str::len),
        Some(64)
    );
    assert_eq!(summary["differences"].as_array().map(Vec::len), Some(4));
    let rows: Vec<ScoreRow> = table::read(out.join("scores.parquet")).expect("scores");
    assert_eq!(rows.len(), 24);
    assert!(
        rows.iter()
            .all(|row| row.time == Time::After && row.score.suffix == [5, 10])
    );
    let first = rows.iter().filter(|row| row.score.prefix == "all");
    assert!(first.clone().count() == 12 && first.clone().all(|row| row.score.generated.is_some()));
    for figure in [
        "matched-prefix.svg",
        "log-probability.svg",
        "prompt-length.svg",
    ] {
        assert!(out.join(figure).is_file(), "{figure}");
    }

    // The same again does nothing; another setting needs another folder.
    let written = fs::read(out.join("scores.parquet")).expect("scores");
    let modified = fs::metadata(out.join("report.html"))
        .and_then(|file| file.modified())
        .expect("a time");
    let (code, text) = folder.audit("out", &more);
    assert!(code == 0 && text.contains("report.html"), "{text}");
    let again = fs::metadata(out.join("report.html"))
        .and_then(|file| file.modified())
        .expect("a time");
    assert_eq!(
        (modified, written),
        (again, fs::read(out.join("scores.parquet")).expect("scores"))
    );
    let (code, text) = folder.audit("out", &["--seed", "1"]);
    assert!(code == 2 && text.contains("--out"), "{text}");
}

#[test]
fn every_grid_gives_the_same_audit() {
    let folder = Folder::new();
    let numbers = |out: &str, grid: &str| {
        let (code, text) = folder.audit(out, &["--grid", grid, "--batch", "3"]);
        assert_eq!(code, 0, "{text}");
        let rows: Vec<ScoreRow> =
            table::read(folder.path(out).join("scores.parquet")).expect("scores");
        rows.into_iter()
            .map(|row| {
                (
                    row.score.document,
                    row.score.predicted,
                    row.score.matched_prefix,
                )
            })
            .collect::<Vec<_>>()
    };
    let one = numbers("one", "1,1,1,1");
    assert_eq!(one, numbers("four", "2,1,2,1"));
    assert_eq!(one, numbers("six", "1,1,3,2"));
    let (code, text) = folder.audit("seven", &["--grid", "7,1,1,1"]);
    assert!(code == 2 && text.contains("does not divide"), "{text}");
}

#[test]
fn an_interrupted_audit_goes_on_and_ends_alike() {
    let folder = Folder::new();
    write_texts(&folder.path("documents.jsonl"), "seen", 40);
    let (code, text) = folder.audit("whole", &[]);
    assert_eq!(code, 0, "{text}");
    let mut command = axmem(&[
        "audit",
        "--min-prefix",
        "8",
        "--suffix",
        "10",
        "--tokens",
        "120",
        "--model",
    ]);
    let mut child = command
        .arg(model())
        .arg("--documents")
        .arg(folder.path("documents.jsonl"))
        .arg("--out")
        .arg(folder.path("broken"))
        .spawn()
        .expect("it starts");
    let chunk = folder.path("broken/partial/after/scores-000000.parquet");
    for _ in 0..2000 {
        if chunk.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let (code, text) = folder.audit("broken", &[]);
    assert_eq!(code, 0, "{text}");
    let bytes = |out: &str| fs::read(folder.path(out).join("scores.parquet")).expect("scores");
    assert_eq!(bytes("whole"), bytes("broken"));
}

#[test]
fn a_baseline_adds_what_was_kept_and_a_high_rate_ends_with_code_10() {
    let folder = Folder::new();
    let model = model().display().to_string();
    let (code, text) = folder.audit("second", &["--baseline", &model]);
    assert_eq!(code, 0, "{text}");
    let summary = read(&folder.path("second/summary.json"));
    let overlap = &summary["overlap"][0];
    assert_eq!(
        (&overlap["gained"], &overlap["lost"]),
        (&json!(0), &json!(0))
    );
    assert!(
        summary["contrasts"]
            .as_array()
            .is_some_and(|rows| rows.len() == 2)
    );

    // None of the documents ends with what the model thinks likeliest; then every one does.
    let gate = ["--suffix", "1", "--fail-above", "0.1"];
    let (code, text) = folder.audit("third", &gate);
    assert_eq!(code, 0, "{text}");
    assert_eq!(
        read(&folder.path("third/summary.json"))["verdict"],
        "passed"
    );
    let rows: Vec<ScoreRow> = table::read(folder.path("third/scores.parquet")).expect("scores");
    let published = Published::open(Path::new(&model)).expect("a model");
    let tokenizer = weights::tokenizer(Path::new(&model), &published).expect("a tokenizer");
    let documents = fs::read_to_string(folder.path("documents.jsonl")).expect("documents");
    let lines: Vec<String> = documents
        .lines()
        .zip(&rows)
        .map(|(line, row)| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let mut ids = tokenizer
                .encode(line["text"].as_str().expect("a text"))
                .expect("ids");
            ids.truncate(119);
            ids.extend(row.score.predicted.last());
            json!({ "id": line["id"], "text": tokenizer.decode(&ids).expect("text") }).to_string()
        })
        .collect();
    fs::write(folder.path("documents.jsonl"), lines.join("\n")).expect("a file");
    let (code, text) = folder.audit("fourth", &gate);
    assert!(
        code == 10 && text.contains("above --fail-above 0.1"),
        "{code}: {text}"
    );
    assert_eq!(
        read(&folder.path("fourth/summary.json"))["verdict"],
        "failed"
    );
    // The same again does nothing, and still fails.
    assert_eq!(folder.audit("fourth", &gate).0, 10);
}

#[test]
fn a_run_of_a_study_is_audited() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let mut train = axmem(&["train", "--json"]);
    let output = train
        .arg(smoke())
        .arg("--store")
        .arg(&store)
        .args([
            "--set",
            "buckets.trials=1",
            "--set",
            "train.arms=[standard]",
        ])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    let run = last["folder"].as_str().expect("a folder").to_owned();
    write_texts(&folder.path().join("documents.jsonl"), "seen", 4);
    let audit = |out: &str, more: &[&str]| {
        finish(
            axmem(&[
                "audit",
                "--model",
                &run,
                "--suffix",
                "4",
                "--min-prefix",
                "4",
                "--tokens",
                "24",
                "--documents",
            ])
            .arg(folder.path().join("documents.jsonl"))
            .arg("--out")
            .arg(folder.path().join(out))
            .args(more),
        )
    };
    let (code, text) = audit("out", &[]);
    assert_eq!(code, 0, "{text}");
    let summary = read(&folder.path().join("out/summary.json"));
    assert_eq!(summary["audit"], "train standard 0");
    let initial = fs::read_dir(store.join("weights-v1"))
        .expect("weights")
        .next()
        .expect("one");
    let initial = initial.expect("an entry").path().display().to_string();
    let (code, text) = audit("both", &["--baseline", &initial]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn what_cannot_be_audited_is_named() {
    let folder = Folder::new();
    let path = |name: &str, text: &str| {
        fs::write(folder.path(name), text).expect("a file");
        folder.path(name).display().to_string()
    };
    let same = folder.path("documents.jsonl").display().to_string();
    let broken = path(
        "broken.jsonl",
        "{\"id\": 1, \"text\": \"a\"}\n{\"id\": 1, \"text\": \"b\"}",
    );
    let tokenizer = path("tokenizer.json", "{}");
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--control", &same], 3, "among the audited documents too"),
        (&["--control", &broken], 3, "broken.jsonl"),
        (&["--documents", "/no/such/file"], 3, "/no/such/file"),
        (&["--tokenizer", &tokenizer], 4, "tokenizer.json"),
        (&["--model", "/no/such/model"], 4, "/no/such/model"),
        (&["--suffix", "0"], 2, "--suffix"),
        (&["--suffix", "5000"], 3, "no document can be scored"),
        (&["--fail-above", "1.5"], 2, "--fail-above"),
        (&["--grid", "1,2"], 2, "--grid"),
    ];
    for (index, (more, expected, what)) in cases.into_iter().enumerate() {
        let mut command = axmem(&["audit", "--out"]);
        command.arg(folder.path(&format!("out-{index}")));
        let has = |name: &str| more.contains(&name);
        if !has("--model") {
            command.arg("--model").arg(model());
        }
        if !has("--documents") {
            command.arg("--documents").arg(&same);
        }
        if !has("--suffix") {
            command.args(["--suffix", "10", "--min-prefix", "8"]);
        }
        let (code, text) = finish(command.args(more));
        assert_eq!(code, expected, "{more:?}: {text}");
        assert!(
            text.contains(what) && !text.contains("panicked"),
            "{more:?}: {text}"
        );
    }
}

#[test]
fn l02_m03_t05_cut_documents_shared_prefixes_and_the_bos_policy_are_told() {
    let folder = Folder::new();
    let start = "the tide tables of the harbour, written by hand, ";
    let lines = [
        json!({ "id": "a", "text": format!("{start}one two three four.") }),
        json!({ "id": "b", "text": format!("{start}five six seven ate.") }),
        json!({ "id": "long", "text": "boats come late ".repeat(40) }),
        json!({ "id": "short", "text": "boats" }),
    ];
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(folder.path("documents.jsonl"), lines.join("\n")).expect("a file");
    let (code, text) = folder.audit("out", &["--prefix", "20"]);
    assert_eq!(code, 0, "{text}");
    let summary = read(&folder.path("out/summary.json"));
    let documents = &summary["documents"];
    assert_eq!(
        (&documents["scored"], &documents["cut"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(documents["left_out"][0][0], "short");
    assert!(
        summary["tokenizer"]["bos"]
            .as_str()
            .is_some_and(|bos| bos.starts_with("never ("))
    );

    let same = "the tide tables of the harbour, written by hand, one two three ";
    let lines = [
        json!({ "id": "a", "text": format!("{same}1234") }),
        json!({ "id": "b", "text": format!("{same}5678") }),
    ];
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(folder.path("documents.jsonl"), lines.join("\n")).expect("a file");
    let (code, text) = folder.audit("shared", &["--suffix", "4"]);
    assert_eq!(code, 0, "{text}");
    let note = read(&folder.path("shared/summary.json"))["documents"]["notes"][0].to_string();
    assert!(
        note.contains("2 documents have the prefix of another"),
        "{note}"
    );
}

#[test]
fn a_document_named_like_the_control_stays_a_document() {
    let folder = Folder::new();
    let line = |id: &str, cluster: &str, text: &str| {
        json!({ "id": id, "cluster": cluster, "text": text.repeat(30) }).to_string()
    };
    let lines = [
        line("control/1", "x", "north wind "),
        line("2", "y", "late boats "),
        line("3", "z", "late boats "),
    ];
    fs::write(folder.path("documents.jsonl"), lines.join("\n")).expect("a file");
    let (code, text) = folder.audit("out", &[]);
    assert_eq!(code, 0, "{text}");
    let summary = read(&folder.path("out/summary.json"));
    assert!(
        summary["estimates"]
            .as_array()
            .is_some_and(|rows| rows.iter().all(|row| row["set"] == "documents"))
    );
    // Two of the three are copies, so one cluster, whatever their lines say.
    assert_eq!(
        (
            &summary["documents"]["scored"],
            &summary["documents"]["clusters"]
        ),
        (&json!(3), &json!(2))
    );
    let (code, text) = folder.audit("refused", &["--control", &folder.control()]);
    assert!(
        code == 3 && text.contains("may begin with control/"),
        "{text}"
    );
}
