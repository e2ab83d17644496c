//! `grid`: the layout of the ranks. It changes no result, so no other stage's key has it.

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use serde_json::json;

use super::Context;
use crate::experiment::GridChoice;

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let (sizes, reason) = match &context.experiment.grid {
        GridChoice::Auto => ([1; 4], "auto without a launcher: one rank"),
        GridChoice::Sizes(sizes) => ([sizes.x, sizes.y, sizes.z, sizes.data], "as set"),
    };
    let grid = json!({
        "x": sizes[0], "y": sizes[1], "z": sizes[2], "data": sizes[3], "reason": reason,
    });
    let text = serde_json::to_string_pretty(&grid).context("the grid")?;
    Ok(files::write_atomic(
        context.folder.join("grid.json"),
        text.as_bytes(),
    )?)
}
