//! One report from several finished studies.

use std::fs;
use std::path::PathBuf;

use axmem_datasets::files;
use axmem_eval::ScoreRow;
use serde_json::{Value, json};

use crate::support::{axmem, finish, smoke};
use crate::verify::{change_json, edit, flip, record_hash, verify};

const MODELS: [&str; 3] = [
    "{name: small, random: {hidden: 16, layers: 1, heads: 2, kv_heads: 1, ffn: 32, tied: true, max_positions: 64}, \
     rate: {peak: 2e-2, final: 2e-3}}",
    "{name: middle, random: {hidden: 32, layers: 2, heads: 2, kv_heads: 1, ffn: 64, tied: true, max_positions: 64}}",
    "{name: large, random: {hidden: 64, layers: 2, heads: 4, kv_heads: 2, ffn: 128, tied: true, max_positions: 64}}",
];

/// A store, by its one path.
struct Store {
    root: PathBuf,
    _folder: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            root: folder.path().canonicalize().expect("its path"),
            _folder: folder,
        }
    }

    fn run(&self, sets: &[&str]) {
        let file = smoke().with_file_name("smoke-ladder.yaml");
        let mut command = axmem(&["run"]);
        command.arg(file).arg("--store").arg(&self.root);
        for set in sets {
            command.arg("--set").arg(set);
        }
        let (code, text) = finish(&mut command);
        assert_eq!(code, 0, "{text}");
    }

    /// Runs a study of one model.
    fn run_alone(&self, name: &str, model: &str, sets: &[&str]) {
        let (name, model) = (format!("name={name}"), format!("model={model}"));
        let analysis = "analysis={primary: {suffix: 10}, resamples: 200}";
        let own = [name.as_str(), model.as_str(), analysis];
        self.run(&[own.as_slice(), sets].concat());
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder(name)).expect("a file")
    }

    fn summary(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(&format!("{name}/summary.json"))).expect("JSON")
    }

    /// Names of the files in a folder.
    fn files(&self, name: &str) -> Vec<String> {
        let paths = files::list(self.folder(name)).expect("a folder");
        let name = |path: &PathBuf| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        };
        paths.iter().map(name).collect()
    }

    /// Joins studies into the folder `out`.
    fn report(&self, studies: &[&str], out: &str, more: &[&str]) -> (i32, String) {
        let mut command = axmem(&["report"]);
        command.args(studies.iter().map(|name| self.folder(name)));
        finish(command.args(more).arg("--out").arg(self.folder(out)))
    }

    /// The tables of rates of a study.
    fn estimate(&self, study: &str) -> PathBuf {
        let summary = self.summary(study);
        let key = summary["artefacts"]["estimate"].as_str().expect("a key");
        let stages = files::list(&self.root).expect("a store");
        let is_estimate = |stage: &PathBuf| stage.display().to_string().contains("/estimate-v");
        let stage = stages.into_iter().find(is_estimate);
        stage.expect("estimates").join(key)
    }

    /// The record of a study in a folder of its own, with another value of one setting.
    fn edited(&self, study: &str, name: &str, setting: &str, value: &Value) {
        let folder = self.folder(name);
        fs::create_dir_all(&folder).expect("a folder");
        let record = folder.join("record.json");
        fs::copy(self.folder(study).join("record.json"), &record).expect("a copy");
        change_json(&record, |record| {
            let (parent, last) = setting.rsplit_once('/').expect("a path");
            let parent = record["experiment"].pointer_mut(parent);
            match parent.expect(setting) {
                Value::Array(items) => {
                    items[last.parse::<usize>().expect("a place")] = value.clone();
                }
                parent => parent[last] = value.clone(),
            }
        });
    }
}

/// A section of a report in Markdown.
fn section<'a>(report: &'a str, title: &str) -> &'a str {
    let heading = format!("## {title}\n");
    let start = report.find(&heading).expect(title);
    let rest = &report[start..];
    let end = rest[heading.len()..].find("\n## ");
    &rest[..end.map_or(rest.len(), |end| heading.len() + end)]
}

