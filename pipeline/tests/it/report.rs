//! The report from small tables in the schema of the stages.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};

use axmem::report::{self, Artefact, Inputs, Joined};
use axmem_datasets::contamination::Contamination;
use axmem_datasets::near_duplicates::NearDuplicate;
use axmem_datasets::table;
use axmem_datasets::tokenizer::Tokenizer;
use polars::prelude::{Column, DataFrame, NamedFrom, ParquetWriter, Series};
use serde_json::{Value, json};

const SUFFIX: usize = 12;
const SIZE: u32 = 24;
const LEVELS: [u32; 4] = [0, 8, 32, 96];
const TIMES: [&str; 3] = ["initial", "warm", "after"];

/// Hits after training, of [`SIZE`] documents, by arm and level.
type Hits = fn(arm: &str, level: u32) -> u64;

/// A study to make up.
pub(crate) struct Shape {
    pub models: &'static [&'static str],
    pub arms: &'static [&'static str],
    pub trials: u32,
    pub hits: Hits,
}

fn typical(arm: &str, level: u32) -> u64 {
    match (arm, level) {
        ("standard", 96) => 16,
        ("standard", 32) => 3,
        _ => 0,
    }
}

const QUICKSTART: Shape = Shape {
    models: &["llama-4m"],
    arms: &["standard", "goldfish-k2-h13"],
    trials: 1,
    hits: typical,
};

fn put(path: &Path, columns: Vec<Series>) -> PathBuf {
    let height = columns[0].len();
    let columns: Vec<Column> = columns.into_iter().map(Column::from).collect();
    let mut frame = DataFrame::new(height, columns).unwrap();
    ParquetWriter::new(fs::File::create(path).unwrap())
        .finish(&mut frame)
        .unwrap();
    path.to_owned()
}

fn column<T>(name: &str, values: &[T]) -> Series
where
    Series: for<'a> NamedFrom<&'a [T], [T]>,
{
    Series::new(name.into(), values)
}

fn texts<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Series {
    Series::new(name.into(), values.into_iter().collect::<Vec<&str>>())
}

fn lists(name: &str, values: impl IntoIterator<Item = Vec<u32>>) -> Series {
    let items: Vec<Series> = values
        .into_iter()
        .map(|ids| Series::new("".into(), ids))
        .collect();
    Series::new(name.into(), items)
}

fn wilson(hits: u64, size: u64) -> (f64, f64) {
    let (hits, size, z) = (hits as f64, size as f64, 1.959_964);
    let rate = hits / size;
    let center = rate + z * z / (2.0 * size);
    let half = z * (rate * (1.0 - rate) / size + z * z / (4.0 * size * size)).sqrt();
    let scale = 1.0 + z * z / size;
    (
        ((center - half) / scale).max(0.0),
        ((center + half) / scale).min(1.0),
    )
}

fn bucket(level: u32) -> String {
    if level == 0 {
        "control".to_owned()
    } else {
        level.to_string()
    }
}

/// One cell of the design.
struct Cell {
    model: &'static str,
    arm: &'static str,
    trial: String,
    level: u32,
    time: &'static str,
    hits: u64,
    size: u64,
}

fn cells(shape: &Shape) -> Vec<Cell> {
    let mut trials: Vec<(String, u64)> = (0..shape.trials)
        .map(|trial| (trial.to_string(), u64::from(SIZE)))
        .collect();
    trials.push(("pooled".to_owned(), u64::from(SIZE * shape.trials)));
    let mut cells = Vec::new();
    for model in shape.models {
        for arm in shape.arms {
            for (trial, size) in &trials {
                for level in LEVELS {
                    for time in TIMES {
                        let hits = if time == "after" {
                            (shape.hits)(arm, level)
                        } else {
                            0
                        };
                        cells.push(Cell {
                            model,
                            arm,
                            trial: trial.clone(),
                            level,
                            time,
                            hits: hits * size / u64::from(SIZE),
                            size: *size,
                        });
                    }
                }
            }
        }
    }
    cells
}

