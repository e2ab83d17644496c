//! `estimate`: all scores of the study in one table, the exposure ledger, and what they say.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::created_after::ORIGIN;
use axmem_datasets::exposure::{self, Exposure};
use axmem_datasets::schedule::Slot;
use axmem_datasets::table;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_eval::estimate::{
    self, Analysis, Contrast as ContrastRow, ContrastKind, Curve, Estimate, Hazard, Masks, Overlap,
    Primary, ProbeRow, Question, Threshold, Transition,
};
use axmem_eval::{ModelInfo, ScoreRow, Time};

use super::score::{eval_prefix, eval_time};
use super::{Context, engine, train, training};
use crate::experiment::{self, Arm, Contrast, Experiment, Measure, Weights};
use crate::plan::{self, Stage};

/// Power of the smallest detectable effect.
pub(crate) const POWER: f64 = 0.8;

/// File of each table, in the artefact of this stage.
pub(crate) const EXPOSURES: &str = "exposures.parquet";
pub(crate) const SCORES: &str = "scores.parquet";
pub(crate) const ESTIMATES: &str = "estimates.parquet";
pub(crate) const CONTRASTS: &str = "contrasts.parquet";
pub(crate) const OVERLAP: &str = "overlap.parquet";
pub(crate) const TRANSITIONS: &str = "transitions.parquet";
pub(crate) const THRESHOLDS: &str = "thresholds.parquet";
pub(crate) const HAZARDS: &str = "hazards.parquet";
pub(crate) const CURVES: &str = "curves.parquet";
pub(crate) const CREATED_AFTER_SCORES: &str = "created_after_scores.parquet";
pub(crate) const CREATED_AFTER_ESTIMATES: &str = "created_after_estimates.parquet";

/// All that the stage finds out.
pub(crate) struct Tables {
    pub(crate) exposures: Vec<Exposure>,
    pub(crate) scores: Vec<ScoreRow>,
    pub(crate) estimates: Vec<Estimate>,
    pub(crate) contrasts: Vec<ContrastRow>,
    pub(crate) overlap: Vec<Overlap>,
    pub(crate) transitions: Vec<Transition>,
    /// Of the positions that the Goldfish arms drop; empty without such an arm.
    pub(crate) hazards: Vec<Hazard>,
    /// Of trainings that were scored on the way.
    pub(crate) curves: Option<Vec<Curve>>,
    /// Of a ladder.
    pub(crate) thresholds: Option<Vec<Threshold>>,
    /// Of the second control, which is in no other table.
    pub(crate) created_after: Option<CreatedAfter>,
}

/// What the second control was scored at, and its rates.
pub(crate) struct CreatedAfter {
    pub(crate) scores: Vec<ScoreRow>,
    pub(crate) estimates: Vec<Estimate>,
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    Tables::compute(context)?.write(context.folder)
}