/// Three studies of one model each say together what the ladder of the three says.
#[test]
fn studies_of_single_models_join_into_the_ladder() {
    let store = Store::new();
    store.run(&["analysis.threshold={rate: 0.05, exposures: 1}"]);
    let names = ["alone-0", "alone-1", "alone-2"];
    for (name, model) in names.iter().zip(MODELS) {
        store.run_alone(name, model, &[]);
    }
    let (code, text) = store.report(&names, "joined", &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("the report of 3 studies is "), "{text}");
    let (joined, ladder) = (store.summary("joined"), store.summary("smoke-ladder"));
    for part in ["estimates", "contrasts", "overlap", "threshold", "hazards"] {
        let sorted = |summary: &Value| {
            let rows = summary[part].as_array().expect("rows").iter();
            let mut rows: Vec<String> = rows.map(ToString::to_string).collect();
            rows.sort();
            rows
        };
        assert_eq!(sorted(&joined), sorted(&ladder), "{part}");
    }
    let artefacts = joined["artefacts"].as_object().expect("artefacts");
    for stage in ["corpus of alone-0, alone-1, alone-2", "estimate of alone-2"] {
        assert!(artefacts.contains_key(stage), "{artefacts:?}");
    }

    // What is about the data or one model is carried over.
    let [page, of_ladder] =
        ["joined", "smoke-ladder"].map(|name| store.read(&format!("{name}/report.md")));
    for title in [
        "Data",
        "Loss on held-out text",
        "Training curves",
        "Examples",
        "Exposure ledger",
    ] {
        assert_eq!(section(&page, title), section(&of_ladder, title));
    }
    assert!(
        section(&page, "Loss on held-out text").contains("large"),
        "{page}"
    );
    for figure in ["training.svg", "threshold.svg", "memorisation.svg"] {
        let [one, other] =
            ["joined", "smoke-ladder"].map(|name| store.read(&format!("{name}/{figure}")));
        assert!(one == other, "{figure}");
    }
    let question = section(&page, "The question");
    for words in [
        "Decided in each study before its training",
        "3 finished studies were joined afterwards",
        "a question that none of them asked before its training",
    ] {
        assert!(question.contains(words), "{question}");
    }
    let settings = section(&page, "Settings");
    for words in [
        "models.0.rate.peak",
        "Settings of alone-2 when its report was made",
    ] {
        assert!(settings.contains(words), "{settings}");
    }

    is_verified_and_damage_is_found(&store);
    figures_and_folders(&store, &names);
}

/// The joined report, and the studies, which share artefacts with the ladder.
fn is_verified_and_damage_is_found(store: &Store) {
    for name in ["joined", "smoke-ladder", "alone-0", "alone-2"] {
        let said = verify(&store.folder(name));
        assert_eq!(said.code, 0, "{name}: {}", said.list());
    }
    let trained = files::list(store.folder("train-v1")).expect("trained models");
    for path in [
        store.folder("joined/report.md"),
        store.folder("joined/threshold.png"),
        store.folder("joined/joined.json"),
        store.folder("alone-1/record.json"),
        store.estimate("alone-1").join("scores.parquet"),
        store.estimate("alone-1").join("manifest.json"),
        trained[0].join("steps.parquet"),
    ] {
        // Inside a value of the JSON files: the name of the machine, or the last hash.
        let bytes = fs::read(&path).expect("a file");
        let host = b"\"host\": \"";
        let host = bytes.windows(host.len()).position(|part| part == host);
        let at = host.map_or(bytes.len() - 40, |at| at + 9);
        let whole = flip(&path, at);
        let said = verify(&store.folder("joined"));
        fs::write(&path, whole).expect("a write");
        assert_eq!(said.code, 3, "{}: {}", path.display(), said.list());
        assert!(
            said.names(&path, &[]),
            "{}: {}",
            path.display(),
            said.list()
        );
    }
    let said = verify(&store.folder("joined"));
    assert_eq!((said.code, said.problems.len()), (0, 0), "{}", said.list());
}