fn estimates(shape: &Shape, kept: f64, path: &Path) -> PathBuf {
    let methods = ["wilson", "clopper_pearson", "bootstrap"];
    let cells = cells(shape);
    let rows: Vec<(&Cell, &str)> = cells
        .iter()
        .flat_map(|cell| methods.map(|method| (cell, method)))
        .collect();
    let buckets: Vec<String> = rows.iter().map(|(cell, _)| bucket(cell.level)).collect();
    let each = |value: &dyn Fn(&Cell) -> f64| -> Vec<f64> {
        rows.iter().map(|(cell, _)| value(cell)).collect()
    };
    let counts = |value: &dyn Fn(&Cell) -> u64| -> Vec<u64> {
        rows.iter().map(|(cell, _)| value(cell)).collect()
    };
    let accuracy = |cell: &Cell| {
        let trained = if cell.time == "after" {
            f64::from(cell.level).sqrt() / 12.0
        } else {
            0.0
        };
        (0.15 + trained * if cell.arm == "standard" { 1.0 } else { 0.45 }).min(0.99)
    };
    let bounds = |cell: &Cell| wilson(cell.hits, cell.size);
    let nominal: Vec<u32> = rows.iter().map(|(cell, _)| cell.level).collect();
    put(
        path,
        vec![
            texts("model", rows.iter().map(|(cell, _)| cell.model)),
            column("parameters", &counts(&|_| 3_700_000)),
            texts("family", rows.iter().map(|_| "llama")),
            texts("tokenizer", rows.iter().map(|_| "0123abcd")),
            texts("arm", rows.iter().map(|(cell, _)| cell.arm)),
            texts("trial", rows.iter().map(|(cell, _)| cell.trial.as_str())),
            texts("bucket", buckets.iter().map(String::as_str)),
            column("exposures_nominal", &nominal),
            column(
                "exposures_ledger",
                &each(&|cell| f64::from(cell.level) * kept),
            ),
            texts("time", rows.iter().map(|(cell, _)| cell.time)),
            column("suffix", &vec![SUFFIX as u32; rows.len()]),
            texts("prefix", rows.iter().map(|_| "all")),
            column("documents", &counts(&|cell| cell.size)),
            column("clusters", &counts(&|_| u64::from(SIZE))),
            column("hits", &counts(&|cell| cell.hits)),
            column("fragile", &counts(&|cell| u64::from(cell.hits > 5))),
            column(
                "hits_without_fragile",
                &counts(&|cell| cell.hits - u64::from(cell.hits > 5)),
            ),
            column("hits_with_fragile", &counts(&|cell| cell.hits)),
            column("token_accuracy", &each(&accuracy)),
            column(
                "mean_log_probability",
                &each(&|cell| -200.0 * (1.0 - accuracy(cell))),
            ),
            column("rate", &each(&|cell| cell.hits as f64 / cell.size as f64)),
            column("low", &each(&|cell| bounds(cell).0)),
            column("high", &each(&|cell| bounds(cell).1)),
            column("level", &each(&|_| 0.95)),
            texts("method", rows.iter().map(|(_, method)| *method)),
            texts("dtype", rows.iter().map(|_| "f32")),
        ],
    )
}

fn contrasts(shape: &Shape, kind: &str, path: &Path) -> PathBuf {
    let rows: Vec<Cell> = cells(shape)
        .into_iter()
        .filter(|cell| cell.trial == "pooled" && cell.time == "after" && cell.level > 0)
        .collect();
    let buckets: Vec<String> = rows.iter().map(|cell| bucket(cell.level)).collect();
    let rate = |cell: &Cell| cell.hits as f64 / cell.size as f64;
    let bound = |side: f64| -> Vec<f64> {
        let half = |cell: &Cell| 1.96 * (rate(cell) * (1.0 - rate(cell)) / cell.size as f64).sqrt();
        rows.iter()
            .map(|cell| rate(cell) + side * half(cell))
            .collect()
    };
    let clusters = vec![u64::from(2 * SIZE); rows.len()];
    let p = |found: f64, open: f64| -> Vec<f64> {
        let of = |cell: &Cell| if cell.hits > 5 { found } else { open };
        rows.iter().map(of).collect()
    };
    put(
        path,
        vec![
            texts("model", rows.iter().map(|cell| cell.model)),
            texts("arm", rows.iter().map(|cell| cell.arm)),
            texts("bucket", buckets.iter().map(String::as_str)),
            texts("kind", rows.iter().map(|_| kind)),
            texts("measure", rows.iter().map(|_| "exact")),
            column("suffix", &vec![SUFFIX as u32; rows.len()]),
            texts("prefix", rows.iter().map(|_| "all")),
            texts("from", rows.iter().map(|_| "warm")),
            texts("to", rows.iter().map(|_| "after")),
            column("estimate", &rows.iter().map(rate).collect::<Vec<f64>>()),
            column("low", &bound(-1.0)),
            column("high", &bound(1.0)),
            column("level", &vec![0.95; rows.len()]),
            column("p", &p(1e-6, 0.4)),
            column("p_adjusted", &p(6e-6, 0.8)),
            texts("family", rows.iter().map(|_| "primary")),
            texts("method", rows.iter().map(|_| "bootstrap")),
            column("detectable", &vec![Some(0.21_f64); rows.len()]),
            column("z", &vec![None::<f64>; rows.len()]),
            column("clusters", &clusters),
        ],
    )
}

