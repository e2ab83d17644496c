//! The section on the ranks that trained: layouts, waits, memory, and the certificate.

use anyhow::{Context, Result};
use axmem_datasets::files;
use serde_json::Value;

use crate::certify::Record;
use crate::report::Inputs;
use crate::report::format::{NONE, count, duration, number, percent};
use crate::report::page::{Block, Table, Text};
use crate::report::study::Study;
use crate::report::tables::Timing;

/// The grid of one rank, as tables have it.
const SINGLE: &str = "(1, 1, 1, 1)";

/// All steps on one layout.
struct Layout<'a> {
    grid: &'a str,
    back_end: &'a str,
    steps: u64,
    seconds: f64,
    /// Along X, Y, Z and Data.
    exposed: [f64; 4],
    peak_bytes: u64,
}

/// The section, if more than one rank trained or the grid was certified.
pub(super) fn ranks(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) -> Result<()> {
    let layouts = layouts(&study.timings);
    if inputs.certificate.is_none() && layouts.iter().all(|layout| layout.grid == SINGLE) {
        return Ok(());
    }
    blocks.push(Block::Section("ranks", "Ranks"));
    let mut table = Table::new(
        "Layouts that training ran on. Exposed: seconds that the first rank waited for communication which no \
         computation hid, over all steps, with the share of their time. Memory: the most that its buffers took.",
        2,
        &[
            "Grid (x, y, z, data)",
            "Back end",
            "Steps",
            "Time",
            "Exposed X",
            "Exposed Y",
            "Exposed Z",
            "Exposed Data",
            "Memory",
        ],
    );
    for layout in &layouts {
        let mut cells = vec![
            layout.grid.to_owned(),
            layout.back_end.to_owned(),
            count(layout.steps),
            duration(layout.seconds),
        ];
        cells.extend(layout.exposed.map(|exposed| {
            if exposed == 0.0 {
                return NONE.to_owned();
            }
            let share = percent(exposed / layout.seconds);
            format!("{} s, {share}", number(exposed))
        }));
        cells.push(format!("{} MB", number(layout.peak_bytes as f64 / 1e6)));
        table.row(cells);
    }
    blocks.push(Block::Table(table));
    if !inputs.joined.is_empty() {
        blocks.push(Block::Paragraph(
            "Schedules and certificates are not part of this joined report; see the report of each study."
                .into(),
        ));
        return Ok(());
    }
    if let Some(grid) = inputs.experiment.get("grid") {
        let setting = |key: &str| grid.get(key).map_or_else(String::new, Value::to_string);
        blocks.push(Block::Paragraph(
            Text::from("Schedule when this report was made: rank order ")
                .code(setting("order"))
                .plain(", attention ")
                .code(setting("attention"))
                .plain(", sharded optimizer ")
                .code(setting("shard_optimizer"))
                .plain(", overlap ")
                .code(setting("overlap"))
                .plain("."),
        ));
    }
    match &inputs.certificate {
        Some(path) => {
            let text = files::read_to_string(path)?;
            let record = serde_json::from_str(&text)
                .with_context(|| format!("{} is no certificate", path.display()))?;
            certificate(&record, blocks);
            let certified = record.certificate.grid.to_string();
            if layouts.iter().all(|layout| layout.grid != certified) {
                blocks.push(Block::Callout(
                    Text::new()
                        .strong("Another grid was certified: ")
                        .plain(format!("no step of this study ran on {certified}.")),
                ));
            }
        }
        None => blocks.push(Block::Paragraph(
            Text::from("No certificate of this grid was made; ")
                .code("axmem certify")
                .plain(" compares a small copy of the model on the grid with one rank."),
        )),
    }
    Ok(())
}

/// The steps of each layout together, in the order of their first appearance.
fn layouts(timings: &[Timing]) -> Vec<Layout<'_>> {
    let mut layouts: Vec<Layout<'_>> = Vec::new();
    for row in timings {
        let known = layouts
            .iter()
            .position(|layout| layout.grid == row.grid && layout.back_end == row.back_end);
        let index = known.unwrap_or_else(|| {
            layouts.push(Layout {
                grid: &row.grid,
                back_end: &row.back_end,
                steps: 0,
                seconds: 0.0,
                exposed: [0.0; 4],
                peak_bytes: 0,
            });
            layouts.len() - 1
        });
        let layout = &mut layouts[index];
        layout.steps += 1;
        layout.seconds += row.seconds;
        let exposed = [
            row.exposed_x,
            row.exposed_y,
            row.exposed_z,
            row.exposed_data,
        ];
        for (sum, exposed) in layout.exposed.iter_mut().zip(exposed) {
            *sum += exposed;
        }
        layout.peak_bytes = layout.peak_bytes.max(row.peak_bytes);
    }
    layouts
}

fn certificate(record: &Record, blocks: &mut Vec<Block>) {
    let certificate = &record.certificate;
    let mut table = Table::new(
        format!(
            "Certificate of the grid {} ({}): the largest differences between it and one rank, over {} steps of a small \
             copy of the model.",
            certificate.grid, record.back_end, certificate.steps
        ),
        2,
        &["Comparison", "Largest at", "Difference", "Limit", "Passes"],
    );
    for check in &certificate.checks {
        table.row([
            check.name.clone(),
            check.place.clone(),
            number(check.value),
            number(check.limit),
            if check.passed { "yes" } else { "no" }.to_owned(),
        ]);
    }
    blocks.push(Block::Table(table));
    if !record.passed {
        blocks.push(Block::Callout(
            Text::new()
                .strong("The grid is not certified: ")
                .plain("a difference is above its limit."),
        ));
    }
}
