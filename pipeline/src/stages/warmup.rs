//! `warmup`: steps on background text while the learning rate rises; shared by all arms that don't
//! mask the background.

use anyhow::Result;
use axmem_datasets::bucket::Assignment;
use axmem_datasets::table;

use super::training::{self, Run};
use super::{Context, engine, train};
use crate::experiment::Arm;
use crate::plan::Stage;

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let settings = &context.experiment.train;
    let goldfish = match context.arm() {
        Some(Arm::Goldfish(goldfish)) => Some(engine::goldfish(goldfish)?),
        _ => None,
    };
    let masked = goldfish.is_some();
    let (background, _) = training::background(context)?;
    // What the steps that follow can't have is told before any is made.
    let assignments: Vec<Assignment> =
        table::read(context.input(Stage::Buckets).join("buckets.parquet"))?;
    train::check_schedules(context.experiment, &assignments, background.len())?;
    let batch = context.experiment.batch(context.model());
    let rate = engine::rate(settings, context.model(), 0);
    training::run(
        context,
        &Run {
            phase: "warmup",
            from: context.input(Stage::Weights),
            goes_on: false,
            config: engine::config(context.experiment, context.model(), goldfish),
            steps: settings.warmup.steps,
            rows: &|step| {
                let first = step as usize * batch;
                let rows = background[first..first + batch].iter();
                Ok(rows.map(|row| training::packed(row, masked)).collect())
            },
            rate: &|step| rate.at(step),
            probing: None,
        },
    )
}