fn document(level: u32, index: u32) -> String {
    format!("{}", 1000 + level * 100 + index)
}

fn overlap(shape: &Shape, dir: &Path) -> (PathBuf, PathBuf) {
    let rows: Vec<Cell> = cells(shape)
        .into_iter()
        .filter(|cell| cell.trial == "0" && cell.time == "after")
        .collect();
    let buckets: Vec<String> = rows.iter().map(|cell| bucket(cell.level)).collect();
    let zeros = vec![0_u64; rows.len()];
    let common = |rows: &[&Cell], buckets: &[String]| {
        vec![
            texts("model", rows.iter().map(|cell| cell.model)),
            texts("arm", rows.iter().map(|cell| cell.arm)),
            texts("trial", rows.iter().map(|cell| cell.trial.as_str())),
            texts("bucket", buckets.iter().map(String::as_str)),
            column("suffix", &vec![SUFFIX as u32; rows.len()]),
            texts("prefix", rows.iter().map(|_| "all")),
            texts("from", rows.iter().map(|_| "warm")),
            texts("to", rows.iter().map(|_| "after")),
        ]
    };
    let mut columns = common(&rows.iter().collect::<Vec<_>>(), &buckets);
    columns.extend([
        column("kept", &zeros),
        column(
            "gained",
            &rows.iter().map(|cell| cell.hits).collect::<Vec<u64>>(),
        ),
        column("lost", &zeros),
        column(
            "never",
            &rows
                .iter()
                .map(|cell| cell.size - cell.hits)
                .collect::<Vec<u64>>(),
        ),
        column("jaccard", &vec![None::<f64>; rows.len()]),
    ]);
    let overlap = put(&dir.join("overlap.parquet"), columns);

    let expanded: Vec<(&Cell, u32)> = rows
        .iter()
        .flat_map(|cell| (0..SIZE).map(move |index| (cell, index)))
        .collect();
    let buckets: Vec<String> = expanded
        .iter()
        .map(|(cell, _)| bucket(cell.level))
        .collect();
    let documents: Vec<String> = expanded
        .iter()
        .map(|(cell, index)| document(cell.level, *index))
        .collect();
    let mut columns = common(
        &expanded.iter().map(|(cell, _)| *cell).collect::<Vec<_>>(),
        &buckets,
    );
    columns.push(texts("document", documents.iter().map(String::as_str)));
    columns.push(texts(
        "state",
        expanded.iter().map(|(cell, index)| {
            if u64::from(*index) < cell.hits {
                "gained"
            } else {
                "never"
            }
        }),
    ));
    let transitions = put(&dir.join("transitions.parquet"), columns);
    (overlap, transitions)
}

const SENTENCE: &str = "The river rises in the northern hills & runs through three valleys \
    before it meets the sea beside the old harbour where <ferries> leave each morning";

fn scores(shape: &Shape, tokenizer: &Tokenizer, path: &Path) -> PathBuf {
    let ids = tokenizer.encode(SENTENCE).unwrap();
    let target = ids[ids.len() - SUFFIX..].to_vec();
    let rows: Vec<(Cell, u32)> = cells(shape)
        .into_iter()
        .filter(|cell| cell.trial == "0" && cell.time == "after")
        .flat_map(|cell| {
            (0..SIZE).map(move |index| {
                (
                    Cell {
                        trial: cell.trial.clone(),
                        ..cell
                    },
                    index,
                )
            })
        })
        .collect();
    let exact = |(cell, index): &(Cell, u32)| u64::from(*index) < cell.hits;
    let documents: Vec<String> = rows
        .iter()
        .map(|(cell, index)| document(cell.level, *index))
        .collect();
    let generated = |row: &(Cell, u32)| {
        let mut generated = target.clone();
        if !exact(row) {
            generated[3..].reverse();
        }
        generated
    };
    let flags: Vec<Series> = rows
        .iter()
        .map(|row| Series::new("".into(), [exact(row), exact(row)]))
        .collect();
    put(
        path,
        vec![
            texts("model", rows.iter().map(|(cell, _)| cell.model)),
            texts("arm", rows.iter().map(|(cell, _)| cell.arm)),
            column("trial", &vec![0_u32; rows.len()]),
            texts("time", rows.iter().map(|(cell, _)| cell.time)),
            texts("document", documents.iter().map(String::as_str)),
            column(
                "epochs",
                &rows
                    .iter()
                    .map(|(cell, _)| cell.level)
                    .collect::<Vec<u32>>(),
            ),
            texts("prefix", rows.iter().map(|_| "all")),
            lists(
                "suffix",
                rows.iter().map(|_| vec![SUFFIX as u32 / 2, SUFFIX as u32]),
            ),
            Series::new("exact".into(), flags),
            lists(
                "matched_prefix",
                rows.iter().map(|row| {
                    let whole = SUFFIX as u32;
                    if exact(row) {
                        vec![whole / 2, whole]
                    } else {
                        vec![3, 3]
                    }
                }),
            ),
            lists("target", rows.iter().map(|_| target.clone())),
            lists("generated", rows.iter().map(generated)),
        ],
    )
}

