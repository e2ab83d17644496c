//! `score`: what a model reproduces of the probed documents, and its loss on held-out text.
//!
//! The scores of every finished chunk of documents are kept in the folder of work in progress, and
//! a later attempt goes on after the last of them.
//!
//! Initial, warm and after are this one stage with other weights. Weights that trials share are
//! scored once and written for each trial; those that arms share are written once with an empty
//! arm, and `estimate` repeats them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::bucket::Assignment;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_datasets::{files, table};
use axmem_eval::rank_model::RankModel;
use axmem_eval::{self as eval, Probe, Score, ScoreRow, ScoreSettings};
use axmem_trainer::{Llama, Rank, checkpoint};
use serde_json::json;

use super::weights::CHECKPOINT;
use super::{Context, engine, tokens, training};
use crate::experiment::{Prefix, Time};
use crate::plan::Stage;
use crate::store::PARTIAL;

/// Probes scored between two records of progress, at least.
const CHUNK: usize = 16;
/// τ in the folder of work in progress, as the bits of an f32.
const TOLERANCE: &str = "tolerance";

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let experiment = context.experiment;
    let weights = context.artefact(context.node.inputs[0]);
    let model = engine::model_config(&weights)?;
    let assignments: Vec<Assignment> =
        table::read(context.input(Stage::Buckets).join("buckets.parquet"))?;
    let probes = probes(context, &assignments)?;
    let time = context.node.subject.time.context("a score has a time")?;
    let tokenizer = Tokenizer::from_file(context.input(Stage::Tokens).join("tokenizer.json"))?;
    let settings = settings(context, &tokenizer, &probes)?;
    let (scores, tolerance) = context.on_ranks(|rank| {
        let mut llama = Llama::initialise(&model, rank, 0)?;
        checkpoint::load_weights(rank, &weights.join(CHECKPOINT), &model, llama.params_mut())?;
        let model = RankModel {
            llama: &llama,
            rank,
            ids: tokenizer.vocab_size(),
        };
        let scored = score(context, &model, &probes, settings.clone())?;
        training::validate(context, rank, &llama, time.name())?;
        Ok(scored)
    })?;
    if !context.ranks.is_first() {
        return Ok(());
    }

    let mut levels: HashMap<(&str, u32), u32> = HashMap::new();
    for row in &assignments {
        levels.insert((&row.document, row.trial), row.epochs);
    }
    let trials = match context.node.subject.trial {
        Some(trial) => trial..trial + 1,
        None => 0..experiment.buckets.trials,
    };
    let mut rows = Vec::new();
    for trial in trials {
        for score in &scores {
            let epochs = levels.get(&(score.document.as_str(), trial)).copied();
            rows.push(ScoreRow {
                model: context.model().name.clone(),
                arm: context.node.subject.arm.clone().unwrap_or_default(),
                trial,
                time: eval_time(time),
                epochs: epochs.context("every probed document has a level in every trial")?,
                score: score.clone(),
            });
        }
    }
    table::write(context.folder.join("scores.parquet"), &rows)?;
    let measured = json!({ "tolerance": tolerance, "probes": probes.len() });
    Ok(files::write_atomic(
        context.folder.join("tolerance.json"),
        measured.to_string().as_bytes(),
    )?)
}

/// Scores the probes that have no score yet, chunk by chunk; each chunk is on disk before the next
/// begins. Gives all scores, and τ; ranks but the first lack the scores of earlier attempts.
fn score(
    context: &Context<'_>,
    model: &RankModel<'_>,
    probes: &[Probe],
    mut settings: ScoreSettings,
) -> Result<(Vec<Score>, f32)> {
    let partial = context.folder.join(PARTIAL);
    let first = model.rank.is_first();
    let begun = Begun::on(model.rank, &partial)?;
    settings.tolerance = match begun.tolerance {
        Some(tolerance) => tolerance,
        None => eval::measure_tolerance(model, probes, &settings)?,
    };
    if first {
        files::create_dir_all(&partial)?;
        let bits = settings.tolerance.to_bits().to_string();
        files::write_atomic(partial.join(TOLERANCE), bits.as_bytes())?;
    }
    // Whole batches, so that no batch is smaller than asked for.
    let chunk = CHUNK.div_ceil(settings.batch) * settings.batch;
    let mut scored = (begun.chunks * chunk).min(probes.len());
    if first {
        let total = probes.len() as u64;
        let name = context.node.to_string();
        let done = scored as u64;
        context.events.start(&name, "documents", total, done);
    }
    let mut scores = begun.scores;
    for (index, chunk) in probes.chunks(chunk).enumerate().skip(begun.chunks) {
        let new = eval::score(model, chunk, &settings)?;
        scored += chunk.len();
        if first {
            table::write(chunk_path(&partial, index), &new)?;
            context.events.progress(scored as u64, "");
        }
        scores.extend(new);
    }
    Ok((scores, settings.tolerance))
}

/// What an earlier attempt left in the folder of work in progress.
struct Begun {
    /// τ, measured before the first chunk: it must be the same for all.
    tolerance: Option<f32>,
    /// Chunks scored.
    chunks: usize,
    /// Their scores.
    scores: Vec<Score>,
}

impl Begun {
    /// What the first rank finds; the others get the numbers without the scores. Collective.
    fn on(rank: &Rank, partial: &Path) -> Result<Self> {
        let mut begun = Self {
            tolerance: None,
            chunks: 0,
            scores: Vec::new(),
        };
        if rank.is_first() {
            begun = Self::read(partial)?;
        }
        let tolerance = begun.tolerance.map_or(u64::MAX, |tau| tau.to_bits().into());
        let tolerance = u32::try_from(rank.agree(tolerance)?);
        begun.tolerance = tolerance.ok().map(f32::from_bits);
        begun.chunks = rank.agree(begun.chunks as u64)? as usize;
        Ok(begun)
    }

    fn read(partial: &Path) -> Result<Self> {
        let path = partial.join(TOLERANCE);
        let mut begun = Self {
            tolerance: None,
            chunks: 0,
            scores: Vec::new(),
        };
        if !path.exists() {
            return Ok(begun);
        }
        let bits: u32 = files::read_to_string(&path)?
            .parse()
            .with_context(|| format!("{} is no tolerance", path.display()))?;
        begun.tolerance = Some(f32::from_bits(bits));
        loop {
            let path = chunk_path(partial, begun.chunks);
            if !path.exists() {
                return Ok(begun);
            }
            begun.scores.extend(table::read::<Score>(&path)?);
            begun.chunks += 1;
        }
    }
}

fn chunk_path(partial: &Path, chunk: usize) -> PathBuf {
    partial.join(format!("scores-{chunk:06}.parquet"))
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
            Ok(Probe {
                document: row.document.clone(),
                cluster: row.cluster.clone(),
                ids: window.ids,
            })
        })
        .collect()
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
        prefix: score
            .prefix
            .iter()
            .map(|prefix| match prefix {
                Prefix::All => eval::Prefix::All,
                Prefix::Tokens(tokens) => eval::Prefix::Tokens(*tokens),
            })
            .collect(),
        min_prefix: score.min_prefix,
        batch: score.batch,
        bos: tokens::bos(experiment.documents.bos).id(tokenizer)?,
        generate: score.generate,
        cross_check: eval::cross_check_sample(probes),
        tolerance: 0.0,
    })
}

pub(super) fn eval_time(time: Time) -> eval::Time {
    match time {
        Time::Initial => eval::Time::Initial,
        Time::Warm => eval::Time::Warm,
        Time::After => eval::Time::After,
    }
}
