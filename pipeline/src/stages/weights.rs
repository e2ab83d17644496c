//! `weights`: the initial weights of a model.
//!
//! Random weights are drawn here, one set for each trial. Published weights are looked for; this
//! version can't load them, and says so before anything else is started.

use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_trainer::{Llama, ModelConfig, checkpoint};
use serde_json::json;

use super::Context;
use crate::digest::digest;
use crate::exit::Failure;
use crate::experiment::{Dtype, Experiment, Shape, Weights};
use crate::plan::{Node, Stage};

/// The checkpoint inside an artefact that holds weights.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// The sizes of the model, beside it.
pub(super) const CONFIG: &str = "config.json";

/// Repository and parameter count of published models, for the size of what is missing. The
/// counts follow from the published `config.json` of each (embedding, blocks, norms, head).
const KNOWN_PARAMETERS: [(&str, f64); 4] = [
    ("meta-llama/Llama-2-7b-hf", 6_738_415_616.0),
    ("meta-llama/Llama-2-13b-hf", 13_015_864_320.0),
    ("meta-llama/Llama-2-70b-hf", 68_976_648_192.0),
    ("meta-llama/Llama-3.1-405B", 405_853_388_800.0),
];

/// Ends the run, before any work, if the weights of `node` can't be had.
///
/// # Errors
/// A model error (exit code 4) that says what is missing, how large it is and how to get it.
pub fn check(experiment: &Experiment, node: &Node) -> Result<()> {
    let model = &experiment.models[node.subject.model.unwrap_or(0)];
    match &model.weights {
        Weights::Random(_) => Ok(()),
        Weights::Hub {
            repository,
            revision,
        } => {
            let size = KNOWN_PARAMETERS
                .iter()
                .find(|(name, _)| name == repository)
                .map_or_else(String::new, |(_, parameters)| {
                    let bytes = parameters * bytes_per_parameter(model.dtype);
                    format!(
                        " (about {:.0} GB in {}, {:.1} billion parameters)",
                        bytes / 1e9,
                        model.dtype.name(),
                        parameters / 1e9
                    )
                });
            Err(Failure::model(format!(
                "the weights of {repository}{size} are not here: accept their licence at \
                 huggingface.co/{repository} and fetch revision {revision} with `huggingface-cli \
                 download {repository} --revision {revision}`; loading published weights comes with \
                 a later version of axmem, this one trains from random weights (see \
                 experiments/quickstart.yaml)"
            )))
        }
        Weights::Folder(path) if !Path::new(path).join("config.json").is_file() => {
            Err(Failure::model(format!(
                "{path} holds no config.json; model.source must be a folder in the Hugging Face \
                 layout (config.json, tokenizer.json, *.safetensors)"
            )))
        }
        Weights::Folder(path) => Err(Failure::model(format!(
            "the weights in {path} are there, but loading published weights comes with a later \
             version of axmem; this one trains from random weights (see \
             experiments/quickstart.yaml)"
        ))),
    }
}

fn bytes_per_parameter(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 4.0,
        Dtype::Bf16 => 2.0,
    }
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    check(context.experiment, context.node)?;
    let Weights::Random(shape) = &context.model().weights else {
        return Err(Failure::model("only random weights can be made"));
    };
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
    let text = serde_json::to_string_pretty(&config).context("the sizes of the model")?;
    files::write_atomic(context.folder.join(CONFIG), text.as_bytes())?;
    Ok(())
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