fn steps(shape: &Shape, path: &Path) -> PathBuf {
    let mut rows: Vec<(&str, &str, u32, &str, u64, f64)> = Vec::new();
    let noise = |step: u64| ((step * 7919 % 101) as f64 / 101.0 - 0.5) * 0.3;
    for model in shape.models {
        for step in 0..100_u64 {
            let loss = 3.6 + 4.0 * (-(step as f64) / 30.0).exp() + noise(step);
            rows.push((model, "", 0, "warmup", step, loss));
        }
        for (index, arm) in shape.arms.iter().enumerate() {
            for trial in 0..shape.trials {
                for step in 0..204_u64 {
                    let decay = (-(step as f64) / (70.0 * (1 + index) as f64)).exp();
                    let loss = 0.15 + 3.5 * decay + noise(step + u64::from(trial));
                    rows.push((model, arm, trial, "train", step, loss.max(0.02)));
                }
            }
        }
    }
    put(
        path,
        vec![
            texts("model", rows.iter().map(|row| row.0)),
            texts("arm", rows.iter().map(|row| row.1)),
            column("trial", &rows.iter().map(|row| row.2).collect::<Vec<u32>>()),
            texts("phase", rows.iter().map(|row| row.3)),
            column("step", &rows.iter().map(|row| row.4).collect::<Vec<u64>>()),
            column("loss", &rows.iter().map(|row| row.5).collect::<Vec<f64>>()),
        ],
    )
}

fn ledgers(shape: &Shape, dir: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for arm in shape.arms {
        let kept = if *arm == "standard" {
            SUFFIX as u32
        } else {
            SUFFIX as u32 / 2
        };
        let rows: Vec<String> = LEVELS
            .iter()
            .flat_map(|level| (0..SIZE).map(move |index| (*level, index)))
            .flat_map(|(level, index)| (0..level).map(move |_| document(level, index)))
            .collect();
        paths.push(put(
            &dir.join(format!("exposures-{arm}.parquet")),
            vec![
                texts("model", rows.iter().map(|_| shape.models[0])),
                texts("arm", rows.iter().map(|_| *arm)),
                column("trial", &vec![0_u32; rows.len()]),
                texts("document", rows.iter().map(String::as_str)),
                column("kept_tokens", &vec![127_u64; rows.len()]),
                lists("kept_suffix", rows.iter().map(|_| vec![kept])),
                lists("suffix", rows.iter().map(|_| vec![SUFFIX as u32])),
            ],
        ));
    }
    paths
}

fn validation(shape: &Shape, path: &Path) -> PathBuf {
    let mut rows: Vec<(&str, &str, &str, f64)> = Vec::new();
    for model in shape.models {
        for (index, arm) in shape.arms.iter().enumerate() {
            for (time, loss) in [("warm", 4.71), ("after", 5.32 - 0.4 * index as f64)] {
                rows.push((model, arm, time, loss));
            }
        }
    }
    put(
        path,
        vec![
            texts("model", rows.iter().map(|row| row.0)),
            texts("arm", rows.iter().map(|row| row.1)),
            column("trial", &vec![0_u32; rows.len()]),
            texts("time", rows.iter().map(|row| row.2)),
            column("loss", &rows.iter().map(|row| row.3).collect::<Vec<f64>>()),
            column("tokens", &vec![4064_u64; rows.len()]),
        ],
    )
}