/// Single figures, the report of one study, and folders that are not written to.
fn figures_and_folders(store: &Store, names: &[&str]) {
    for (figure, files) in [
        ("overlap", ["overlap.png", "overlap.svg"]),
        ("memorisation", ["memorisation.png", "memorisation.svg"]),
        ("training", ["training.png", "training.svg"]),
    ] {
        let (code, text) = store.report(names, figure, &["--figure", figure]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(" of 3 studies are in "), "{text}");
        assert_eq!(store.files(figure), files);
    }
    let (code, text) = store.report(names, "nothing", &["--figure", "dose"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("train.probes") && text.contains("--figure memorisation"),
        "{text}"
    );
    assert!(!store.folder("nothing").exists());

    let (code, text) = store.report(&["alone-0"], "copy", &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("the report of 1 study is "), "{text}");
    assert!(store.read("copy/report.md") == store.read("alone-0/report.md"));
    // The same again is no other report; another study, or a figure, is.
    assert_eq!(store.report(&["alone-0"], "copy", &[]).0, 0);
    for (study, more) in [("alone-1", &[][..]), ("alone-0", &["--figure", "overlap"])] {
        let (code, text) = store.report(&[study], "copy", more);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("joined.json is in it"), "{text}");
    }

    let before = store.read("alone-2/report.md");
    let (code, text) = store.report(&names[..2], "alone-2", &[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("record.json is in it"), "{text}");
    assert_eq!(store.read("alone-2/report.md"), before);

    let (code, text) = store.report(&["joined", "alone-0"], "nothing", &[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("is itself a joined report"), "{text}");
    assert!(!store.folder("nothing").exists());
}

/// Settings that may not differ: the place in a record, another value, and what is said of it.
fn unequal() -> Vec<(&'static str, Value, &'static str)> {
    let published = json!({
        "name": "middle", "published": { "source": "x.gguf", "sha256": null, "content": null },
        "dtype": "f32", "rate": { "peak": 0.01, "final": 0.001, "decay": "cosine" },
    });
    let grammar = |seed: u32| json!(format!("grammar:articles=48,sentences=14,seed={seed}"));
    vec![
        ("/models/0", published, "`model` is from random weights in "),
        ("/seed", json!(1), "`seed` is 0 in "),
        (
            "/corpus/source",
            grammar(3),
            "`corpus.source` is grammar:articles=48,sentences=14,seed=1 in ",
        ),
        (
            "/background/source",
            grammar(3),
            "`background.source` is grammar:articles=96,sentences=14,seed=2 in ",
        ),
        (
            "/background/held_out",
            json!(9),
            "`background.held_out` is 8 in ",
        ),
        (
            "/documents/min_tokens",
            json!(63),
            "`documents.min_tokens` is 64 in ",
        ),
        (
            "/documents/bos",
            json!("never"),
            "`documents.bos` is always in ",
        ),
        (
            "/documents/near_duplicates",
            Value::Null,
            "`documents.near_duplicates` is {",
        ),
        ("/buckets/size", json!(5), "`buckets.size` is 6 in "),
        ("/train/mix", json!(1), "`train.mix` is 0 in "),
        (
            "/train/placement",
            json!("first"),
            "`train.placement` is spread in ",
        ),
        (
            "/train/warmup/steps",
            json!(11),
            "`train.warmup.steps` is 10 in ",
        ),
        (
            "/train/optimizer/adamw/beta1",
            json!(0.8),
            "`train.optimizer.adamw.beta1` is 0.9 in ",
        ),
        ("/train/clip", json!(0.5), "`train.clip` is 1.0 in "),
        (
            "/train/arms/1/goldfish/k",
            json!(3),
            "`train.arms.goldfish.k` is 2 in ",
        ),
        (
            "/train/arms/1/goldfish/h",
            json!(5),
            "`train.arms.goldfish.h` is 4 in ",
        ),
        (
            "/train/arms/1/goldfish/compensate",
            json!("batch"),
            "`train.arms.goldfish.compensate` is none in ",
        ),
        ("/score/suffix", json!([10]), "`score.suffix` is [1,10] in "),
        ("/score/prefix", json!([20]), "`score.prefix` is "),
        (
            "/score/min_prefix",
            json!(21),
            "`score.min_prefix` is 20 in ",
        ),
        (
            "/analysis/margin",
            json!(0.1),
            "`analysis.margin` is 0.05 in ",
        ),
    ]
}

#[test]
fn studies_that_do_not_belong_together_are_not_joined() {
    let store = Store::new();
    store.run_alone("one", MODELS[0], &["train.probes={every: 4}"]);
    store.run_alone(
        "other",
        &MODELS[1].replace("{name: middle,", "{name: middle, batch: 2,"),
        &[],
    );
    for (setting, value, said) in unequal() {
        store.edited("other", "edited", setting, &value);
        let (code, text) = store.report(&["one", "edited"], "joined", &[]);
        assert_eq!(code, 2, "{setting}: {text}");
        assert!(text.contains(said), "{setting}: {text}");
        for name in ["one", "edited"] {
            let folder = store.folder(name).display().to_string();
            assert!(text.contains(&format!(" in {folder}")), "{setting}: {text}");
        }
        assert!(!store.folder("joined").exists(), "{setting}");
    }
    for (study, name, exposures) in [("one", "asks", 1), ("other", "asks-more", 2)] {
        let question = json!({ "rate": 0.05, "exposures": exposures });
        store.edited(study, name, "/analysis/threshold", &question);
    }
    let (code, text) = store.report(&["asks", "asks-more"], "joined", &[]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("`analysis.threshold.exposures` is 1 in "),
        "{text}"
    );

    let (code, text) = store.report(&["one", "one"], "joined", &[]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("two studies have a model called small"),
        "{text}"
    );
    let (code, text) = finish(axmem(&["report"]).arg(store.folder("one")));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("--out DIR"), "{text}");
    let (code, text) = store.report(&["one", "nothing"], "joined", &[]);
    assert_eq!(code, 3, "{text}");
    assert!(!store.folder("joined").exists());

    // Batches may differ, and one study may have been scored on the way.
    let (code, text) = store.report(&["one", "other"], "joined", &[]);
    assert_eq!(code, 0, "{text}");
    assert!(store.folder("joined/dose.png").is_file());
    let page = store.read("joined/report.md");
    assert!(
        section(&page, "Settings").contains("models.0.batch"),
        "{page}"
    );

    changed_scores(&store);
}

/// A table with another content than on record, and one with other documents in a bucket.
fn changed_scores(store: &Store) {
    let folder = store.estimate("other");
    let scores = folder.join("scores.parquet");
    edit(&scores, |rows: &mut Vec<ScoreRow>| {
        let cluster = rows[0].score.cluster.clone();
        let same = rows.iter_mut().filter(|row| row.score.cluster == cluster);
        same.for_each(|row| row.epochs = 7);
    });
    let (code, text) = store.report(&["one", "other"], "again", &[]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("scores.parquet has "), "{text}");
    record_hash(&folder, &scores);
    let (code, text) = store.report(&["one", "other"], "again", &[]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("have different documents in their buckets"),
        "{text}"
    );
    assert!(!store.folder("again").exists());
}
