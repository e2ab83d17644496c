//! `weights`: the initial weights of a model.
//!
//! Random weights are drawn here, one set for each trial. Published weights stay where they are: they are fetched and checked
//! before anything else is started, and the artefact says where they lie and what they are.

use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_datasets::source::{ModelFiles, ModelOptions, ModelSource};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_trainer::{Llama, ModelConfig, Published, checkpoint};
use serde_json::json;

use super::Context;
use crate::digest::digest;
use crate::events::Events;
use crate::exit::Failure;
use crate::experiment::resolved::PublishedModel;
use crate::experiment::{Dtype, Experiment, Model, Shape, TokenizerChoice, Weights};
use crate::plan::Stage;
use crate::store::Store;
use crate::weights::{CHECKPOINT, CONFIG, REFERENCE, Reference, fetch, tokenizer};

/// Repository and parameter count of published models, for the size of what is missing. The
/// counts follow from the published `config.json` of each (embedding, blocks, norms, head).
const KNOWN_PARAMETERS: [(&str, f64); 7] = [
    (
        "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
        1_100_048_384.0,
    ),
    ("meta-llama/Llama-2-7b-hf", 6_738_415_616.0),
    ("meta-llama/Llama-2-13b-hf", 13_015_864_320.0),
    ("meta-llama/Llama-2-70b-hf", 68_976_648_192.0),
    ("meta-llama/Llama-3.1-8B", 8_030_261_248.0),
    ("meta-llama/Llama-3.1-70B", 70_553_706_496.0),
    ("meta-llama/Llama-3.1-405B", 405_853_388_800.0),
];

/// Brings published weights here and ends the run, before any work, if they can't be had or don't
/// fit the study.
///
/// # Errors
/// A model error (exit code 4) that says what is missing, how large it is and how to get it; a
/// setting that the model can't meet (exit code 2).
pub fn check(experiment: &Experiment, model: &Model, store: &Store, events: &Events) -> Result<()> {
    let Weights::Published(published) = &model.weights else {
        return Ok(());
    };
    let found = find(model, published, store, events)?;
    let opened = Published::open(&found.path)?;
    let config = opened.config();
    config
        .check_grid(&experiment.layout(Some(model)).grid)
        .map_err(|error| Failure::usage(error.to_string()))?;
    if experiment.documents.tokens > config.max_positions {
        return Err(Failure::usage(format!(
            "documents.tokens: {} is more than the {} positions of {}",
            experiment.documents.tokens, config.max_positions, model.name
        )));
    }
    let tokenizer = match &experiment.tokenizer {
        TokenizerChoice::File { path, .. } => Tokenizer::from_file(path)?,
        _ => tokenizer(&found.path, &opened)?,
    };
    let ids = tokenizer.vocab_size();
    if ids > config.vocab {
        return Err(Failure::model(format!(
            "the tokenizer has {ids} ids, and {} rows for {}; it is not the model's tokenizer",
            published.source, config.vocab
        )));
    }
    for note in [&found.notes[..], opened.notes(), tokenizer.notes()].concat() {
        let fields = json!({ "model": model.name, "note": note });
        events.tell("note", fields, &format!("{}: {note}", model.name));
    }
    Ok(())
}

/// The files of a published model on this machine.
///
/// # Errors
/// As [`check`].
pub(super) fn find(
    model: &Model,
    published: &PublishedModel,
    store: &Store,
    events: &Events,
) -> Result<ModelFiles> {
    let source = published.parse()?;
    let options = ModelOptions {
        sha256: published.sha256.as_deref(),
        ..ModelOptions::default()
    };
    let found = match model.dtype {
        Dtype::F32 => fetch(&source, &options, &store.cache(), events),
        // Not worth a download, which may take hours.
        Dtype::Bf16 => source
            .fetch(
                &ModelOptions {
                    offline: true,
                    ..options
                },
                &store.cache(),
            )
            .map_err(Into::into),
    };
    let found = found.map_err(|error| missing(model, &source, &error))?;
    if model.dtype == Dtype::Bf16 {
        return Err(Failure::usage(
            "model.dtype: bf16 arithmetic is not built yet; weights stored in bf16 are read and computed with in f32: set \
             model.dtype to f32",
        ));
    }
    Ok(found)
}