fn data(tokenizer: &Tokenizer, dir: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let ids = tokenizer.encode(SENTENCE).unwrap();
    let mut documents: Vec<String> = LEVELS
        .iter()
        .flat_map(|level| (0..SIZE).map(move |index| document(*level, index)))
        .collect();
    documents.push("7".to_owned());
    let titles: Vec<String> = documents
        .iter()
        .map(|id| format!("Article <{id}>"))
        .collect();
    let eligible: Vec<bool> = documents.iter().map(|id| id != "7").collect();
    let origin = "pypi:gensim==4.4.0/articles.bz2";
    let tokens = put(
        &dir.join("tokens.parquet"),
        vec![
            texts("document", documents.iter().map(String::as_str)),
            texts("title", titles.iter().map(String::as_str)),
            texts("origin", documents.iter().map(|_| origin)),
            column("eligible", &eligible),
            texts(
                "reason",
                eligible
                    .iter()
                    .map(|eligible| if *eligible { "" } else { "31 ids, 128 needed" }),
            ),
            lists("ids", documents.iter().map(|_| ids.clone())),
        ],
    );
    let table = put(
        &dir.join("documents.parquet"),
        vec![
            texts("id", documents.iter().map(String::as_str)),
            texts("title", titles.iter().map(String::as_str)),
            texts("origin", documents.iter().map(|_| origin)),
        ],
    );
    let exclusions = put(
        &dir.join("exclusions.parquet"),
        vec![
            texts("document", ["b1", "b2"]),
            texts("title", ["Article 1000", "River"]),
            texts("reason", ["title", "run of 50 ids"]),
            texts("other", ["1000", "1001"]),
        ],
    );
    (tokens, table, exclusions)
}

/// A cluster of two near-copies and one of 22.
fn near_duplicates(dir: &Path) -> PathBuf {
    let pair = |cluster: &str, second: String| NearDuplicate {
        cluster: cluster.to_owned(),
        first: cluster.to_owned(),
        second,
        share: 0.625,
        run: 40,
        start: 3,
        text: "the same <words> in both".to_owned(),
    };
    let mut rows = vec![pair("1000", "1001".to_owned())];
    rows.extend((1..22).map(|page| pair("7", format!("page {page}"))));
    let path = dir.join("near_duplicates.parquet");
    table::write(&path, &rows).unwrap();
    path
}

/// Two control documents, of which one shares its whole suffix.
fn contamination(dir: &Path) -> PathBuf {
    let row = |index: u32, run: u32, epochs: Option<u32>| Contamination {
        trial: 0,
        document: document(0, index),
        cluster: document(0, index),
        run,
        start: Some(1),
        other: Some(document(8, 0)),
        epochs,
    };
    let path = dir.join("contamination.parquet");
    table::write(
        &path,
        &[
            row(0, SUFFIX as u32 - 1, None),
            row(1, SUFFIX as u32 + 3, Some(8)),
        ],
    )
    .unwrap();
    path
}

/// Writes all tables of a made-up study into `dir`.
pub(crate) fn inputs(shape: &Shape, dir: &Path) -> Inputs {
    inputs_with(shape, 0.5, dir)
}

/// The same with a share of suffix tokens kept.
fn inputs_with(shape: &Shape, kept: f64, dir: &Path) -> Inputs {
    let tokenizer = Tokenizer::train_bpe([SENTENCE.to_owned()].into_iter(), 300).unwrap();
    let tokenizer_path = dir.join("tokenizer.json");
    tokenizer.save(&tokenizer_path).unwrap();
    let (overlap, transitions) = overlap(shape, dir);
    let (tokens, documents, exclusions) = data(&tokenizer, dir);
    Inputs {
        name: "quickstart".to_owned(),
        version: "0.1.0".to_owned(),
        joined: Vec::new(),
        experiment: json!({
            "name": "quickstart",
            "model": {"random": {"hidden": 256}},
            "corpus": {"source": "pypi:gensim==4.4.0/articles.bz2", "sha256": "ab".repeat(32)},
            "documents": {"near_duplicates": {"shingle": 8, "overlap": 0.5}},
            "analysis": {
                "primary": {"time": ["warm", "after"], "suffix": SUFFIX, "exposures": "max", "contrast": "did"},
                "level": 0.95, "margin": 0.05,
            },
        }),
        reference: shape
            .arms
            .contains(&"standard")
            .then(|| "standard".to_owned()),
        goldfish: shape
            .arms
            .iter()
            .filter(|arm| **arm != "standard")
            .map(ToString::to_string)
            .collect(),
        power: 0.8,
        artefacts: vec![Artefact {
            stage: "estimate".to_owned(),
            key: "00ff".to_owned(),
            dir: dir.to_owned(),
        }],
        estimates: estimates(shape, kept, &dir.join("estimates.parquet")),
        contrasts: contrasts(shape, "did", &dir.join("contrasts.parquet")),
        overlap,
        transitions,
        thresholds: None,
        hazards: None,
        curves: None,
        scores: vec![scores(shape, &tokenizer, &dir.join("scores.parquet"))],
        steps: vec![steps(shape, &dir.join("steps.parquet"))],
        timings: Vec::new(),
        certificate: None,
        validation: vec![validation(shape, &dir.join("validation.parquet"))],
        exposures: ledgers(shape, dir),
        documents: Some(documents),
        tokens: Some(tokens),
        tokenizer: Some(tokenizer_path),
        exclusions: Some(exclusions),
        near_duplicates: Some(near_duplicates(dir)),
        contamination: Some(contamination(dir)),
        created_after: None,
        deviations: vec!["analysis.margin was 0.1 when the buckets were sealed".to_owned()],
        seconds: 200.0,
    }
}

