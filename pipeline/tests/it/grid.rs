//! Studies on grids of several ranks, as threads of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use axmem_datasets::{files, record};
use axmem_eval::ScoreRow;

use crate::support::{axmem, finish, rows, run_smoke, smoke, tables};

/// Where a step ran: a row of `timings`.
#[derive(Debug)]
struct Place {
    model: String,
    arm: String,
    trial: u32,
    phase: String,
    step: u64,
    grid: String,
    back_end: String,
    seconds: f64,
    tokens_per_second: f64,
    flops_per_second: f64,
    exposed_x: f64,
    exposed_y: f64,
    exposed_z: f64,
    exposed_data: f64,
    peak_bytes: u64,
}

record!(Place as "timings" {
    model: String, arm: String, trial: u32, phase: String, step: u64, grid: String,
    back_end: String, seconds: f64, tokens_per_second: f64, flops_per_second: f64,
    exposed_x: f64, exposed_y: f64, exposed_z: f64, exposed_data: f64, peak_bytes: u64,
});

/// Whether every probe was reproduced, for each suffix, by arm, trial, time and document.
fn outcomes(store: &Path) -> BTreeMap<String, Vec<bool>> {
    let scores: Vec<ScoreRow> = rows(store, "score-v2", "scores.parquet");
    let outcome = |row: ScoreRow| {
        let name = format!(
            "{} {} {:?} {} {:?}",
            row.arm, row.trial, row.time, row.score.document, row.score.prefix
        );
        (name, row.score.exact)
    };
    scores.into_iter().map(outcome).collect()
}

fn run(store: &Path, sets: &[&str]) {
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let (code, text) = finish(&mut run_smoke(store, &sets));
    assert_eq!(code, 0, "{sets:?}: {text}");
}

#[test]
fn a_study_on_eight_and_on_four_ranks_finds_what_one_rank_finds() {
    let single = tempfile::tempdir().expect("a folder");
    run(single.path(), &[]);
    let expected = outcomes(single.path());
    assert!(expected.len() > 50);
    for grid in [
        "{x: 2, y: 2, z: 2}",
        "{z: 2, data: 2, shard_optimizer: true}",
    ] {
        let store = tempfile::tempdir().expect("a folder");
        run(store.path(), &[&format!("grid={grid}")]);
        assert_eq!(outcomes(store.path()), expected, "{grid}");
        let report = files::read_to_string(store.path().join("smoke/report.md")).expect("a report");
        assert!(report.contains("## Ranks"), "{grid}");
        let places: Vec<Place> = rows(store.path(), "train-v1", "timings.parquet");
        assert!(places.iter().all(|place| place.back_end == "thread"));
        assert!(places.iter().all(|place| place.peak_bytes > 0));
        let waited: f64 = places.iter().map(|row| row.exposed_y + row.exposed_z).sum();
        assert!(waited > 0.0, "{grid}");
    }
    let report = files::read_to_string(single.path().join("smoke/report.md")).expect("a report");
    assert!(!report.contains("## Ranks"));
}

#[test]
fn overlap_changes_no_bit_of_a_study() {
    let store = |overlap: &str| {
        let store = tempfile::tempdir().expect("a folder");
        let grid = format!("grid={{x: 2, z: 2, overlap: {overlap}}}");
        run(store.path(), &[&grid, "buckets.trials=1"]);
        tables(store.path())
    };
    let off = store("false");
    assert_eq!(store("true"), off);
    assert_eq!(store("{all_gather: 3, forward: false}"), off);
}

#[test]
fn grids_that_cannot_work_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    for (grid, sentence) in [
        ("{x: 0}", "grid.x: 0 is not from 1 to 4096"),
        (
            "{x: 3}",
            "grid.x: axis X has 3 ranks, which does not divide heads = 2 of the model",
        ),
        (
            "{y: 3}",
            "grid.y: axis Y has 3 ranks, which does not divide hidden = 32 of the model",
        ),
        (
            "{order: [x, y]}",
            "grid.order: must name each of x, y, z and data once",
        ),
        ("{order: [x, x, y, z]}", "grid.order: axis Data is missing"),
        ("{order: [w, x, y, z]}", "grid.order.0: unknown choice `w`"),
        ("{z: 300}", "grid: 300 ranks are more than the 256"),
        ("{overlap: 2}", "expected true, false, or a mapping"),
        (
            "{overlap: {row_chunks: 0}}",
            "grid.overlap.row_chunks: 0 is not from 1",
        ),
        (
            "{overlap: {bucket_mb: 0}}",
            "grid.overlap.bucket_mb: 0 is not from 1",
        ),
        (
            "{attention: split}",
            "grid.attention: unknown choice `split`",
        ),
        ("{timeout: 0}", "grid.timeout: 0 is not from 1"),
        ("{w: 2}", "grid: unknown key `w`"),
        ("many", "expected `auto` or a mapping"),
    ] {
        let (code, text) = finish(&mut run_smoke(
            folder.path(),
            &["--set", &format!("grid={grid}")],
        ));
        assert_eq!(code, 2, "{grid}: {text}");
        assert!(text.contains(sentence), "{grid}: {text}");
    }
    assert_eq!(tables(folder.path()).len(), 0);
    let heads =
        "model.random={hidden: 36, layers: 1, heads: 6, kv_heads: 3, ffn: 64, max_positions: 64}";
    let arguments = ["--set", heads, "--set", "grid={x: 2}"];
    let (code, text) = finish(&mut run_smoke(folder.path(), &arguments));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("neither divides kv_heads = 3"), "{text}");
}

