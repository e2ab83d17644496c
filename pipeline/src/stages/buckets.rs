//! `buckets`: which documents are presented how often, and the background that keeps clear of them.
//!
//! The analysis settings are sealed into the manifest here, before anything is trained.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use axmem_datasets::background::{self, BackgroundSettings, Candidate};
use axmem_datasets::bucket::{self, BucketSettings};
use axmem_datasets::contamination;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::table::{self, DocumentRow};
use axmem_datasets::tokenizer::Tokenizer;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::corpus::{BACKGROUND, redirects};
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

    let (pool, rows) = pool(context, &windows)?;
    let documents = tokens::documents(context);
    let encode = |chosen: &[usize]| {
        let chosen: Vec<usize> = chosen.iter().map(|&index| rows[index]).collect();
        let texts: Vec<DocumentRow> = table::read_rows(&documents, &chosen)?;
        let texts = texts.par_iter();
        texts.map(|row| tokenizer.encode(&row.text)).collect()
    };
    let bos = tokens::bos(experiment.documents.bos).id(&tokenizer)?;
    let background = background::build(
        &pool,
        &encode,
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

/// The articles that background is drawn from, and the rows of the table of all articles that they are: those of the
/// background's source, or the eligible ones of the corpus.
///
/// Articles of the corpus are joined by equal windows too, which only the table of tokens knows; a copy of one belongs where
/// that one does.
fn pool(context: &Context<'_>, windows: &[TokenDocument]) -> Result<(Vec<Candidate>, Vec<usize>)> {
    let has_own = context.experiment.background.text.is_some();
    let clusters = has_own.then(|| tokens::clusters(context)).transpose()?;
    let labelled: HashMap<&str, &TokenDocument> = windows
        .iter()
        .filter(|window| has_own || window.eligible)
        .map(|window| (window.article.as_str(), window))
        .collect();
    let (mut pool, mut rows) = (Vec::new(), Vec::new());
    let mut row = 0;
    table::scan(tokens::documents(context), |article: DocumentRow| {
        let cluster = match &clusters {
            Some(_) if article.origin != BACKGROUND => None,
            Some(clusters) => {
                let named = clusters.id(&article.id)?;
                Some(labelled.get(named).map_or(named, |window| &window.cluster))
            }
            None => labelled
                .get(article.id.as_str())
                .map(|window| window.cluster.as_str()),
        };
        if let Some(cluster) = cluster {
            pool.push(Candidate {
                cluster: cluster.to_owned(),
                document: article.id,
                title: article.title,
            });
            rows.push(row);
        }
        row += 1;
        Ok(())
    })?;
    Ok((pool, rows))
}
