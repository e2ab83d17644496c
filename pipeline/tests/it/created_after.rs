//! A second control from a later dump: what is in it, what it leaves alone, and what the report says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use axmem_datasets::background::{Exclusion, RUN};
use axmem_datasets::contamination::Contamination;
use axmem_datasets::created_after::SnapshotRun;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::{files, table};
use axmem_eval::estimate::Estimate;
use axmem_eval::{ScoreRow, Time};
use serde_json::Value;

use crate::support::{axmem, finish, run_smoke};

/// Pages of the later dump that are new; no page of another kind is behind the last of them in the draw.
const NEW: [u32; 12] = [
    1001, 1002, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1023,
];

/// Words of which no two texts share a run.
fn words(text: &str, count: usize) -> String {
    (0..count).fold(String::new(), |mut all, word| {
        write!(all, "{text}w{word} ").expect("a string");
        all
    })
}

fn page(id: u32, title: &str, more: &str) -> String {
    format!("<page><title>{title}</title><ns>0</ns><id>{id}</id>{more}</page>\n")
}

fn article(id: u32, title: &str, text: &str) -> String {
    let more = format!("<revision><id>9</id><text>{text}</text></revision>");
    page(id, title, &more)
}

fn write_dump(path: &Path, pages: &[String]) {
    let text = format!("<mediawiki>\n{}</mediawiki>\n", pages.concat());
    fs::write(path, text).expect("a write");
}

/// 48 articles with ids up to 480.
fn snapshot() -> Vec<String> {
    (1..=48)
        .map(|number| {
            let text = words(&format!("old{number}"), 40);
            article(10 * number, &format!("Old {number}"), &text)
        })
        .collect()
}

/// The same with new pages, and with older text under new ids.
fn later() -> Vec<String> {
    let mut pages = snapshot();
    pages.extend(NEW.map(|id| {
        let text = words(&format!("new{id}"), 40);
        article(id, &format!("New {id}"), &text)
    }));
    pages.push(article(1003, "Short", "a few words"));
    pages.push(article(1020, "old_5", &words("moved", 40)));
    let target = "<redirect title=\"Elsewhere\" /><revision><id>9</id><text>#REDIRECT [[Elsewhere]]</text></revision>";
    pages.push(page(1021, "Old 6", target));
    let quoting = format!("preface {}", words("old7", 40));
    pages.push(article(1022, "Quoting", &quoting));
    pages
}

/// The two dumps in a folder.
struct Dumps {
    folder: tempfile::TempDir,
}

impl Dumps {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        write_dump(&folder.path().join("old.xml"), &snapshot());
        write_dump(&folder.path().join("later.xml"), &later());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The smoke study on the older dump, without its second control.
    fn without(&self) -> Command {
        let corpus = format!("corpus={{source: '{}'}}", self.path("old.xml").display());
        run_smoke(&self.path("store"), &["--set", &corpus])
    }

    /// The same with so many pages of the later dump.
    fn with(&self, size: usize) -> Command {
        let later = self.path("later.xml");
        let set = format!(
            "created_after={{corpus: {{source: '{}'}}, size: {size}}}",
            later.display()
        );
        let mut command = self.without();
        command.args(["--set", &set]);
        command
    }

    /// Rows of one table of all artefacts of a stage.
    fn rows<R: table::Record>(&self, stage: &str, name: &str) -> Vec<R> {
        let folders = self.artefacts(stage);
        let read = |folder: &PathBuf| table::read(folder.join(name)).expect("a table");
        folders.iter().flat_map(read).collect()
    }

    /// The artefacts of a stage, of whatever version it has.
    fn artefacts(&self, stage: &str) -> Vec<PathBuf> {
        let stages = files::list(self.path("store")).unwrap_or_default();
        let mut stages = stages.into_iter().filter(|folder| {
            let name = folder.file_name().expect("a name").to_string_lossy();
            let version = name.strip_prefix(stage);
            version.is_some_and(|version| version.starts_with("-v"))
        });
        let folder = stages.next();
        folder.map_or_else(Vec::new, |folder| files::list(folder).expect("artefacts"))
    }

    fn report(&self, name: &str) -> String {
        fs::read_to_string(self.path("store/smoke").join(name)).expect("a report")
    }
}

#[test]
fn a_second_control_is_drawn_scored_and_reported_and_changes_nothing_else() {
    let dumps = Dumps::new();
    let (code, text) = finish(&mut dumps.without());
    assert_eq!(code, 0, "{text}");
    assert!(!dumps.report("report.md").contains("Created after"));
    let before: BTreeSet<PathBuf> = ["score", "train", "estimate"]
        .iter()
        .flat_map(|stage| dumps.artefacts(stage))
        .collect();
    let (code, text) = finish(&mut dumps.with(NEW.len()));
    assert_eq!(code, 0, "{text}");

    drawn(&dumps);
    scored(&dumps);
    for stage in ["score", "train"] {
        for folder in dumps.artefacts(stage) {
            assert!(before.contains(&folder), "{} is new", folder.display());
        }
    }
    unchanged(&dumps, &before);
    reported(&dumps);
    verified(&dumps);
}

