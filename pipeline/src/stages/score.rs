//! `score`: what a model reproduces of the probed documents, and its loss on held-out text.
//!
//! Initial, warm and after are this one stage with other weights. Weights that trials share are
//! scored once and written for each trial; those that arms share are written once with an empty
//! arm, and `estimate` repeats them.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, Result};
use axmem_datasets::bucket::Assignment;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_datasets::{files, table};
use axmem_eval::rank_model::RankModel;
use axmem_eval::{self as eval, Probe, Score, ScoreRow, ScoreSettings};
use axmem_trainer::{Llama, Rank};
use serde_json::json;

use super::training::Probing;
use super::{Context, created_after, tokens, training};
use crate::experiment::{Prefix, Time};
use crate::plan::Stage;
use crate::scoring::Scoring;
use crate::store::PARTIAL;
use crate::weights::Weights;

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let assignments: Vec<Assignment> =
        table::read(context.input(Stage::Buckets).join("buckets.parquet"))?;
    let probes = probes(context, &assignments)?;
    let time = time(context)?.name();
    let held_out = |rank: &Rank, llama: &Llama| training::validate(context, rank, llama, time);
    let Some(scores) = scored(context, &probes, &held_out)? else {
        return Ok(());
    };
    let mut levels: HashMap<(&str, u32), u32> = HashMap::new();
    for row in &assignments {
        levels.insert((&row.document, row.trial), row.epochs);
    }
    write(context, &scores, &|document, trial| {
        levels.get(&(document, trial)).copied()
    })
}

/// Scores the second control, which is in no bucket and never presented.
pub(super) fn run_created_after(context: &Context<'_>) -> Result<()> {
    let folder = context.input(Stage::CreatedAfter);
    let documents: Vec<TokenDocument> = table::read(folder.join(created_after::DOCUMENTS))?;
    let probes: Vec<Probe> = documents.into_iter().map(probe).collect();
    match scored(context, &probes, &|_, _| Ok(()))? {
        Some(scores) => write(context, &scores, &|_, _| Some(0)),
        None => Ok(()),
    }
}

fn time(context: &Context<'_>) -> Result<Time> {
    context.node.subject.time.context("a score has a time")
}

/// The scores of the probes; `beside` is done on the same ranks with the same weights. `None` on all processes but the first.
fn scored(
    context: &Context<'_>,
    probes: &[Probe],
    beside: &(dyn Fn(&Rank, &Llama) -> Result<()> + Sync),
) -> Result<Option<Vec<Score>>> {
    let weights = context.artefact(context.node.inputs[0]);
    let weights = Weights::of_artefact(&weights)?;
    let tokenizer = Tokenizer::from_file(context.input(Stage::Tokens).join("tokenizer.json"))?;
    let settings = settings(context, &tokenizer, probes)?;
    let (scores, settings) = context.on_ranks(|rank| {
        let llama = weights.llama(rank)?;
        let model = RankModel {
            llama: &llama,
            rank,
            ids: tokenizer.vocab_size(),
        };
        let scoring = Scoring {
            folder: &context.folder.join(PARTIAL),
            label: &context.node.to_string(),
            tokenizer: &tokenizer,
            events: context.events,
        };
        let scored = scoring.run(&model, probes, settings.clone())?;
        beside(rank, &llama)?;
        Ok(scored)
    })?;
    if !context.ranks.is_first() {
        return Ok(None);
    }
    let measured = json!({ "tolerance": settings.tolerance, "probes": probes.len() });
    files::write_atomic(
        context.folder.join("tolerance.json"),
        measured.to_string().as_bytes(),
    )?;
    Ok(Some(scores))
}

/// Writes the scores for every trial that has these weights, with the level of each document.
fn write(
    context: &Context<'_>,
    scores: &[Score],
    level: &dyn Fn(&str, u32) -> Option<u32>,
) -> Result<()> {
    let time = eval_time(time(context)?);
    let trials = match context.node.subject.trial {
        Some(trial) => trial..trial + 1,
        None => 0..context.experiment.buckets.trials,
    };
    let mut rows = Vec::new();
    for trial in trials {
        for score in scores {
            let epochs = level(&score.document, trial);
            rows.push(ScoreRow {
                model: context.model().name.clone(),
                arm: context.node.subject.arm.clone().unwrap_or_default(),
                trial,
                time,
                epochs: epochs.context("every probed document has a level in every trial")?,
                score: score.clone(),
            });
        }
    }
    Ok(table::write(context.folder.join("scores.parquet"), &rows)?)
}

/// The documents of all buckets, in the order of the buckets.
fn probes(context: &Context<'_>, assignments: &[Assignment]) -> Result<Vec<Probe>> {
    let path = context.input(Stage::Tokens).join("tokens.parquet");
    let mut windows: HashMap<String, TokenDocument> = HashMap::new();
    table::scan(path, |row: TokenDocument| {
        windows.insert(row.document.clone(), row);
        Ok(())
    })?;
    assignments
        .iter()
        .filter(|row| row.trial == 0)
        .map(|row| {
            let window = windows.remove(&row.document);
            let window = window.with_context(|| format!("document {} has no ids", row.document))?;
            Ok(probe(window))
        })
        .collect()
}

fn probe(window: TokenDocument) -> Probe {
    Probe {
        document: window.document,
        cluster: window.cluster,
        ids: window.ids,
    }
}

fn settings(
    context: &Context<'_>,
    tokenizer: &Tokenizer,
    probes: &[Probe],
) -> Result<ScoreSettings> {
    let experiment = context.experiment;
    let score = &experiment.score;
    Ok(ScoreSettings {
        suffix: score.suffix.clone(),
        prefix: score.prefix.iter().copied().map(eval_prefix).collect(),
        min_prefix: score.min_prefix,
        batch: score.batch,
        batch_tokens: eval::BATCH_TOKENS,
        bos: tokens::bos(experiment.documents.bos).id(tokenizer)?,
        generate: score.generate,
        cross_check: eval::cross_check_sample(probes),
        tolerance: 0.0,
    })
}

/// The documents of all buckets in the middle of a training, after the prefix that the report is about; nothing is decoded.
pub(super) fn probing(
    context: &Context<'_>,
    every: u32,
    trial: u32,
    assignments: &[Assignment],
) -> Result<Probing> {
    let tokenizer = Tokenizer::from_file(context.input(Stage::Tokens).join("tokenizer.json"))?;
    let probes = probes(context, assignments)?;
    let mut settings = settings(context, &tokenizer, &probes)?;
    settings.prefix = vec![eval_prefix(context.experiment.score.primary_prefix())];
    settings.generate = false;
    settings.cross_check = BTreeSet::new();
    let of_trial = assignments.iter().filter(|row| row.trial == trial);
    Ok(Probing {
        every,
        levels: of_trial
            .map(|row| (row.document.clone(), row.epochs))
            .collect(),
        ids: tokenizer.vocab_size(),
        probes,
        settings,
    })
}

pub(super) fn eval_prefix(prefix: Prefix) -> eval::Prefix {
    match prefix {
        Prefix::All => eval::Prefix::All,
        Prefix::Tokens(tokens) => eval::Prefix::Tokens(tokens),
    }
}

pub(super) fn eval_time(time: Time) -> eval::Time {
    match time {
        Time::Initial => eval::Time::Initial,
        Time::Warm => eval::Time::Warm,
        Time::After => eval::Time::After,
    }
}
