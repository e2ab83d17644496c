//! From the words of an experiment to those of the trainer.

use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_trainer::{self as trainer, Hash, ModelConfig, RateSchedule, TrainConfig};

use crate::experiment::resolved::Train;
use crate::experiment::{Decay, Experiment, Goldfish, GoldfishHash, Model, Optimizer};
use crate::weights::CONFIG;

/// The settings of the trainer of a model; `goldfish` masks the rows that are marked so.
pub(crate) fn config(
    experiment: &Experiment,
    model: &Model,
    goldfish: Option<trainer::Goldfish>,
) -> TrainConfig {
    let train = &experiment.train;
    let Optimizer::Adamw(adamw) = &train.optimizer;
    TrainConfig {
        optimizer: trainer::Optimizer::AdamW(trainer::AdamW {
            beta1: adamw.beta1,
            beta2: adamw.beta2,
            eps: adamw.eps,
            weight_decay: adamw.weight_decay,
            decay_norms: adamw.decay_norms,
        }),
        clip: Some(train.clip),
        micro_batch: experiment.micro_batch(model),
        schedule: experiment.layout(Some(model)).schedule(train.recompute),
        goldfish,
    }
}

/// The mask of an arm.
pub(crate) fn goldfish(goldfish: &Goldfish) -> Result<trainer::Goldfish> {
    let hash = match goldfish.hash {
        GoldfishHash::Portable => Hash::Portable { key: goldfish.key },
        GoldfishHash::Released => Hash::Released,
    };
    Ok(trainer::Goldfish::new(goldfish.k, goldfish.h, hash)?)
}

/// The learning rate of a run of `model` with `steps` treated steps.
pub(crate) fn rate(train: &Train, model: &Model, steps: u32) -> RateSchedule {
    RateSchedule {
        peak: model.rate.peak,
        last: model.rate.last,
        decay: match model.rate.decay {
            Decay::Cosine => trainer::Decay::Cosine,
            Decay::Linear => trainer::Decay::Linear,
            Decay::Constant => trainer::Decay::Constant,
        },
        warmup_steps: u64::from(train.warmup.steps),
        decay_steps: u64::from(steps),
    }
}

/// The sizes of the model whose weights are in an artefact.
pub(super) fn model_config(folder: &Path) -> Result<ModelConfig> {
    let path = folder.join(CONFIG);
    let text = files::read_to_string(&path)?;
    serde_json::from_str(&text).with_context(|| format!("{} is no model config", path.display()))
}