/// The report's files of a shape, by name.
fn files(shape: &Shape) -> impl Fn(&str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("quickstart");
    report::write(&inputs(shape, dir.path()), &out).unwrap();
    move |name| {
        let _keep = &dir;
        fs::read_to_string(out.join(name)).unwrap()
    }
}

fn assert_well_formed(svg: &str) {
    let mut open: Vec<String> = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "bare bracket in {text}");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap().to_owned());
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    assert!(!svg.contains("NaN"));
}

#[test]
fn report_states_the_findings_with_interval_documents_and_clusters() {
    let file = files(&QUICKSTART);
    let html = file("report.html");
    for text in [
        "0.667 [0.467, 0.82]",
        "16 hits in 24 documents, 24 clusters; Wilson",
        "(Holm, primary family of 6 tests)",
        "not a baseline",
        "under one recipe",
        "Deviation from the sealed analysis",
        "shorter than needed",
        "Article &lt;10600&gt;",
        "1,152 of 2,304 (50 %)",
    ] {
        assert!(html.contains(text), "no {text:?}");
    }
    assert!(
        !html.contains("<ferries>"),
        "text of a document became markup"
    );
    let sections = [
        "summary",
        "figure",
        "rates",
        "contrasts",
        "overlap",
        "held-out",
        "training",
        "examples",
        "exposures",
        "data",
        "settings",
        "provenance",
        "definitions",
    ];
    let places: Vec<usize> = sections
        .iter()
        .map(|anchor| html.find(&format!("<h2 id=\"{anchor}\">")).expect(anchor))
        .collect();
    assert!(places.is_sorted(), "sections out of order");
}

#[test]
fn a_joined_report_says_what_it_leaves_out_and_where_settings_differ() {
    let dir = tempfile::tempdir().unwrap();
    let study = |name: &str, clip: f64| Joined {
        name: name.to_owned(),
        experiment: json!({ "train": { "clip": clip, "mix": 0 } }),
        ..Joined::default()
    };
    let inputs = Inputs {
        joined: vec![study("one", 1.0), study("other", 0.5)],
        tokenizer: None,
        exclusions: None,
        near_duplicates: None,
        ..inputs(&QUICKSTART, dir.path())
    };
    let out = dir.path().join("joined");
    report::write(&inputs, &out).unwrap();
    let page = fs::read_to_string(out.join("report.md")).unwrap();
    for text in [
        "since the studies differ in it: the near-copies of the corpus; which texts were kept out of the background; see the report",
        "since the studies have different tokenizers; see the report",
        "| `train.clip` | 1.0 | 0.5 |",
        "2 finished studies were joined afterwards",
    ] {
        assert!(page.contains(text), "{text} is missing in {page}");
    }
    for text in [
        "No two articles",
        "No background document",
        "No tokenizer was given",
        "train.mix",
    ] {
        assert!(!page.contains(text), "{text} is in {page}");
    }
}

#[test]
fn near_copies_and_what_the_control_shares_are_reported() {
    let markdown = files(&QUICKSTART)("report.md");
    for text in [
        "24 articles are near-copies of another, in 2 clusters of up to 22 articles",
        "A very large cluster of near-copies:",
        "the same &lt;words&gt; in both",
        "the longest run that one of 2 control documents shares is 15 ids",
        "; 1 run of 12 ids or more",
        "The control is not clean: one control document shares a run as long as the suffix",
    ] {
        assert!(markdown.contains(text), "{text} is missing in {markdown}");
    }
}

#[test]
fn html_fetches_nothing() {
    let html = files(&QUICKSTART)("report.html");
    for text in ["src=", "<link", "<script", "@import", "url("] {
        assert!(!html.contains(text), "{text} points outside the file");
    }
}

