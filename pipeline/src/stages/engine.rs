//! From the words of an experiment to those of the trainer, and the start of its ranks.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_trainer::{
    self as trainer, Grid, Hash, ModelConfig, Rank, RateSchedule, TrainConfig, launch,
};

use super::weights::CONFIG;
use crate::experiment::resolved::Train;
use crate::experiment::{Decay, Goldfish, GoldfishHash, GridChoice, Optimizer, Recompute};

/// The settings of a trainer; `goldfish` masks the rows that are marked so.
pub(super) fn config(train: &Train, goldfish: Option<trainer::Goldfish>) -> TrainConfig {
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
        micro_batch: train.micro_batch,
        recompute: match train.recompute {
            Recompute::None => trainer::Recompute::None,
            Recompute::Block => trainer::Recompute::Block,
        },
        goldfish,
    }
}

/// The mask of an arm.
pub(super) fn goldfish(goldfish: &Goldfish) -> Result<trainer::Goldfish> {
    let hash = match goldfish.hash {
        GoldfishHash::Portable => Hash::Portable { key: goldfish.key },
        GoldfishHash::Released => Hash::Released,
    };
    Ok(trainer::Goldfish::new(goldfish.k, goldfish.h, hash)?)
}

/// The learning rate of a run with `steps` treated steps.
pub(super) fn rate(train: &Train, steps: u32) -> RateSchedule {
    RateSchedule {
        peak: train.rate.peak,
        last: train.rate.last,
        decay: match train.rate.decay {
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

fn grid(choice: &GridChoice) -> Grid {
    match choice {
        GridChoice::Auto => Grid::single(),
        GridChoice::Sizes(sizes) => Grid::new(sizes.x, sizes.y, sizes.z, sizes.data),
    }
}

/// Runs `work` on every rank and gives the result of the first. An error of any rank stops all,
/// and the one that came first in cause is returned.
pub(super) fn on_ranks<T: Send>(
    choice: &GridChoice,
    work: impl Fn(&Rank) -> Result<T> + Sync,
) -> Result<T> {
    // The launcher knows errors of its own crate only; others wait here.
    let cause = Mutex::new(None);
    let outcome = launch::threads(&grid(choice), |rank| {
        work(rank).map_err(|error| match error.downcast::<trainer::Error>() {
            Ok(error) => error,
            Err(error) => {
                let mut cause = cause.lock().unwrap_or_else(PoisonError::into_inner);
                cause.get_or_insert(error);
                trainer::Error::Data("stopped".to_owned())
            }
        })
    });
    if let Some(error) = cause.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    outcome?
        .into_iter()
        .next()
        .context("a grid has at least one rank")
}
