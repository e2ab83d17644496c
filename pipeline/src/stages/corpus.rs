//! `corpus`: sources to the table `documents`, and what the readers passed over.
//!
//! Articles of the background get ids of their own (`background/ID`): two sources may number their
//! pages alike.

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_datasets::reader::{self, ReadReport};
use axmem_datasets::source::{self, SourceFile, SourceOptions};
use axmem_datasets::table::{self, DocumentRow};
use serde::{Deserialize, Serialize};

use super::Context;
use crate::experiment::Text;

/// Origin of the probed articles in the table.
pub(super) const CORPUS: &str = "corpus";
/// Origin of the background's articles.
pub(super) const BACKGROUND: &str = "background";

/// What the readers saw, kept beside the table.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Reading {
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
    pub(super) redirect_titles: Vec<(String, String)>,
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
    let text = serde_json::to_string_pretty(&readings).context("what the readers saw")?;
    files::write_atomic(context.folder.join("readings.json"), text.as_bytes())?;
    Ok(())
}

fn fetch(context: &Context<'_>, text: &Text) -> Result<Vec<SourceFile>> {
    let options = SourceOptions {
        revision: text.revision.clone(),
        config: text.config.clone(),
        sha256: text.sha256.clone(),
        offline: false,
    };
    let cache = context.store.cache();
    files::create_dir_all(&cache)?;
    Ok(source::fetch(&text.parse()?, &options, &cache)?)
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
