//! What a study trains on beside its buckets has nothing of them, and is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use axmem_datasets::background::PackedRow;
use axmem_datasets::bucket::Assignment;
use axmem_datasets::contamination::Contamination;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::near_duplicates::NearDuplicate;
use axmem_datasets::table::{self, Record};
use axmem_datasets::tokenizer::Tokenizer;

use crate::support::{axmem, finish, run_smoke, smoke};

/// Words of which no two articles share a run.
fn words(article: &str, count: usize) -> String {
    (0..count).fold(String::new(), |mut text, word| {
        write!(text, "{article}w{word} ").expect("a string");
        text
    })
}

/// JSON lines of articles (id, text), each with a title of its own.
fn write_articles(path: &Path, articles: &[(String, String)]) {
    let lines: Vec<String> = articles
        .iter()
        .map(|(id, text)| {
            let article = serde_json::json!({ "id": id, "title": format!("T {id}"), "text": text });
            article.to_string()
        })
        .collect();
    fs::write(path, lines.join("\n")).expect("a write");
}

/// The rows of a table of the only artefact of a stage.
fn rows<R: Record>(store: &Path, stage: &str, name: &str) -> Vec<R> {
    let mut folders: Vec<PathBuf> = fs::read_dir(store.join(stage))
        .expect("artefacts")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(folders.len(), 1, "{stage}");
    table::read(folders.remove(0).join(name)).expect("a table")
}

#[test]
fn no_copy_of_a_probed_window_is_trained_on_as_background() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    // Of 30 pairs, both begin with the same window; then 60 articles without a copy.
    let mut articles = Vec::new();
    let mut copies = Vec::new();
    for pair in 0..30 {
        let begin = words(&format!("p{pair}"), 45);
        for half in ["a", "b"] {
            let text = format!("{begin}{}", words(&format!("p{pair}{half}"), 60));
            articles.push((format!("pair{pair}{half}"), text));
        }
        copies.push((format!("copy{pair}"), articles[2 * pair + 1].1.clone()));
    }
    for single in 0..60 {
        articles.push((format!("single{single}"), words(&format!("s{single}"), 105)));
    }
    write_articles(&path("corpus.jsonl"), &articles);
    copies.extend((0..40).map(|other| (format!("other{other}"), words(&format!("o{other}"), 105))));
    write_articles(&path("background.jsonl"), &copies);
    let texts = articles.iter().map(|article| article.1.clone());
    let tokenizer = Tokenizer::train_bpe(texts, 300).expect("a tokenizer");
    tokenizer.save(path("tokenizer.json")).expect("a write");

    let rest_of_corpus = "background={rows: 20, held_out: 5}".to_owned();
    let elsewhere = format!(
        "background={{source: '{}', rows: 20, held_out: 5}}",
        path("background.jsonl").display()
    );
    for (name, background) in [("corpus", rest_of_corpus), ("elsewhere", elsewhere)] {
        let store = path(name);
        let sets = [
            format!("corpus.source={}", path("corpus.jsonl").display()),
            format!("tokenizer={{file: '{}'}}", path("tokenizer.json").display()),
            background,
            "documents={tokens: 40, min_tokens: 40}".to_owned(),
            "buckets={size: 20, epochs: [0, 1], trials: 1}".to_owned(),
            "train.warmup.steps=2".to_owned(),
            "score={suffix: [10], min_prefix: 10}".to_owned(),
        ];
        let mut command = axmem(&["bucket"]);
        command.arg(smoke()).arg("--store").arg(&store);
        for set in &sets {
            command.args(["--set", set]);
        }
        let (code, text) = finish(&mut command);
        assert_eq!(code, 0, "{name}: {text}");

        let tokens: Vec<TokenDocument> = rows(&store, "tokens-v2", "tokens.parquet");
        let buckets: Vec<Assignment> = rows(&store, "buckets-v2", "buckets.parquet");
        let background: Vec<PackedRow> = rows(&store, "buckets-v2", "background.parquet");
        let probed: BTreeSet<&str> = buckets.iter().map(|row| row.cluster.as_str()).collect();
        let clusters: BTreeMap<&str, &str> = tokens
            .iter()
            .map(|row| (row.article.as_str(), row.cluster.as_str()))
            .collect();
        let refused = tokens.iter().filter(|row| !row.eligible).count();
        assert_eq!(refused, 30, "the second of each pair");
        let used: Vec<&str> = background
            .iter()
            .flat_map(|row| &row.documents)
            .map(String::as_str)
            .collect();
        assert!(used.len() >= 15, "{name}");
        for document in used {
            let article = match document.strip_prefix("background/") {
                Some(id) => id.replace("copy", "pair") + "b",
                None => document.to_owned(),
            };
            if let Some(cluster) = clusters.get(article.as_str()) {
                assert!(!probed.contains(cluster), "{name}: {document} of {cluster}");
            }
            assert!(
                !tokens
                    .iter()
                    .any(|row| row.article == document && !row.eligible)
            );
        }
    }
}