/// What is missing, how large it is, and how to get it.
fn missing(model: &Model, source: &ModelSource, error: &anyhow::Error) -> anyhow::Error {
    let size = KNOWN_PARAMETERS
        .iter()
        .find(
            |(name, _)| matches!(source, ModelSource::Hub { repository, .. } if repository == name),
        )
        .map_or_else(String::new, |(_, parameters)| {
            let bytes = parameters * bytes_per_parameter(model.dtype);
            format!(
                " (about {:.0} GB in {}, {:.1} billion parameters)",
                bytes / 1e9,
                model.dtype.name(),
                parameters / 1e9
            )
        });
    let remedy = match source {
        ModelSource::Hub {
            repository,
            revision: Some(revision),
            ..
        } => format!(
            "; accept their licence at huggingface.co/{repository} and fetch them with \
             `huggingface-cli download {repository} --revision {revision}`"
        ),
        _ => String::new(),
    };
    Failure::model(format!(
        "the weights of {}{size} can't be had: {error}{remedy}",
        model.name
    ))
}

fn bytes_per_parameter(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 4.0,
        Dtype::Bf16 => 2.0,
    }
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    match &context.model().weights {
        Weights::Random(shape) => draw(context, shape),
        Weights::Published(published) => context.ranks.lead(|| refer(context, published)),
    }
}

/// Writes down where published weights are, with a hash of every file.
fn refer(context: &Context<'_>, published: &PublishedModel) -> Result<()> {
    let source = published.parse()?;
    let options = ModelOptions {
        sha256: published.sha256.as_deref(),
        hash: true,
        ..ModelOptions::default()
    };
    let cache = context.store.cache();
    let found = fetch(&source, &options, &cache, context.events)
        .map_err(|error| missing(context.model(), &source, &error))?;
    let opened = Published::open(&found.path)?;
    write_config(context.folder, opened.config())?;
    let reference = serde_json::to_string_pretty(&Reference::new(&found))
        .context("where the published weights are")?;
    Ok(files::write_atomic(
        context.folder.join(REFERENCE),
        reference.as_bytes(),
    )?)
}

fn draw(context: &Context<'_>, shape: &Shape) -> Result<()> {
    let tokenizer = Tokenizer::from_file(context.input(Stage::Tokens).join("tokenizer.json"))?;
    let config = config(shape, &tokenizer)?;
    config.validate()?;
    let trial = context.node.subject.trial.unwrap_or(0);
    let seed = init_seed(context.experiment.seed, trial)?;
    context.on_ranks(|rank| {
        let llama = Llama::initialise(&config, rank, seed)?;
        let folder = context.folder.join(CHECKPOINT);
        Ok(checkpoint::save_weights(rank, &folder, &llama)?)
    })?;
    if !context.ranks.is_first() {
        return Ok(());
    }
    write_config(context.folder, &config)
}

fn write_config(folder: &Path, config: &ModelConfig) -> Result<()> {
    let text = serde_json::to_string_pretty(config).context("the sizes of the model")?;
    Ok(files::write_atomic(folder.join(CONFIG), text.as_bytes())?)
}

/// The sizes of a model that has a row for every id of the tokenizer.
fn config(shape: &Shape, tokenizer: &Tokenizer) -> Result<ModelConfig> {
    let ids = tokenizer.vocab_size();
    let vocab = shape.vocab.unwrap_or(ids);
    if vocab < ids {
        return Err(Failure::model(format!(
            "the tokenizer has {ids} ids, the model's vocabulary {vocab}: set model.random.vocab to at \
             least {ids}, or leave it out"
        )));
    }
    Ok(shape.config(vocab))
}

/// Trials from random weights differ in their initial weights too.
fn init_seed(seed: u64, trial: u32) -> Result<u64> {
    let hash = digest(&json!(["initial weights", seed, trial]));
    u64::from_str_radix(&hash[..16], 16).context("the seed of the initial weights")
}
