//! `estimate`: all scores of the study in one table, the exposure ledger, and what they say.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::exposure::{self, Exposure};
use axmem_datasets::schedule::Slot;
use axmem_datasets::table;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_eval::estimate::{
    self, Analysis, Contrast as ContrastRow, ContrastKind, Estimate, Overlap, Primary, Question,
    Threshold, Transition,
};
use axmem_eval::{ModelInfo, ScoreRow};

use super::score::eval_time;
use super::{Context, engine, train};
use crate::experiment::{Arm, Contrast, Measure, Weights};
use crate::plan::{self, Stage};

/// Power of the smallest detectable effect.
pub(super) const POWER: f64 = 0.8;

/// File of each table, in the artefact of this stage.
pub(crate) const EXPOSURES: &str = "exposures.parquet";
pub(crate) const SCORES: &str = "scores.parquet";
pub(crate) const ESTIMATES: &str = "estimates.parquet";
pub(crate) const CONTRASTS: &str = "contrasts.parquet";
pub(crate) const OVERLAP: &str = "overlap.parquet";
pub(crate) const TRANSITIONS: &str = "transitions.parquet";
pub(crate) const THRESHOLDS: &str = "thresholds.parquet";

/// All that the stage finds out.
pub(crate) struct Tables {
    pub(crate) exposures: Vec<Exposure>,
    pub(crate) scores: Vec<ScoreRow>,
    pub(crate) estimates: Vec<Estimate>,
    pub(crate) contrasts: Vec<ContrastRow>,
    pub(crate) overlap: Vec<Overlap>,
    pub(crate) transitions: Vec<Transition>,
    /// Of a ladder.
    pub(crate) thresholds: Option<Vec<Threshold>>,
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    Tables::compute(context)?.write(context.folder)
}

impl Tables {
    /// The tables from the scores, schedules and token ids that the stage is given.
    pub(crate) fn compute(context: &Context<'_>) -> Result<Self> {
        let scores = scores(context)?;
        let exposures = ledger(context)?;
        let analysis = analysis(context)?;
        let models = models(context)?;
        Ok(Self {
            estimates: estimate::estimates(&scores, &models, Some(&exposures), &analysis)?,
            contrasts: estimate::contrasts(&scores, &models, &analysis)?,
            overlap: estimate::overlap(&scores)?,
            transitions: estimate::transitions(&scores)?,
            thresholds: thresholds(context, &scores, &models, &analysis)?,
            exposures,
            scores,
        })
    }

    /// Writes each under its name.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        table::write(folder.join(EXPOSURES), &self.exposures)?;
        table::write(folder.join(SCORES), &self.scores)?;
        table::write(folder.join(ESTIMATES), &self.estimates)?;
        table::write(folder.join(CONTRASTS), &self.contrasts)?;
        table::write(folder.join(OVERLAP), &self.overlap)?;
        table::write(folder.join(TRANSITIONS), &self.transitions)?;
        if let Some(thresholds) = &self.thresholds {
            table::write(folder.join(THRESHOLDS), thresholds)?;
        }
        Ok(())
    }
}

/// The answers of a ladder.
fn thresholds(
    context: &Context<'_>,
    scores: &[ScoreRow],
    models: &[ModelInfo],
    analysis: &Analysis,
) -> Result<Option<Vec<Threshold>>> {
    let Some(asked) = &context.experiment.analysis.threshold else {
        return Ok(None);
    };
    let question = Question {
        rate: asked.rate,
        exposures: asked.exposures,
    };
    let found = estimate::thresholds(scores, models, question, analysis)?;
    Ok(Some(found))
}

/// All scores; those that arms share are repeated for each.
fn scores(context: &Context<'_>) -> Result<Vec<ScoreRow>> {
    let mut all = Vec::new();
    for &index in &context.node.inputs {
        let node = &context.plan.nodes[index];
        if node.stage != Stage::Score {
            continue;
        }
        let path = context.artefact(index).join("scores.parquet");
        let rows: Vec<ScoreRow> = table::read(&path)?;
        if node.subject.arm.is_some() {
            all.extend(rows);
            continue;
        }
        for arm in &context.experiment.train.arms {
            // An arm with a warm-up of its own has warm scores of its own.
            let shared = node.subject.time != Some(crate::experiment::Time::Warm)
                || plan::masks_warmup(arm).is_none();
            if shared {
                all.extend(rows.iter().cloned().map(|row| ScoreRow {
                    arm: arm.name().to_owned(),
                    ..row
                }));
            }
        }
    }
    Ok(all)
}