#[test]
fn edited_copies_are_told_of_and_are_in_one_bucket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let mut articles = Vec::new();
    for number in 0..30 {
        let text = words(&format!("p{number}"), 105);
        let copy = format!("A new beginning. {}", text.replace("w40 ", "forty "));
        articles.push((format!("pair{number}a"), text));
        articles.push((format!("pair{number}b"), copy));
    }
    write_articles(&path("corpus.jsonl"), &articles);
    let texts = articles.iter().map(|article| article.1.clone());
    let tokenizer = Tokenizer::train_bpe(texts, 300).expect("a tokenizer");
    tokenizer.save(path("tokenizer.json")).expect("a write");
    let sets = [
        format!("corpus.source={}", path("corpus.jsonl").display()),
        format!("tokenizer={{file: '{}'}}", path("tokenizer.json").display()),
        "documents={tokens: 40, min_tokens: 40}".to_owned(),
        "buckets={size: 10, epochs: [0, 1], trials: 1}".to_owned(),
        "train.warmup.steps=2".to_owned(),
        "score={suffix: [10], min_prefix: 10}".to_owned(),
    ];
    let mut command = axmem(&["bucket"]);
    command.arg(smoke()).arg("--store").arg(path("store"));
    for set in &sets {
        command.args(["--set", set]);
    }
    let (code, text) = finish(&mut command);
    assert_eq!(code, 0, "{text}");
    let told = "60 articles are near-copies of each other, in 30 clusters of up to 2 articles";
    assert!(text.contains(told), "{text}");

    let store = path("store");
    let pairs: Vec<NearDuplicate> = rows(&store, "tokens-v2", "near_duplicates.parquet");
    assert_eq!(pairs.len(), 30);
    for pair in &pairs {
        assert!(pair.text.split_whitespace().count() <= 26, "{}", pair.text);
        let number = pair.first.trim_matches(|c: char| !c.is_ascii_digit());
        assert!(pair.text.contains(&format!("p{number}w")), "{pair:?}");
    }
    let buckets: Vec<Assignment> = rows(&store, "buckets-v2", "buckets.parquet");
    assert_eq!(buckets.len(), 40, "20 clusters of two");
    let mut levels: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for row in &buckets {
        let article = row.document.trim_end_matches(['a', 'b']);
        levels.entry(article).or_default().insert(row.epochs);
    }
    assert!(levels.values().all(|levels| levels.len() == 1));
    let shared: Vec<Contamination> = rows(&store, "buckets-v2", "contamination.parquet");
    assert_eq!(shared.len(), 20);
    assert!(shared.iter().all(|row| row.run < 39), "no whole window");
}

#[test]
fn a_schedule_that_cannot_be_is_refused_before_anything_is_trained() {
    let folder = tempfile::tempdir().expect("a folder");
    // The arm without mask needs 18 rows of the 20 left after the warm-up, the other one 36.
    let compensated = [
        "--set",
        "train.mix=1",
        "--set",
        "background.rows=60",
        "--set",
        "train.arms=[standard, {goldfish: {k: 2, h: 4, compensate: presentations}}]",
    ];
    let crowded = [
        "--set",
        "train.warmup.steps=2",
        "--set",
        "train.batch=16",
        "--set",
        "buckets.epochs=[0, 1, 4]",
    ];
    for (sets, sentence) in [
        (&compensated[..], "train.mix 1 needs 36 background rows"),
        (&crowded[..], "none may hold it twice"),
        (
            &["--set", "train.warmup.steps=11"],
            "take 44 background rows, 40 are there",
        ),
    ] {
        let (code, text) = finish(&mut run_smoke(folder.path(), sets));
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(sentence), "{text}");
        assert!(!folder.path().join("warmup-v1").exists(), "{text}");
    }
    // The buckets know nothing of `mix`: found in the store, the warm-up still refuses.
    let enough = ["--set", "background.rows=60"];
    let mut bucket = axmem(&["bucket"]);
    bucket
        .arg(smoke())
        .arg("--store")
        .arg(folder.path())
        .args(enough);
    assert_eq!(finish(&mut bucket).0, 0);
    let (code, text) = finish(&mut run_smoke(folder.path(), &compensated));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("stage warmup"), "{text}");
}
