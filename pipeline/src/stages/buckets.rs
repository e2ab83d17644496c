//! `buckets`: which documents are presented how often, and the background that keeps clear of them.
//!
//! The analysis settings are sealed into the manifest here, before anything is trained.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use axmem_datasets::background::{self, BackgroundSettings, Candidate};
use axmem_datasets::bucket::{self, BucketSettings};
use axmem_datasets::cluster::Clusters;
use axmem_datasets::contamination;
use axmem_datasets::document::Document;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::table;
use axmem_datasets::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::corpus::redirects;
use super::{Context, tokens, train};
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
    let (pool, candidates) = if experiment.background.text.is_some() {
        let candidates = candidates(&other, &clusters, &windows)?;
        (other, candidates)
    } else {
        let eligible: HashSet<&str> = windows
            .iter()
            .filter(|window| window.eligible)
            .map(|window| window.article.as_str())
            .collect();
        let mut rest = corpus;
        rest.retain(|document| eligible.contains(document.id.as_str()));
        let candidates = candidates(&rest, &clusters, &windows)?;
        (rest, candidates)
    };
    let bos = tokens::bos(experiment.documents.bos).id(&tokenizer)?;
    let background = background::build(
        &candidates,
        &|index| tokenizer.encode(&pool[index].text),
        &in_buckets,
        &redirects(context)?,
        &BackgroundSettings {
            rows: experiment.background.rows,
            row_tokens: experiment.documents.tokens,
            bos,
            held_out: experiment.background.held_out,
            near: experiment.documents.near_duplicates.map(Into::into),
            seed: experiment.seed,
        },
    )?;

    train::check_schedules(experiment, &assignments, background.rows.len())?;

    table::write(context.folder.join("buckets.parquet"), &assignments)?;
    table::write(
        context.folder.join("background.parquet"),
        background.rows.iter().chain(&background.held_out),
    )?;
    table::write(
        context.folder.join("exclusions.parquet"),
        &background.excluded,
    )?;
    let shared = contamination::measure(&assignments, &windows, &background.rows, bos);
    table::write(context.folder.join("contamination.parquet"), &shared)?;
    Ok(json!({ "analysis": experiment.analysis }))
}

/// The articles of a pool with their clusters. Articles of the corpus are joined by equal windows
/// too, which only the table of tokens knows; a copy of one belongs where that one does.
fn candidates(
    pool: &[Document],
    clusters: &Clusters,
    windows: &[TokenDocument],
) -> Result<Vec<Candidate>> {
    let labelled: HashMap<&str, &str> = windows
        .iter()
        .map(|window| (window.article.as_str(), window.cluster.as_str()))
        .collect();
    pool.iter()
        .map(|document| {
            let named = clusters.id(&document.id)?;
            Ok(Candidate {
                document: document.id.clone(),
                title: document.title.clone(),
                cluster: (*labelled.get(named).unwrap_or(&named)).to_owned(),
            })
        })
        .collect()
}