#[test]
fn a_killed_run_goes_on_on_another_grid() {
    let settings = [
        "train.warmup.steps=300",
        "background.rows=1200",
        "buckets.trials=1",
    ];
    let sets = |grid: &str| {
        let grid = format!("grid={grid}");
        let all = settings.iter().copied().chain([grid.as_str()]);
        all.flat_map(|set| ["--set".to_owned(), set.to_owned()])
            .collect::<Vec<_>>()
    };
    let store = tempfile::tempdir().expect("a folder");
    let mut child = run_smoke(store.path(), &[])
        .args(sets("{y: 2, z: 2}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    while !has_checkpoint(&store.path().join("warmup-v1")) {
        assert!(begun.elapsed() < Duration::from_mins(2), "no checkpoint");
        assert!(child.try_wait().expect("a state").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("a kill");
    child.wait().expect("an end");

    let (code, text) = finish(run_smoke(store.path(), &[]).args(sets("{x: 2, data: 2}")));
    assert_eq!(code, 0, "{text}");
    let places: Vec<Place> = rows(store.path(), "warmup-v1", "timings.parquet");
    let steps: Vec<u64> = places.iter().map(|place| place.step).collect();
    assert_eq!(steps, (1..=300).collect::<Vec<_>>());
    let grids: BTreeSet<&str> = places.iter().map(|place| place.grid.as_str()).collect();
    assert_eq!(grids, BTreeSet::from(["(1, 2, 2, 1)", "(2, 1, 1, 2)"]));

    let unbroken = tempfile::tempdir().expect("a folder");
    run(unbroken.path(), &settings);
    assert_eq!(outcomes(store.path()), outcomes(unbroken.path()));
}

#[test]
fn a_certificate_is_printed_kept_and_shown_in_the_report() {
    let store = tempfile::tempdir().expect("a folder");
    let grid = "grid={x: 2, z: 2, data: 2, overlap: {all_gather: 2}, attention: y_sharded}";
    let certify = |more: &[&str]| {
        let mut command = axmem(&["certify", "--steps", "6", "--set", grid, "--store"]);
        command.arg(store.path()).arg(smoke()).args(more);
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let report = || {
        run(store.path(), &[grid]);
        files::read_to_string(store.path().join("smoke/report.md")).expect("a report")
    };
    assert!(!report().contains("Certificate of the grid"));
    let table = certify(&[]);
    assert!(
        table.starts_with("(2, 1, 2, 2) (x, y, z, data) on thread"),
        "{table}"
    );
    assert_eq!(table.matches("\npass  ").count(), 8, "{table}");
    let path = store.path().join("smoke/certificate.json");
    let text = files::read_to_string(&path).expect("a certificate");
    let record: axmem::certify::Record = serde_json::from_str(&text).expect("a record");
    assert!(record.passed && record.certificate.steps == 6);
    // The report is made again, and nothing else.
    assert!(report().contains("Certificate of the grid (2, 1, 2, 2) (thread)"));
    let event: serde_json::Value =
        serde_json::from_str(certify(&["--json"]).lines().next().expect("an event")).expect("JSON");
    assert_eq!(event["certificate"]["passed"], true);
}

#[test]
fn several_processes_need_a_program_with_mpi() {
    // As Open MPI's mpirun sets them.
    let mut command = run_smoke(Path::new("/nowhere"), &[]);
    command
        .env("OMPI_COMM_WORLD_SIZE", "4")
        .env("OMPI_COMM_WORLD_RANK", "0");
    if cfg!(not(feature = "mpi")) {
        let (code, text) = finish(&mut command);
        assert_eq!(code, 2, "{text}");
        let sentence = "has started 4 processes, but this axmem is built without MPI";
        assert!(text.contains(sentence), "{text}");
    }
    // What runs on no rank is told by the first process alone.
    let plan = |rank: &str| {
        let mut command = axmem(&["plan", "--store", "/nowhere"]);
        command.arg(smoke()).env("OMPI_COMM_WORLD_SIZE", "4");
        let output = command
            .env("OMPI_COMM_WORLD_RANK", rank)
            .output()
            .expect("it starts");
        assert!(output.status.success());
        output.stdout.len()
    };
    assert!(plan("0") > 100);
    assert_eq!(plan("3"), 0);
}

/// Whether a complete checkpoint is in the work in progress of an artefact.
fn has_checkpoint(stage: &Path) -> bool {
    let list = |folder: &Path| files::list(folder).unwrap_or_default();
    list(stage).iter().any(|artefact| {
        list(&artefact.join("partial")).iter().any(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("step-") && path.join("index.json").exists()
        })
    })
}
