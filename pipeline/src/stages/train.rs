//! `train`: the treated documents by their schedule, from the end of the warm-up.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, Result};
use axmem_datasets::bucket::Assignment;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::schedule::{self, ScheduleSettings, Slot};
use axmem_datasets::table;
use axmem_trainer::Row;

use super::training::{self, Run};
use super::{Context, engine, score};
use crate::exit::Failure;
use crate::experiment::resolved::Train;
use crate::experiment::{Arm, Experiment, MaskOn, Placement};
use crate::plan::Stage;

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let experiment = context.experiment;
    let train = &experiment.train;
    let arm = context.arm().context("training is of one arm")?;
    let trial = context
        .node
        .subject
        .trial
        .context("training is of one trial")?;
    let (background, _) = training::background(context)?;
    let assignments: Vec<Assignment> =
        table::read(context.input(Stage::Buckets).join("buckets.parquet"))?;
    check_schedules(experiment, &assignments, background.len())?;
    let batch = experiment.batch(context.model());
    let slots = slots(
        experiment,
        batch,
        arm,
        trial,
        &assignments,
        background.len(),
    )?;
    let background = &background[used(train, batch)..];
    if context.ranks.is_first() {
        table::write(context.folder.join("schedule.parquet"), &slots)?;
    }
    let batches: Vec<&[Slot]> = slots.chunk_by(|a, b| a.step == b.step).collect();
    let documents = documents(context)?;

    let (goldfish, mask_background) = match arm {
        Arm::Standard => (None, false),
        Arm::Goldfish(goldfish) => (
            Some(engine::goldfish(goldfish)?),
            goldfish.on == MaskOn::All,
        ),
    };
    let masked = goldfish.is_some();
    let rate = engine::rate(train, context.model(), batches.len() as u32);
    let probing = match &train.probes {
        Some(probes) => Some(score::probing(context, probes.every, trial, &assignments)?),
        None => None,
    };
    let row = |slot: &Slot| -> Result<Row> {
        match (&slot.document, slot.background) {
            (Some(document), _) => {
                let ids = documents.get(document.as_str());
                let ids = ids.with_context(|| format!("document {document} has no ids"))?;
                Ok(Row::document(ids.clone(), masked))
            }
            (None, Some(index)) => {
                let row = background.get(index as usize);
                let row = row.with_context(|| format!("there is no background row {index}"))?;
                Ok(training::packed(row, mask_background))
            }
            (None, None) => anyhow::bail!("a slot of step {} is empty", slot.step),
        }
    };
    training::run(
        context,
        &Run {
            phase: "train",
            from: context.input(Stage::Warmup),
            goes_on: true,
            config: engine::config(experiment, context.model(), goldfish),
            steps: batches.len() as u32,
            rows: &|step| batches[step as usize].iter().map(&row).collect(),
            rate: &|step| rate.at(step),
            probing,
        },
    )
}

/// Background rows that the warm-up uses; they are not used again.
fn used(train: &Train, batch: usize) -> usize {
    train.warmup.steps as usize * batch
}

/// The schedule of an arm and trial in steps of `batch` rows, with `rows` rows of background in all.
fn slots(
    experiment: &Experiment,
    batch: usize,
    arm: &Arm,
    trial: u32,
    assignments: &[Assignment],
    rows: usize,
) -> Result<Vec<Slot>> {
    let train = &experiment.train;
    let settings = ScheduleSettings {
        batch: arm.batch(batch),
        first_step: train.warmup.steps + 1,
        mix: train.mix,
        placement: match train.placement {
            Placement::Spread => schedule::Placement::Spread,
            Placement::First => schedule::Placement::First,
            Placement::Last => schedule::Placement::Last,
        },
        seed: experiment.seed,
        presentations_factor: arm.presentations_factor(),
    };
    let left = rows - used(train, batch);
    schedule::schedule(assignments, left, &settings, trial)
        .with_context(|| format!("the schedule of arm {}, trial {trial}", arm.name()))
}

/// Finds out before anything is trained whether every model, arm and trial has a schedule, with `rows`
/// rows of background in all.
pub(super) fn check_schedules(
    experiment: &Experiment,
    assignments: &[Assignment],
    rows: usize,
) -> Result<()> {
    let train = &experiment.train;
    let batches = experiment
        .models
        .iter()
        .map(|model| experiment.batch(model));
    for batch in batches.collect::<BTreeSet<_>>() {
        let needed = used(train, batch);
        if needed > rows {
            return Err(Failure::usage(format!(
                "train.warmup: {} steps of {batch} rows take {needed} background rows, {rows} are there; set \
                 background.rows to at least {needed}, or make fewer steps",
                train.warmup.steps
            )));
        }
        for arm in &experiment.train.arms {
            for trial in 0..experiment.buckets.trials {
                slots(experiment, batch, arm, trial, assignments, rows)?;
            }
        }
    }
    Ok(())
}

/// The ids of every eligible document.
pub(super) fn documents(context: &Context<'_>) -> Result<HashMap<String, Vec<u32>>> {
    let mut documents = HashMap::new();
    table::scan(
        context.input(Stage::Tokens).join("tokens.parquet"),
        |row: TokenDocument| {
            if row.eligible {
                documents.insert(row.document, row.ids);
            }
            Ok(())
        },
    )?;
    Ok(documents)
}
