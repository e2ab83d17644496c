//! `grid`: the layout of the ranks. It changes no result, so no other stage's key has it.

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use serde_json::json;

use super::Context;

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let layout = context.layout();
    let reason = match (layout.auto, context.ranks.processes()) {
        (false, _) => "as set".to_owned(),
        (true, 1) => "auto without a launcher: one rank".to_owned(),
        (true, processes) => format!("auto with {processes} processes of a launcher"),
    };
    let grid = &layout.grid;
    let grid = json!({
        "x": grid.x, "y": grid.y, "z": grid.z, "data": grid.data, "order": grid.order,
        "schedule": layout.schedule(context.experiment.train.recompute), "back_end": context.ranks.back_end(),
        "processes": context.ranks.processes(), "reason": reason,
    });
    let text = serde_json::to_string_pretty(&grid).context("the grid")?;
    Ok(files::write_atomic(
        context.folder.join("grid.json"),
        text.as_bytes(),
    )?)
}
