//! `created_after`: a second control of pages that a later dump has and an older snapshot does not.
//!
//! Its documents are in no bucket and in no table of the buckets: they have stages and tables of their own, so that no
//! contrast, threshold or trend can take them for the control.

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result};
use axmem_datasets::background::PackedRow;
use axmem_datasets::bucket::Assignment;
use axmem_datasets::contamination::{self, Contamination};
use axmem_datasets::created_after::{self, CreatedAfterSettings, Drawn, Study};
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::files;
use axmem_datasets::reader::{Page, read_pages};
use axmem_datasets::source::SourceFile;
use axmem_datasets::table::{self, DocumentRow};
use axmem_datasets::tokenizer::Tokenizer;
use serde_json::json;

use super::corpus::{fetch, still_unchanged};
use super::{Context, tokens};
use crate::exit::Failure;
use crate::experiment::{CreatedAfter, Experiment};
use crate::plan::Stage;

/// File of each table, in the artefact of this stage.
pub(crate) const DOCUMENTS: &str = "created_after.parquet";
pub(crate) const EXCLUSIONS: &str = "exclusions.parquet";
pub(crate) const SNAPSHOT_RUNS: &str = "snapshot_runs.parquet";
pub(crate) const CONTAMINATION: &str = "contamination.parquet";
/// What was read; a JSON file.
pub(crate) const COUNTS: &str = "counts.json";

/// Ends the run before any work if a local source is not there.
///
/// # Errors
/// A data error (exit code 3) that names the setting and the path.
pub(crate) fn check(experiment: &Experiment) -> Result<()> {
    let texts = experiment
        .created_after
        .iter()
        .flat_map(CreatedAfter::texts);
    for (field, text) in texts {
        if let Some(path) = text.local().filter(|path| !path.exists()) {
            return Err(Failure::data(format!(
                "{field}.source: there is no {}; fetch it, or name the path where it is",
                path.display()
            )));
        }
    }
    Ok(())
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let experiment = context.experiment;
    let asked = experiment.created_after.as_ref();
    let asked = asked.context("the plan has this stage for studies that ask for it")?;
    let folder = context.input(Stage::Tokens);
    let tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))?;
    let buckets = context.input(Stage::Buckets);
    let assignments: Vec<Assignment> = table::read(buckets.join("buckets.parquet"))?;
    let background: Vec<PackedRow> = table::read(buckets.join("background.parquet"))?;
    let mut documents = in_buckets(context, &assignments)?;
    let titles = titles(context, &background)?;
    let later = fetch(context, &asked.corpus)?;
    let snapshot = fetch(context, &asked.snapshot)?;
    let drawn = created_after::draw(
        &|sink| pages(&later, sink),
        &|sink| pages(&snapshot, sink),
        &Study {
            documents: &documents,
            background: &background,
            titles: &titles,
        },
        &tokenizer,
        &CreatedAfterSettings {
            size: asked.size,
            documents: tokens::settings(&experiment.documents),
            near: experiment.documents.near_duplicates.map(Into::into),
            seed: experiment.seed,
        },
    )?;
    for (_, text) in asked.texts() {
        still_unchanged(context, text)?;
    }
    tell(&drawn, context);
    documents.extend(drawn.documents.iter().cloned());
    let shared = contamination(
        context,
        &assignments,
        &drawn,
        &documents,
        &background,
        &tokenizer,
    )?;
    table::write(context.folder.join(DOCUMENTS), &drawn.documents)?;
    table::write(context.folder.join(EXCLUSIONS), &drawn.excluded)?;
    table::write(context.folder.join(SNAPSHOT_RUNS), &drawn.shared)?;
    table::write(context.folder.join(CONTAMINATION), &shared)?;
    let counts = serde_json::to_string_pretty(&drawn.counts).context("what was read")?;
    Ok(files::write_atomic(
        context.folder.join(COUNTS),
        counts.as_bytes(),
    )?)
}

fn pages(
    files: &[SourceFile],
    sink: &mut dyn FnMut(Page) -> axmem_datasets::Result<()>,
) -> axmem_datasets::Result<()> {
    read_pages(files, sink).map(drop)
}

/// The documents of all buckets.
fn in_buckets(context: &Context<'_>, assignments: &[Assignment]) -> Result<Vec<TokenDocument>> {
    let assigned: HashSet<&str> = assignments
        .iter()
        .map(|row| row.document.as_str())
        .collect();
    let mut documents = Vec::new();
    table::scan(
        context.input(Stage::Tokens).join("tokens.parquet"),
        |row: TokenDocument| {
            if assigned.contains(row.document.as_str()) {
                documents.push(row);
            }
            Ok(())
        },
    )?;
    Ok(documents)
}

/// Titles of the background and held-out documents.
fn titles(context: &Context<'_>, background: &[PackedRow]) -> Result<HashMap<String, String>> {
    let used: HashSet<&String> = background.iter().flat_map(|row| &row.documents).collect();
    let mut titles = HashMap::new();
    table::scan(
        context.input(Stage::Corpus).join("documents.parquet"),
        |row: DocumentRow| {
            if used.contains(&row.id) {
                titles.insert(row.id, row.title);
            }
            Ok(())
        },
    )?;
    Ok(titles)
}

/// What the drawn documents share with the text trained on in each trial, as it is measured for the control.
fn contamination(
    context: &Context<'_>,
    assignments: &[Assignment],
    drawn: &Drawn,
    documents: &[TokenDocument],
    background: &[PackedRow],
    tokenizer: &Tokenizer,
) -> Result<Vec<Contamination>> {
    let experiment = context.experiment;
    let trained = assignments.iter().filter(|row| row.epochs > 0).cloned();
    let mut rows: Vec<Assignment> = trained.collect();
    for trial in 0..experiment.buckets.trials {
        rows.extend(drawn.documents.iter().map(|document| Assignment {
            trial,
            group: 0,
            epochs: 0,
            document: document.document.clone(),
            cluster: document.cluster.clone(),
        }));
    }
    let bos = tokens::bos(experiment.documents.bos).id(tokenizer)?;
    Ok(contamination::measure(&rows, documents, background, bos))
}

fn tell(drawn: &Drawn, context: &Context<'_>) {
    let counts = &drawn.counts;
    let fields = json!({ "stage": context.node.to_string(), "counts": counts });
    let sentence = format!(
        "{} documents of {} pages above id {}; {} were excluded on the way",
        drawn.documents.len(),
        counts.pages_above,
        counts.largest_id,
        drawn.excluded.len()
    );
    context.events.tell("note", fields, &sentence);
}