/// Exactly the new pages, and why each of the others is none.
fn drawn(dumps: &Dumps) {
    let documents: Vec<TokenDocument> = dumps.rows("created_after", "created_after.parquet");
    let names: BTreeSet<String> = documents.iter().map(|row| row.document.clone()).collect();
    assert_eq!(names, NEW.map(|id| format!("created_after/{id}")).into());
    assert_eq!(documents.len(), NEW.len());
    assert!(documents.iter().all(|row| row.ids.len() == 64));
    let excluded: Vec<Exclusion> = dumps.rows("created_after", "exclusions.parquet");
    let reasons: BTreeMap<&str, (String, &str)> = excluded
        .iter()
        .map(|row| (&*row.document, (row.reason.to_string(), &*row.other)))
        .collect();
    let expected = [
        ("created_after/1003", "too short", ""),
        ("created_after/1020", "title", "50"),
        ("created_after/1021", "redirect", "Elsewhere"),
        ("created_after/1022", "run of 50 ids", "70"),
    ];
    let expected = expected.map(|(name, reason, other)| (name, (reason.to_owned(), other)));
    assert_eq!(reasons, expected.into());
    let shared: Vec<SnapshotRun> = dumps.rows("created_after", "snapshot_runs.parquet");
    assert_eq!(shared.len(), NEW.len());
    assert!(shared.iter().all(|row| (row.run as usize) < RUN));
    let trained: Vec<Contamination> = dumps.rows("created_after", "contamination.parquet");
    assert_eq!(trained.len(), 2 * NEW.len(), "in each of two trials");
}

/// Scored at every time of both trials and arms, at no level.
fn scored(dumps: &Dumps) {
    assert_eq!(dumps.artefacts("created_after_score").len(), 2 + 2 + 4);
    let scores: Vec<ScoreRow> = dumps.rows("created_after_score", "scores.parquet");
    assert_eq!(scores.len(), 8 * NEW.len());
    assert!(scores.iter().all(|row| row.epochs == 0));
    let of_buckets: Vec<ScoreRow> = dumps.rows("score", "scores.parquet");
    let is_later = |row: &ScoreRow| row.score.document.starts_with("created_after/");
    assert!(scores.iter().all(is_later) && !of_buckets.iter().any(is_later));
    let estimates: Vec<Estimate> = with_group(dumps)
        .map(|folder| table::read(folder.join("created_after_estimates.parquet")).expect("a table"))
        .expect("rates of the group");
    assert!(estimates.iter().all(|row| row.bucket == "created_after"));
    for (trial, method, documents) in [
        ("0", "wilson", 12),
        ("1", "clopper_pearson", 12),
        ("pooled", "korn_graubard", 24),
    ] {
        let of = estimates
            .iter()
            .filter(|row| row.trial == trial && row.method == method);
        let cells: BTreeSet<(&str, Time, u32)> = of
            .clone()
            .map(|row| (row.arm.as_str(), row.time, row.suffix))
            .collect();
        assert_eq!(cells.len(), 2 * 3 * 2, "arms, times, suffixes");
        assert!(
            of.clone()
                .all(|row| row.documents == documents && row.clusters == 12)
        );
        assert!(of.clone().all(|row| row.exposures_nominal == 0));
    }
}

/// The artefact of `estimate` that has the group.
fn with_group(dumps: &Dumps) -> Option<PathBuf> {
    let mut folders = dumps.artefacts("estimate").into_iter();
    folders.find(|folder| folder.join("created_after_scores.parquet").exists())
}

/// All other tables of `estimate` have the bytes that they have without the group.
fn unchanged(dumps: &Dumps, before: &BTreeSet<PathBuf>) {
    let after = with_group(dumps).expect("an artefact");
    let mut without = dumps.artefacts("estimate").into_iter();
    let without = without.find(|folder| before.contains(folder));
    let without = without.expect("an artefact");
    assert!(!without.join("created_after_scores.parquet").exists());
    for name in [
        "scores",
        "estimates",
        "contrasts",
        "overlap",
        "transitions",
        "hazards",
        "exposures",
    ] {
        let hash = |folder: &Path| files::sha256_file(folder.join(format!("{name}.parquet")));
        assert_eq!(
            hash(&after).expect("a hash"),
            hash(&without).expect("a hash"),
            "{name}"
        );
    }
}

