//! `corpus`: sources to the table `documents`, and what the readers passed over.
//!
//! Articles of the background get ids of their own (`background/ID`): two sources may number their
//! pages alike.

use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_datasets::reader::{self, ReadReport};
use axmem_datasets::source::{self, SourceFile, SourceOptions};
use axmem_datasets::table::{self, DocumentRow};
use serde::{Deserialize, Serialize};

use super::Context;
use crate::exit::Failure;
use crate::experiment::Text;
use crate::plan::Stage;
use crate::store;

/// Origin of the probed articles in the table.
pub(super) const CORPUS: &str = "corpus";
/// Origin of the background's articles.
pub(super) const BACKGROUND: &str = "background";

/// What the readers saw, kept beside the table.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Reading {
    origin: String,
    source: String,
    files: Vec<(String, String, u64)>,
    pages: u64,
    articles: u64,
    redirects: u64,
    disambiguation: u64,
    other_namespaces: u64,
    empty: u64,
    templates_removed: u64,
    /// Redirects as (from, to) titles.
    redirect_titles: Vec<(String, String)>,
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let experiment = context.experiment;
    let mut readings = Vec::new();
    let path = context.folder.join("documents.parquet");
    let corpus = fetch(context, &experiment.corpus)?;
    let background = match &experiment.background.text {
        Some(text) => Some((text, fetch(context, text)?)),
        None => None,
    };
    table::write_with(&path, |push| {
        let report = reader::read_documents(&corpus, &mut |document| {
            push(DocumentRow::new(document, CORPUS))
        })?;
        readings.push(reading(CORPUS, &experiment.corpus, &corpus, report));
        if let Some((text, files)) = &background {
            let report = reader::read_documents(files, &mut |mut document| {
                document.id = format!("{BACKGROUND}/{}", document.id);
                push(DocumentRow::new(document, BACKGROUND))
            })?;
            readings.push(reading(BACKGROUND, text, files, report));
        }
        Ok(())
    })?;
    if let Some(reading) = readings.iter().find(|reading| reading.articles == 0) {
        return Err(Failure::data(format!(
            "{} holds no article with text ({} pages, {} redirects, {} empty)",
            reading.source, reading.pages, reading.redirects, reading.empty
        )));
    }
    still_unchanged(context, &experiment.corpus)?;
    if let Some(text) = &experiment.background.text {
        still_unchanged(context, text)?;
    }
    let text = serde_json::to_string_pretty(&readings).context("what the readers saw")?;
    files::write_atomic(context.folder.join("readings.json"), text.as_bytes())?;
    Ok(())
}

/// The files of a source; a local one must be that whose hash is in the key.
pub(super) fn fetch(context: &Context<'_>, text: &Text) -> Result<Vec<SourceFile>> {
    let options = SourceOptions {
        revision: text.revision.clone(),
        config: text.config.clone(),
        sha256: text.sha256.clone(),
        offline: false,
    };
    let cache = context.store.cache();
    files::create_dir_all(&cache)?;
    let fetched = source::fetch(&text.parse()?, &options, &cache)?;
    if let Some(path) = text.local() {
        let hashes: Vec<(&Path, &str)> = fetched
            .iter()
            .map(|file| (file.path.as_path(), file.sha256.as_str()))
            .collect();
        let found = store::combined(path.is_dir(), &hashes);
        unchanged(context, text, &path, &found)?;
    }
    Ok(fetched)
}

/// Refuses a local source that changed while it was read.
pub(super) fn still_unchanged(context: &Context<'_>, text: &Text) -> Result<()> {
    let Some(path) = text.local() else {
        return Ok(());
    };
    let found = context.store.content(&path)?;
    unchanged(context, text, &path, &found)
}

/// Refuses a local source that is not the one whose hash is in the key.
fn unchanged(context: &Context<'_>, text: &Text, path: &Path, found: &str) -> Result<()> {
    if text.content.as_deref() == Some(found) {
        return Ok(());
    }
    context.store.forget_contents()?;
    Err(Failure::data(format!(
        "{} has changed since the run began; run again to take it as it is now",
        path.display()
    )))
}

/// All redirects that the readers saw, as (from, to) titles.
pub(super) fn redirects(context: &Context<'_>) -> Result<Vec<(String, String)>> {
    let text = files::read_to_string(context.input(Stage::Corpus).join("readings.json"))?;
    let readings: Vec<Reading> = serde_json::from_str(&text).context("readings.json")?;
    Ok(readings
        .into_iter()
        .flat_map(|reading| reading.redirect_titles)
        .collect())
}

fn reading(origin: &str, text: &Text, files: &[SourceFile], report: ReadReport) -> Reading {
    let files = files
        .iter()
        .map(|file| (file.label.clone(), file.sha256.clone(), file.bytes));
    Reading {
        origin: origin.to_owned(),
        source: text.source.clone(),
        files: files.collect(),
        pages: report.pages,
        articles: report.articles,
        redirects: report.redirects,
        disambiguation: report.disambiguation,
        other_namespaces: report.other_namespaces,
        empty: report.empty,
        templates_removed: report.templates_removed,
        redirect_titles: report.redirect_titles,
    }
}
