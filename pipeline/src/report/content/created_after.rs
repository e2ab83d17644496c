//! The second control: pages that a later dump has and an older snapshot does not.

use std::collections::BTreeMap;

use axmem_datasets::created_after::SHORTEST_RUN;

use super::rates::rate_table;
use super::{arm_name, arm_order, time_name, time_order, trial_name};
use crate::report::Inputs;
use crate::report::format::{NONE, count, number, percent, plural};
use crate::report::interval::{Interval, method};
use crate::report::page::{Block, Table, Text};
use crate::report::study::{CreatedAfter, Study};
use crate::report::tables::Estimate;

pub(super) fn created_after(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
    let Some(group) = &study.created_after else {
        return;
    };
    blocks.push(Block::Section(
        "created-after",
        "Created after the snapshot",
    ));
    blocks.push(Block::Paragraph(drawn(inputs, group)));
    blocks.push(Block::Paragraph(excluded(group)));
    blocks.push(Block::Paragraph(shared(study, group)));
    blocks.push(Block::Table(rates(study, group)));
    let mut keys: Vec<(String, u32, String)> = Vec::new();
    for row in &group.estimates {
        let key = (row.trial.clone(), row.suffix, row.prefix.clone());
        // With one trial the pooled rows repeat it.
        let repeats = row.trial == "pooled" && study.trials(&row.model).len() == 1;
        let is_above = row.trial != "pooled" && row.prefix == study.primary.prefix;
        if !keys.contains(&key) && !repeats && !is_above {
            keys.push(key);
        }
    }
    for model in &study.models {
        for key in &keys {
            let table = rate_table(study, &group.estimates, model, key);
            let title = format!(
                "{model}, created after: {}, suffix {}, prefix {}",
                trial_name(&key.0),
                key.1,
                key.2
            );
            blocks.push(Block::Details(title, vec![Block::Table(table)]));
        }
    }
}

/// What the group is.
fn drawn(inputs: &Inputs, group: &CreatedAfter) -> Text {
    let source = |part: &str| {
        let text = |key: &str| {
            let pointer = format!("/created_after/{part}/{key}");
            let value = inputs.experiment.pointer(&pointer);
            value.and_then(serde_json::Value::as_str)
        };
        let mut name = text("source").unwrap_or(NONE).to_owned();
        for (key, label) in [
            ("config", ""),
            ("revision", "revision "),
            ("sha256", "SHA-256 "),
        ] {
            if let Some(value) = text(key) {
                name.push_str(&[", ", label, value].concat());
            }
        }
        name
    };
    let counts = &group.counts;
    Text::from(format!(
        "A second control: {} of ",
        plural(group.snapshot_runs.len() as u64, "page")
    ))
    .code(source("corpus"))
    .plain(format!(
        " whose id is above {}, the largest of the {} in the older snapshot ",
        counts.largest_id,
        plural(counts.snapshot_pages, "page")
    ))
    .code(source("snapshot"))
    .plain(format!(
        ": they were created after it. They are in no bucket, were not trained on, and are in no contrast, trend or threshold; the \
         control of those is drawn like the treated documents. \"Created after\" is all that is claimed: what such a page says may \
         stand in older text, and a model may have been made from newer text than the snapshot. Of {} of the later dump with ids \
         up to {}, {} have the id and title of one in the snapshot.",
        plural(counts.older_articles, "article"),
        counts.largest_id,
        count(counts.same_articles)
    ))
}

/// How many pages were left out, and why.
fn excluded(group: &CreatedAfter) -> Text {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &group.exclusions {
        *reasons.entry(&row.reason).or_default() += 1;
    }
    let reasons: Vec<String> = reasons
        .into_iter()
        .map(|(reason, pages)| format!("{reason}: {}", count(pages)))
        .collect();
    let counts = &group.counts;
    let why = match reasons.as_slice() {
        [] => String::new(),
        reasons => format!(" ({})", reasons.join("; ")),
    };
    Text::from(format!(
        "In the order of the draw {} of the {} articles and redirects above that id were looked at, and {} of them excluded{why}. \
         Title: the snapshot or the study has it, redirects of both dumps resolved, as after a move or a merger. Run and near-copy: \
         with an article of the snapshot, with the study's own text, or with a page drawn before.",
        count(counts.looked_at),
        count(counts.pages_above),
        count(group.exclusions.len() as u64)
    ))
}

/// The longest runs that are left.
fn shared(study: &Study, group: &CreatedAfter) -> Text {
    let with = |line: Text, document: &str, other: Option<&String>| match other {
        Some(other) => line
            .plain(" (")
            .source(study.title(document))
            .plain(" with ")
            .source(study.title(other))
            .plain(")"),
        None => line,
    };
    let snapshot = group.snapshot_runs.iter();
    let trained = group.contamination.iter();
    let snapshot = snapshot.max_by_key(|row| row.run);
    let trained = trained.max_by_key(|row| row.run);
    // Shorter runs with the snapshot are not looked for.
    let of_snapshot = match snapshot.map_or(0, |row| row.run) {
        0 => format!("shorter than {SHORTEST_RUN}"),
        run => count(run.into()),
    };
    let mut line = Text::from(format!(
        "The longest run of ids that one of them shares with an article of the snapshot is {of_snapshot}"
    ));
    if let Some(row) = snapshot {
        line = with(line, &row.document, row.other.as_ref());
    }
    line = line.plain(format!(
        "; with text that was trained on, {}",
        count(trained.map_or(0, |row| row.run).into())
    ));
    if let Some(row) = trained {
        line = with(line, &row.document, row.other.as_ref());
    }
    line.plain(".")
}

/// The rates of every trial behind the primary prefix.
fn rates(study: &Study, group: &CreatedAfter) -> Table {
    let prefix = &study.primary.prefix;
    let mut table = Table::new(
        format!(
            "Exact match of pages created after the snapshot, prefix {prefix}; intervals at level {}.",
            percent(study.primary.level)
        ),
        5,
        &[
            "Model",
            "Arm",
            "Trial",
            "Time",
            "Suffix",
            "Rate",
            method("wilson"),
            method("clopper_pearson"),
            "Documents",
            "Hits",
            "Fragile",
        ],
    );
    let rows = group.estimates.iter();
    let mut rows: Vec<&Estimate> = rows
        .filter(|row| row.trial != "pooled" && row.prefix == *prefix && row.method == "wilson")
        .collect();
    let model_order = |model: &String| study.models.iter().position(|name| name == model);
    rows.sort_by_key(|row| {
        (
            model_order(&row.model),
            row.suffix,
            arm_order(study, &row.arm),
            row.trial.clone(),
            time_order(&row.time),
        )
    });
    for row in rows {
        let exact = group.estimates.iter().find(|other| {
            other.method == "clopper_pearson"
                && (&other.model, &other.arm, &other.trial) == (&row.model, &row.arm, &row.trial)
                && (&other.time, &other.prefix) == (&row.time, &row.prefix)
                && other.suffix == row.suffix
        });
        let cell = |row: Option<&Estimate>| match row {
            Some(row) => Interval::from(row).text(),
            None => NONE.into(),
        };
        table.rows.push(vec![
            row.model.as_str().into(),
            arm_name(&row.arm),
            row.trial.as_str().into(),
            time_name(study, &row.time),
            count(row.suffix.into()).into(),
            Text::new().strong(number(row.rate)),
            cell(Some(row)),
            cell(exact),
            count(row.documents).into(),
            count(row.hits).into(),
            count(row.fragile).into(),
        ]);
    }
    table
}
