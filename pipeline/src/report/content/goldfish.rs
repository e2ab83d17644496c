//! The Goldfish arms: beside their own baselines, and at the positions that their masks drop.

use super::{arm_name, time_name};
use crate::report::figure;
use crate::report::format::{count, optional, percent, with_interval};
use crate::report::page::{Block, Table, Text};
use crate::report::study::Study;

/// Nothing in a study without such an arm.
pub(super) fn goldfish(study: &Study, blocks: &mut Vec<Block>) {
    if study.goldfish.is_empty() {
        return;
    }
    let primary = &study.primary;
    blocks.push(Block::Section(
        "goldfish",
        "Each arm beside its own baseline",
    ));
    blocks.push(Block::Figure {
        file: figure::GOLDFISH,
        alternative: "Exact match per model, bucket and arm, before and after".to_owned(),
        caption: Text::from(format!(
            "Exact match of the last {} tokens at time {} with {} intervals, and at time {} (open), which is the baseline of \
             the same documents; arms of one trial share weights, buckets and positions. Pooled over trials.",
            primary.suffix,
            primary.to,
            percent(primary.level),
            primary.from
        )),
    });
    hazards(study, blocks);
}

/// Whether generations leave the text where tokens were dropped.
fn hazards(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    let mut table = Table::new(
        format!(
            "Where a greedy continuation leaves the text. Hazard: of the positions of the suffix that were reached with the true text \
             so far, the share at which the next token is another than the text's, apart for positions whose targets the mask \
             drops from the loss and those it keeps. A mask that works shows a higher hazard at dropped positions; the rows of an \
             arm without that mask show what the same positions do anyway. Intervals of the difference at level {}: bootstrap over \
             clusters, trials pooled.",
            percent(primary.level)
        ),
        5,
        &[
            "Model",
            "Mask",
            "Arm",
            "Bucket",
            "Time",
            "Dropped: left / reached",
            "Hazard",
            "Kept: left / reached",
            "Hazard",
            "Difference",
            "Clusters",
        ],
    );
    let rows = study
        .hazards
        .iter()
        .filter(|row| row.suffix == primary.suffix && row.prefix == primary.prefix);
    for row in rows {
        let of = |left: u64, reached: u64| format!("{} / {}", count(left), count(reached));
        table.row(vec![
            row.model.as_str().into(),
            arm_name(&row.mask),
            arm_name(&row.arm),
            row.bucket.as_str().into(),
            time_name(study, row.time.as_str()),
            of(row.dropped_left, row.dropped).into(),
            optional(row.dropped_hazard).into(),
            of(row.kept_left, row.kept).into(),
            optional(row.kept_hazard).into(),
            with_interval(row.difference.unwrap_or(f64::NAN), row.low, row.high).into(),
            count(row.clusters).into(),
        ]);
    }
    if !table.rows.is_empty() {
        blocks.push(Block::Table(table));
    }
}
