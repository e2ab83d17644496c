//! `buckets`: which documents are presented how often, and the background that keeps clear of them.
//!
//! The analysis settings are sealed into the manifest here, before anything is trained.

use std::collections::HashSet;

use anyhow::{Context as _, Result};
use axmem_datasets::background::{self, BackgroundSettings, Candidate};
use axmem_datasets::bucket::{self, BucketSettings};
use axmem_datasets::cluster::Clusters;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::files;
use axmem_datasets::table;
use axmem_datasets::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::corpus::Reading;
use super::{Context, tokens};
use crate::plan::Stage;

pub(super) fn run(context: &Context<'_>) -> Result<Value> {
    let experiment = context.experiment;
    let folder = context.input(Stage::Tokens);
    let windows: Vec<TokenDocument> = table::read(folder.join("tokens.parquet"))?;
    let tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))?;
    let settings = BucketSettings {
        size: experiment.buckets.size,
        epochs: experiment.buckets.epochs.clone(),
        trials: experiment.buckets.trials,
        seed: experiment.seed,
    };
    let assignments = bucket::assign(&windows, &settings)?;
    let assigned: HashSet<&str> = assignments
        .iter()
        .map(|row| row.document.as_str())
        .collect();
    let in_buckets: Vec<&TokenDocument> = windows
        .iter()
        .filter(|window| assigned.contains(window.document.as_str()))
        .collect();

    let (corpus, other) = tokens::documents(context)?;
    let clusters = Clusters::of_texts(&[&corpus, &other])?;
    let pool = if experiment.background.text.is_some() {
        &other
    } else {
        &corpus
    };
    let candidates = pool
        .iter()
        .map(|document| {
            Ok(Candidate {
                document: document.id.clone(),
                title: document.title.clone(),
                cluster: clusters.id(&document.id)?.to_owned(),
            })
        })
        .collect::<axmem_datasets::Result<Vec<_>>>()?;
    let readings = files::read_to_string(context.input(Stage::Corpus).join("readings.json"))?;
    let readings: Vec<Reading> = serde_json::from_str(&readings).context("readings.json")?;
    let redirects: Vec<(String, String)> = readings
        .into_iter()
        .flat_map(|reading| reading.redirect_titles)
        .collect();
    let background = background::build(
        &candidates,
        &|index| tokenizer.encode(&pool[index].text),
        &in_buckets,
        &redirects,
        &BackgroundSettings {
            rows: experiment.background.rows,
            row_tokens: experiment.documents.tokens,
            bos: tokens::bos(experiment.documents.bos).id(&tokenizer)?,
            held_out: experiment.background.held_out,
            seed: experiment.seed,
        },
    )?;

    table::write(context.folder.join("buckets.parquet"), &assignments)?;
    table::write(
        context.folder.join("background.parquet"),
        background.rows.iter().chain(&background.held_out),
    )?;
    table::write(
        context.folder.join("exclusions.parquet"),
        &background.excluded,
    )?;
    Ok(json!({ "analysis": experiment.analysis }))
}
