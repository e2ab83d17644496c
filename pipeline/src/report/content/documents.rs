//! Sections of documents: kept, gained, lost or never reproduced, and how often each was presented.

use std::collections::BTreeMap;

use super::{MOST_LISTED, arm_name, arm_order, trial_name};
use crate::report::figure;
use crate::report::format::{count, optional, percent};
use crate::report::page::{Block, Table, Text};
use crate::report::study::Study;
use crate::report::tables::Transition;

/// Order of document lists: model, place of the arm, arm, trial, exposures, bucket.
type GroupKey<'a> = (&'a str, usize, &'a str, &'a str, u32, &'a str);

fn overlap_figure(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    blocks.push(Block::Figure {
        file: figure::OVERLAP,
        alternative: "Documents kept, gained, lost and never reproduced, per arm and bucket".to_owned(),
        caption: format!(
            "The same documents at times {} and {}, as shares of a bucket with the numbers of documents in it, over all trials.",
            primary.from, primary.to
        )
        .into(),
    });
}

pub(super) fn overlap(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    blocks.push(Block::Section("overlap", "Kept, gained, lost, never"));
    overlap_figure(study, blocks);
    let several = study.models.len() > 1;
    let mut table = Table::new(
        "Documents by exact match at two times: kept (both), gained (only the second), lost (only the first), never.",
        4,
        &[
            "Arm", "Trial", "Bucket", "Times", "Kept", "Gained", "Lost", "Never", "Jaccard",
            "Suffix", "Prefix",
        ],
    );
    for row in &study.overlap {
        let arm = if several {
            Text::from(format!("{}: ", row.model)).code(row.arm.as_str())
        } else {
            arm_name(&row.arm)
        };
        let mut line = vec![arm];
        line.extend(
            [
                row.trial.clone(),
                row.bucket.clone(),
                format!("{} → {}", row.from, row.to),
                count(row.kept),
                count(row.gained),
                count(row.lost),
                count(row.never),
                optional(row.jaccard),
                count(u64::from(row.suffix)),
                row.prefix.clone(),
            ]
            .map(Text::from),
        );
        table.rows.push(line);
    }
    blocks.push(Block::Table(table));

    let mut groups: BTreeMap<GroupKey<'_>, Vec<&Transition>> = BTreeMap::new();
    for row in study.transitions.iter().filter(|row| {
        row.suffix == primary.suffix
            && row.prefix == primary.prefix
            && row.from == primary.from
            && row.to == primary.to
    }) {
        let level = study
            .levels
            .iter()
            .find(|(_, bucket)| *bucket == row.bucket)
            .map_or(0, |(exposures, _)| *exposures);
        groups
            .entry((
                &row.model,
                arm_order(study, &row.arm),
                &row.arm,
                &row.trial,
                level,
                &row.bucket,
            ))
            .or_default()
            .push(row);
    }
    for ((model, _, arm, trial, _, bucket), rows) in groups {
        let mut list = Vec::new();
        for state in ["kept", "gained", "lost", "never"] {
            let titles: Vec<&str> = rows
                .iter()
                .filter(|row| row.state == state)
                .map(|row| study.title(&row.document))
                .collect();
            if titles.is_empty() {
                continue;
            }
            let rest = titles.len().saturating_sub(MOST_LISTED);
            let more = if rest > 0 {
                format!(" and {rest} more")
            } else {
                String::new()
            };
            list.push(
                Text::new()
                    .strong(format!("{state} ({}):", titles.len()))
                    .plain(format!(" {}", titles[..titles.len() - rest].join("; ")))
                    .plain(more),
            );
        }
        let model = if several {
            format!("{model}, ")
        } else {
            String::new()
        };
        blocks.push(Block::Details(
            format!(
                "{model}{arm}, {}, bucket {bucket}: the documents",
                trial_name(trial)
            ),
            vec![Block::List(list)],
        ));
    }
}

pub(super) fn exposures(study: &Study, blocks: &mut Vec<Block>) {
    #[derive(Default)]
    struct Sum {
        documents: u64,
        nominal: u64,
        presentations: u64,
        kept_tokens: u64,
        suffix: u64,
        kept_suffix: u64,
        whole: u64,
    }
    blocks.push(Block::Section("exposures", "Exposure ledger"));
    let mut levels: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for score in &study.scores {
        levels.insert((score.trial, &score.document), score.epochs);
    }
    let model_order = |name: &str| study.models.iter().position(|model| model == name);
    let mut sums: BTreeMap<(Option<usize>, usize, &str, &str, u32), Sum> = BTreeMap::new();
    for ledger in &study.exposures {
        let mut seen: BTreeMap<(&str, &str, u32, &str), u64> = BTreeMap::new();
        for row in ledger {
            let Some(epochs) = levels.get(&(row.trial, row.document.as_str())) else {
                continue;
            };
            let sum = sums
                .entry((
                    model_order(&row.model),
                    arm_order(study, &row.arm),
                    &row.model,
                    &row.arm,
                    *epochs,
                ))
                .or_default();
            let first = seen
                .entry((&row.model, &row.arm, row.trial, &row.document))
                .or_default();
            if *first == 0 {
                sum.documents += 1;
                sum.nominal += u64::from(*epochs);
            }
            *first += 1;
            sum.presentations += 1;
            sum.kept_tokens += row.kept_tokens;
            let at = row
                .suffix
                .iter()
                .position(|suffix| *suffix == study.primary.suffix);
            let kept = at
                .and_then(|index| row.kept_suffix.get(index))
                .copied()
                .unwrap_or(0);
            sum.suffix += u64::from(study.primary.suffix);
            sum.kept_suffix += u64::from(kept);
            sum.whole += u64::from(kept == study.primary.suffix);
        }
    }
    let mut table = Table::new(
        format!(
            "Presentations planned and recorded over all trials, and how much of the last {} tokens counted in the loss.",
            study.primary.suffix
        ),
        3,
        &[
            "Model",
            "Arm",
            "Bucket",
            "Documents",
            "Presentations, nominal",
            "Presentations, recorded",
            "Kept tokens",
            "Suffix tokens kept",
            "Presentations with whole suffix kept",
        ],
    );
    for ((_, _, model, arm, epochs), sum) in sums {
        let mut line = vec![model.into(), arm_name(arm)];
        line.extend(
            [
                epochs.to_string(),
                count(sum.documents),
                count(sum.nominal),
                count(sum.presentations),
                count(sum.kept_tokens),
                format!(
                    "{} of {} ({})",
                    count(sum.kept_suffix),
                    count(sum.suffix),
                    percent(sum.kept_suffix as f64 / sum.suffix.max(1) as f64)
                ),
                count(sum.whole),
            ]
            .map(Text::from),
        );
        table.rows.push(line);
    }
    if table.rows.is_empty() {
        blocks.push(Block::Paragraph("No exposure was recorded.".into()));
    } else {
        blocks.push(Block::Table(table));
    }
}