impl Tables {
    /// The tables from the scores, schedules and token ids that the stage is given.
    pub(crate) fn compute(context: &Context<'_>) -> Result<Self> {
        let scores = scores(context, Stage::Score)?;
        let exposures = ledger(context)?;
        let analysis = analysis(context)?;
        let models = models(context)?;
        Ok(Self {
            estimates: estimate::estimates(&scores, &models, Some(&exposures), &analysis)?,
            contrasts: estimate::contrasts(&scores, &models, &analysis)?,
            overlap: estimate::overlap(&scores)?,
            transitions: estimate::transitions(&scores)?,
            hazards: estimate::hazards(&scores, &masks(context)?, &analysis)?,
            curves: curves(context, &scores, &exposures, &analysis)?,
            thresholds: thresholds(context, &scores, &models, &analysis)?,
            created_after: created_after(context, &models, &analysis)?,
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
        table::write(folder.join(HAZARDS), &self.hazards)?;
        if let Some(curves) = &self.curves {
            table::write(folder.join(CURVES), curves)?;
        }
        if let Some(thresholds) = &self.thresholds {
            table::write(folder.join(THRESHOLDS), thresholds)?;
        }
        if let Some(group) = &self.created_after {
            table::write(folder.join(CREATED_AFTER_SCORES), &group.scores)?;
            table::write(folder.join(CREATED_AFTER_ESTIMATES), &group.estimates)?;
        }
        Ok(())
    }
}

/// What was reproduced at the end of the warm-up and on the way, by step and by steps since the last presentation.
fn curves(
    context: &Context<'_>,
    scores: &[ScoreRow],
    exposures: &[Exposure],
    analysis: &Analysis,
) -> Result<Option<Vec<Curve>>> {
    let Some(probes) = &context.experiment.train.probes else {
        return Ok(None);
    };
    let experiment = context.experiment;
    let prefix = eval_prefix(experiment.score.primary_prefix()).to_string();
    let at_warm = |row: &&ScoreRow| row.time == Time::Warm && row.score.prefix == prefix;
    let warm = scores.iter().filter(at_warm);
    let mut rows: Vec<ProbeRow> = warm
        .map(|row| probe_row(row, experiment.train.warmup.steps))
        .collect();
    for &index in &context.node.inputs {
        if context.plan.nodes[index].stage == Stage::Train {
            rows.extend(table::read(context.artefact(index).join(training::PROBES))?);
        }
    }
    let mut last: BTreeMap<_, u32> = BTreeMap::new();
    for row in exposures {
        let run = (&*row.model, &*row.arm, row.trial, &*row.document);
        let step = last.entry(run).or_default();
        *step = row.step.max(*step);
    }
    Ok(Some(estimate::curves(
        &rows,
        &last,
        probes.every,
        analysis,
    )?))
}

fn probe_row(row: &ScoreRow, step: u32) -> ProbeRow {
    let score = &row.score;
    ProbeRow {
        model: row.model.clone(),
        arm: row.arm.clone(),
        trial: row.trial,
        step,
        document: score.document.clone(),
        cluster: score.cluster.clone(),
        epochs: row.epochs,
        prefix: score.prefix.clone(),
        suffix: score.suffix.clone(),
        exact: score.exact.clone(),
        log_probability: score.log_probability.clone(),
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

/// All scores of one kind of stage; those that arms share are repeated for each.
fn scores(context: &Context<'_>, stage: Stage) -> Result<Vec<ScoreRow>> {
    let mut all = Vec::new();
    for &index in &context.node.inputs {
        let node = &context.plan.nodes[index];
        if node.stage != stage {
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
            let shared = node.subject.time != Some(experiment::Time::Warm)
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

/// The rates of the second control. Its documents were never presented, and are a bucket of their own, not the control.
fn created_after(
    context: &Context<'_>,
    models: &[ModelInfo],
    analysis: &Analysis,
) -> Result<Option<CreatedAfter>> {
    if context.experiment.created_after.is_none() {
        return Ok(None);
    }
    let scores = scores(context, Stage::CreatedAfterScore)?;
    let mut estimates = estimate::estimates(&scores, models, Some(&[]), analysis)?;
    for row in &mut estimates {
        ORIGIN.clone_into(&mut row.bucket);
    }
    Ok(Some(CreatedAfter { scores, estimates }))
}

/// What the Goldfish arms keep of the ids that are scored.
fn masks(context: &Context<'_>) -> Result<Masks> {
    let experiment = context.experiment;
    let longest = experiment.score.suffix.iter().copied().max().unwrap_or(0);
    let documents = train::documents(context)?;
    let mut masks = Masks::new();
    for arm in &experiment.train.arms {
        let Arm::Goldfish(goldfish) = arm else {
            continue;
        };
        let mask = engine::goldfish(goldfish)?;
        let kept = documents.iter().map(|(document, ids)| {
            let keep = mask.keep(ids);
            (
                document.clone(),
                keep[keep.len().saturating_sub(longest)..].to_vec(),
            )
        });
        masks.insert(arm.name().to_owned(), kept.collect());
    }
    Ok(masks)
}

fn analysis(context: &Context<'_>) -> Result<Analysis> {
    let arms = &context.experiment.train.arms;
    let reference = arms.iter().find(|arm| **arm == Arm::Standard);
    let reference = reference.or_else(|| arms.first());
    let reference = reference.context("an experiment has arms")?;
    Ok(settings(context.experiment, reference.name()))
}

/// How the scores of an experiment are analysed, with the arm that others are compared with.
pub(crate) fn settings(experiment: &Experiment, reference_arm: &str) -> Analysis {
    let settings = &experiment.analysis;
    Analysis {
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
        reference_arm: reference_arm.to_owned(),
        level: settings.level,
        power: POWER,
        resamples: settings.resamples,
        permutations: settings.resamples,
        seed: experiment.seed,
    }
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