/// The ledger of every training run, from its schedule and its mask.
fn ledger(context: &Context<'_>) -> Result<Vec<Exposure>> {
    let experiment = context.experiment;
    let suffix: Vec<u32> = experiment
        .score
        .suffix
        .iter()
        .map(|&length| length as u32)
        .collect();
    let documents = train::documents(context)?;
    let mut ledger = Vec::new();
    for &index in &context.node.inputs {
        let node = &context.plan.nodes[index];
        if node.stage != Stage::Train {
            continue;
        }
        let name = node.subject.arm.as_deref().unwrap_or_default();
        let arm = experiment.train.arms.iter().find(|arm| arm.name() == name);
        let mask = match arm {
            Some(Arm::Goldfish(goldfish)) => Some(engine::goldfish(goldfish)?),
            _ => None,
        };
        let slots: Vec<Slot> = table::read(context.artefact(index).join("schedule.parquet"))?;
        let warmup = experiment.train.warmup.steps;
        let steps = slots.last().map_or(0, |slot| slot.step - warmup);
        let model = node.subject.model.context("a training run has a model")?;
        let model = &experiment.models[model];
        let rate = engine::rate(&experiment.train, model, steps);
        let kept = |document: &str| {
            let ids = documents.get(document).ok_or_else(|| {
                axmem_datasets::Error::data(format!("document {document} has no ids"))
            })?;
            Ok(match &mask {
                Some(mask) => mask.keep(ids),
                None => (0..ids.len()).map(|position| position > 0).collect(),
            })
        };
        let at = |step: u32| rate.at(u64::from(step));
        ledger.extend(exposure::ledger(
            [&model.name, name],
            &slots,
            &suffix,
            &at,
            &kept,
        )?);
    }
    Ok(ledger)
}

fn analysis(context: &Context<'_>) -> Result<Analysis> {
    let experiment = context.experiment;
    let settings = &experiment.analysis;
    let reference = experiment
        .train
        .arms
        .iter()
        .find(|arm| **arm == Arm::Standard);
    let reference = reference.or_else(|| experiment.train.arms.first());
    Ok(Analysis {
        primary: Primary {
            time: (
                eval_time(settings.primary.time.0),
                eval_time(settings.primary.time.1),
            ),
            suffix: settings.primary.suffix as u32,
            exposures: Some(settings.primary.exposures),
            contrast: match settings.primary.contrast {
                Contrast::Did => ContrastKind::Did,
                Contrast::Paired => ContrastKind::Paired,
            },
            measure: match settings.primary.measure {
                Measure::Exact => estimate::Measure::Exact,
                Measure::LogProbability => estimate::Measure::LogProbability,
            },
        },
        reference_arm: reference
            .context("an experiment has arms")?
            .name()
            .to_owned(),
        level: settings.level,
        power: POWER,
        resamples: settings.resamples,
        permutations: settings.resamples,
        seed: experiment.seed,
    })
}

fn models(context: &Context<'_>) -> Result<Vec<ModelInfo>> {
    let tokenizer = Tokenizer::from_file(context.input(Stage::Tokens).join("tokenizer.json"))?;
    let mut parameters: HashMap<usize, u64> = HashMap::new();
    for &index in &context.node.inputs {
        let node = &context.plan.nodes[index];
        if let (Stage::Train, Some(model)) = (node.stage, node.subject.model) {
            let config = engine::model_config(&context.artefact(index))?;
            parameters.insert(model, config.parameters());
        }
    }
    let models = context.experiment.models.iter().enumerate();
    models
        .map(|(index, model)| {
            Ok(ModelInfo {
                model: model.name.clone(),
                parameters: parameters
                    .get(&index)
                    .copied()
                    .context("every model is trained")?,
                family: match model.weights {
                    Weights::Random(_) => "llama, random weights".to_owned(),
                    Weights::Published(_) => "llama".to_owned(),
                },
                tokenizer: tokenizer.hash()[..12].to_owned(),
                dtype: model.dtype.name().to_owned(),
            })
        })
        .collect()
}