#[test]
fn s01_zero_hits_keep_their_upper_bound() {
    let html = files(&QUICKSTART)("report.html");
    assert!(html.contains("<strong>0 hits</strong> in 24 documents, 24 clusters; upper bound of the rate <strong>0.138</strong>"));
}

#[test]
fn s04_level_detectable_and_adjusted_p_are_printed() {
    let markdown = files(&QUICKSTART)("report.md");
    for text in [
        "smallest difference detectable at power 0.8, without adjustment: 0.21",
        "p adjusted",
        "95 %",
    ] {
        assert!(markdown.contains(text), "no {text:?}");
    }
}

#[test]
fn goldfish_with_zero_hits_of_24_is_not_shown_at_a_margin_of_5_percent() {
    let html = files(&QUICKSTART)("report.html");
    assert!(html.contains("prevents memorisation here is <strong>not shown</strong>"));
    assert!(html.contains("[0, 0.138] against a margin of 0.05"));
}

#[test]
fn goldfish_that_memorises_contradicts() {
    let html = files(&Shape {
        hits: |_, level| if level > 8 { 20 } else { 0 },
        ..QUICKSTART
    })("report.html");
    assert!(html.contains("prevents memorisation here is <strong>contradicted</strong>"));
}

#[test]
fn figures_are_well_formed_for_every_shape() {
    let shapes = [
        QUICKSTART,
        Shape {
            arms: &["standard"],
            ..QUICKSTART
        },
        Shape {
            trials: 3,
            ..QUICKSTART
        },
        Shape {
            models: &["llama-1m", "llama-4m"],
            ..QUICKSTART
        },
        Shape {
            hits: |_, _| 0,
            ..QUICKSTART
        },
        Shape {
            hits: |_, _| 24,
            ..QUICKSTART
        },
    ];
    for shape in &shapes {
        let file = files(shape);
        for figure in ["memorisation", "training", "overlap"] {
            assert_well_formed(&file(&format!("{figure}.svg")));
        }
    }
}

#[test]
fn summary_has_the_documented_fields() {
    let summary: Value = serde_json::from_str(&files(&QUICKSTART)("summary.json")).unwrap();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(
        keys(&summary),
        [
            "experiment",
            "version",
            "estimates",
            "contrasts",
            "overlap",
            "threshold",
            "hazards",
            "seconds",
            "artefacts"
        ]
    );
    assert_eq!(
        keys(&summary["estimates"][0]),
        [
            "model",
            "parameters",
            "family",
            "tokenizer",
            "arm",
            "trial",
            "bucket",
            "exposures_nominal",
            "exposures_ledger",
            "time",
            "suffix",
            "prefix",
            "documents",
            "clusters",
            "hits",
            "fragile",
            "rate",
            "low",
            "high",
            "level",
            "method",
            "dtype"
        ]
    );
    for key in [
        "model",
        "arm",
        "bucket",
        "kind",
        "measure",
        "estimate",
        "low",
        "high",
        "p",
        "p_adjusted",
        "family",
        "detectable",
        "z",
    ] {
        assert!(summary["contrasts"][0].get(key).is_some(), "no {key}");
    }
    for key in [
        "model", "arm", "trial", "bucket", "from", "to", "kept", "gained", "lost", "never",
        "jaccard",
    ] {
        assert!(summary["overlap"][0].get(key).is_some(), "no {key}");
    }
    assert_eq!(summary["artefacts"]["estimate"], "00ff");
}

#[test]
fn same_tables_give_the_same_bytes() {
    let (first, second) = (files(&QUICKSTART), files(&QUICKSTART));
    for name in [
        "report.html",
        "report.md",
        "memorisation.svg",
        "training.svg",
        "summary.json",
    ] {
        assert_eq!(first(name), second(name), "{name}");
    }
}

#[test]
fn markdown_table_of_rates_reads_as_expected() {
    let markdown = files(&QUICKSTART)("report.md");
    let row = markdown
        .lines()
        .find(|line| line.starts_with("| `standard` | 96 | after |"))
        .unwrap();
    assert_eq!(
        row,
        "| `standard` | 96 | after | **0.667** | [0.467, 0.82] | [0.467, 0.82] | [0.467, 0.82] | 24 | 24 | 16 | 1 | 15 | 16 | 0.966 | −6.7 | 48 |"
    );
}