/// A section of its own, in words that claim no more than the ids show.
fn reported(dumps: &Dumps) {
    let text = dumps.report("report.md");
    let (_, section) = text
        .split_once("Created after the snapshot\n")
        .expect("a section");
    for words in [
        "A second control: 12 pages",
        "whose id is above 480, the largest of the 48 pages",
        "16 of the 16 articles and redirects above that id were looked at",
        "4 of them excluded (redirect: 1; run of 50 ids: 1; title: 1; too short: 1)",
        "48 have the id and title of one in the snapshot",
        "with an article of the snapshot is shorter than 8;",
        "Clopper-Pearson",
    ] {
        assert!(section.contains(words), "{words}: {section}");
    }
    for name in ["report.md", "report.html"] {
        let report = dumps.report(name).to_lowercase();
        assert!(!report.contains("unseen"), "{name}");
        assert!(report.contains("created after the snapshot"), "{name}");
    }
    let summary: Value = serde_json::from_str(&dumps.report("summary.json")).expect("JSON");
    let group = &summary["created_after"];
    assert_eq!(group["documents"], 12);
    assert_eq!(group["counts"]["largest_id"], 480);
    assert_eq!(group["excluded"]["title"], 1);
    assert!(
        group["estimates"]
            .as_array()
            .is_some_and(|rows| !rows.is_empty())
    );
    let rates = summary["estimates"].as_array().expect("rates");
    assert!(rates.iter().all(|row| row["bucket"] != "created_after"));
}

/// `verify` makes its rates again, and finds an edited one.
fn verified(dumps: &Dumps) {
    let verify = || {
        let mut command = axmem(&["verify"]);
        command.arg(dumps.path("store/smoke"));
        finish(&mut command)
    };
    let (code, text) = verify();
    assert_eq!(code, 0, "{text}");
    let path = with_group(dumps)
        .expect("an artefact")
        .join("created_after_estimates.parquet");
    let mut rows: Vec<Estimate> = table::read(&path).expect("a table");
    rows[0].rate += 0.125;
    table::write(&path, &rows).expect("a write");
    let (code, text) = verify();
    assert_eq!(code, 3, "{text}");
    let named =
        |line: &&str| line.contains("created_after_estimates.parquet") && line.contains("rate");
    assert!(text.lines().any(|line| named(&line)), "{text}");
}

#[test]
fn a_dump_that_is_missing_or_too_small_is_named_before_training() {
    let dumps = Dumps::new();
    let (code, text) = finish(&mut dumps.with(13));
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("asks for 13 documents, 12 are possible"),
        "{text}"
    );
    assert!(dumps.artefacts("train").is_empty());
    fs::remove_file(dumps.path("later.xml")).expect("a removal");
    let (code, text) = finish(dumps.with(12).arg("--dry-run"));
    assert_eq!(code, 0, "a plan needs no dump: {text}");
    fs::remove_dir_all(dumps.path("store")).expect("a removal");
    let (code, text) = finish(&mut dumps.with(12));
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains("created_after.corpus.source: there is no"),
        "{text}"
    );
    assert!(dumps.artefacts("corpus").is_empty(), "nothing was begun");
}

#[test]
fn an_explicit_snapshot_may_be_older_than_the_corpus() {
    let dumps = Dumps::new();
    // Pages 10 to 240 are the snapshot; 250 to 480 came after it, and some of them are in buckets.
    write_dump(&dumps.path("older.xml"), &snapshot()[..24]);
    let set = format!(
        "created_after.snapshot={{source: '{}'}}",
        dumps.path("older.xml").display()
    );
    let mut command = dumps.with(NEW.len());
    command.args(["--set", &set]);
    let (code, text) = finish(&mut command);
    assert_eq!(code, 0, "{text}");
    let documents: Vec<TokenDocument> = dumps.rows("created_after", "created_after.parquet");
    let buckets: Vec<axmem_datasets::bucket::Assignment> = dumps.rows("buckets", "buckets.parquet");
    let probed: BTreeSet<&str> = buckets.iter().map(|row| row.document.as_str()).collect();
    let page = |name: &str| {
        name.strip_prefix("created_after/")
            .expect("its origin")
            .to_owned()
    };
    let drawn: BTreeSet<String> = documents.iter().map(|row| page(&row.document)).collect();
    assert_eq!(drawn.len(), NEW.len());
    assert!(
        drawn.iter().all(|page| !probed.contains(&**page)),
        "{drawn:?}"
    );
    assert!(
        drawn
            .iter()
            .all(|page| page.parse::<u32>().is_ok_and(|page| page > 240))
    );
    assert!(dumps.report("report.md").contains("above 240"));
}
