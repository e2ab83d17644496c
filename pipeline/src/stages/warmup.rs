//! `warmup`: steps on background text while the learning rate rises; shared by all arms that don't
//! mask the background.

use anyhow::Result;

use super::training::{self, Run};
use super::{Context, engine};
use crate::experiment::Arm;
use crate::plan::Stage;

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let train = &context.experiment.train;
    let goldfish = match context.arm() {
        Some(Arm::Goldfish(goldfish)) => Some(engine::goldfish(goldfish)?),
        _ => None,
    };
    let masked = goldfish.is_some();
    let (background, _) = training::background(context)?;
    let rate = engine::rate(train, 0);
    training::run(
        context,
        &Run {
            phase: "warmup",
            from: context.input(Stage::Weights),
            config: engine::config(train, goldfish),
            steps: train.warmup.steps,
            rows: &|step| {
                let first = step as usize * train.batch;
                // Fewer rows than the warm-up takes are gone through again in the same order.
                let rows = (first..first + train.batch)
                    .map(|row| training::packed(&background[row % background.len()], masked));
                Ok(rows.collect())
            },
            rate: &|step| rate.at(step),
        },
    )
}