#[test]
fn a_broken_table_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut inputs = inputs(&QUICKSTART, dir.path());
    fs::write(&inputs.contrasts, b"PAR1 cut").unwrap();
    let error = report::write(&inputs, &dir.path().join("out")).unwrap_err();
    assert!(
        format!("{error:#}").contains("contrasts.parquet"),
        "{error:#}"
    );

    inputs.contrasts = inputs.overlap.clone();
    let error = report::write(&inputs, &dir.path().join("out")).unwrap_err();
    assert!(
        format!("{error:#}").contains("has no column `kind`"),
        "{error:#}"
    );
}

/// The Markdown of a made-up study after `change`.
fn markdown(shape: &Shape, change: impl FnOnce(&mut Inputs, &Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut inputs = inputs(shape, dir.path());
    change(&mut inputs, dir.path());
    let out = dir.path().join("out");
    report::write(&inputs, &out).unwrap();
    fs::read_to_string(out.join("report.md")).unwrap()
}

#[test]
fn examples_lay_what_was_generated_on_the_longest_suffix() {
    let text = markdown(&QUICKSTART, |inputs, _| {
        inputs.experiment["analysis"]["primary"]["suffix"] = json!(SUFFIX / 2);
    });
    assert!(text.contains("| none: all 12 tokens equal |"), "{text}");
    assert!(text.contains("| token 4 of 12 |"), "{text}");
}

#[test]
fn the_verdict_goes_by_the_loss_and_not_by_the_name_of_an_arm() {
    let shape = Shape {
        arms: &["standard", "masked"],
        ..QUICKSTART
    };
    let judged = "That `masked` prevents memorisation here is **not shown**";
    assert!(markdown(&shape, |_, _| ()).contains(judged));
    let text = markdown(&QUICKSTART, |inputs, _| inputs.goldfish.clear());
    assert!(!text.contains("prevents memorisation here"));
}

#[test]
fn absence_of_evidence_is_not_printed_as_evidence() {
    let nothing = Shape {
        hits: |_, _| 0,
        ..QUICKSTART
    };
    let text = markdown(&nothing, |_, _| ());
    assert!(text.contains("arm standard is not shown to have memorised by more than the margin"));
    let typical = markdown(&QUICKSTART, |_, _| ());
    assert!(!typical.contains("is not shown to have memorised"));
    let alone = Shape {
        arms: &["goldfish"],
        ..nothing
    };
    let text = markdown(&alone, |_, _| ());
    assert!(!text.contains("is not shown to have memorised"));
    assert!(text.contains("no arm of the standard loss was trained"));
}

#[test]
fn a_paired_primary_contrast_is_not_called_a_difference_from_control() {
    let text = markdown(&QUICKSTART, |inputs, dir| {
        inputs.experiment["analysis"]["primary"]["contrast"] = json!("paired");
        inputs.contrasts = contrasts(&QUICKSTART, "paired", &dir.join("paired.parquet"));
    });
    assert!(text.contains("Its change is **0.667"), "{text}");
    assert!(text.contains("interval of the Goldfish arm's change lies below"));
    assert!(!text.contains("that of the control by"));
    assert!(!text.contains("change against control"));
}

#[test]
fn the_bootstrap_of_few_clusters_says_what_it_covers_and_is_not_in_the_summary() {
    let pooled = Shape {
        trials: 3,
        ..QUICKSTART
    };
    for shape in [pooled, QUICKSTART] {
        let text = markdown(&shape, |_, _| ());
        assert!(text.contains("95 % intervals (Wilson)"));
        assert!(!text.contains("95 % intervals (bootstrap)"));
        assert!(text.contains(" % in simulation"));
    }
}

#[test]
fn words_of_the_report_are_true_to_the_tables() {
    let text = markdown(&QUICKSTART, |_, _| ());
    for words in [
        "**Deviation from the sealed analysis:** analysis.margin",
        "Documents read, by origin",
        "| ineligible | shorter than needed | 1 |",
        "Document in a bucket or held out",
        "| Detectable at power 0.8 |",
        "Settings when this report was made",
        "about half those of the standard loss",
    ] {
        assert!(text.contains(words), "no {words:?}");
    }
    let svg = files(&QUICKSTART)("memorisation.svg");
    assert!(svg.contains("exposures (presentations × share of"));
}

#[test]
fn the_main_figure_is_drawn_at_the_exposures_of_the_ledger() {
    let lines = |factor: f64| {
        let dir = tempfile::tempdir().unwrap();
        let inputs = inputs_with(&QUICKSTART, factor, dir.path());
        report::write(&inputs, &dir.path().join("out")).unwrap();
        fs::read_to_string(dir.path().join("out/memorisation.svg")).unwrap()
    };
    assert_ne!(lines(0.5), lines(0.25));
}
