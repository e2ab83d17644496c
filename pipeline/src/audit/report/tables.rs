//! Tables of rates, changes and overlap.

use axmem_eval::estimate::ContrastKind;

use super::{Cell, cells, set_name};
use crate::audit::findings::Findings;
use crate::report::format::{NONE, count, number, optional, p_value, percent, with_interval};
use crate::report::interval::{Interval, method, methods};
use crate::report::page::{Block, Table, Text};

pub(super) fn push(findings: &Findings, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("rates", "Rates of exact match"));
    blocks.push(Block::Table(rates(findings)));
    if !findings.differences.is_empty() {
        blocks.push(Block::Table(differences(findings)));
    }
    if findings.contrasts.is_empty() && findings.overlap.is_empty() {
        return;
    }
    blocks.push(Block::Section("changes", "From the baseline to the model"));
    if !findings.overlap.is_empty() {
        blocks.push(Block::Table(overlap(findings)));
    }
    if !findings.contrasts.is_empty() {
        blocks.push(Block::Table(contrasts(findings)));
    }
}

fn rates(findings: &Findings) -> Table {
    let cells = cells(findings);
    let methods: Vec<&str> = ["wilson", "clopper_pearson", "korn_graubard", "bootstrap"]
        .into_iter()
        .filter(|name| cells.iter().any(|cell| find(cell, name).is_some()))
        .collect();
    let mut header = vec!["Set", "Model", "Suffix", "Prefix", "Rate"];
    header.extend(methods.iter().map(|name| match *name {
        "bootstrap" => "Bootstrap",
        other => method(other),
    }));
    header.extend([
        "Documents",
        "Clusters",
        "Hits",
        "Fragile",
        "Hits, fragile out – in",
        "Token accuracy",
        "Mean log p",
    ]);
    let mut table = Table::new(
        format!(
            "A hit is a document whose last ids, as many as the suffix, are all reproduced after the \
             prefix. A rate is the mean over clusters of the share of hits. Intervals at level {}. \
             Fragile: documents that rounding could decide; fragile out – in: hits if all of them \
             were misses, or hits. Token accuracy: share of single ids that are the likeliest after the true text \
             before them. Mean log p: of the suffix, in nats.",
            percent(findings.settings.level)
        ),
        4,
        &header,
    );
    for cell in &cells {
        let row = cell.main();
        let mut line = vec![
            cell.set.into(),
            cell.model.into(),
            count(u64::from(row.suffix)).into(),
            row.prefix.as_str().into(),
            Text::new().strong(number(row.rate)),
        ];
        line.extend(methods.iter().map(|name| {
            match find(cell, name) {
                // Another method stands in where resamples do not differ.
                Some(row) if row.method != *name => Text::new().faint("no spread"),
                Some(row) => Interval {
                    method: name,
                    clusters: row.clusters,
                    documents: row.documents,
                    rate: row.rate,
                    low: Some(row.low),
                    high: Some(row.high),
                    level: row.level,
                }
                .text(),
                None => NONE.into(),
            }
        }));
        line.extend(
            [
                count(row.documents),
                count(row.clusters),
                count(row.hits),
                count(row.fragile),
                format!(
                    "{} – {}",
                    count(row.hits_without_fragile),
                    count(row.hits_with_fragile)
                ),
                number(row.token_accuracy),
                number(row.mean_log_probability),
            ]
            .map(Text::from),
        );
        table.rows.push(line);
    }
    table
}

fn find<'a>(cell: &Cell<'a>, name: &str) -> Option<&'a axmem_eval::estimate::Estimate> {
    let mut rows = cell.methods.iter();
    rows.find(|row| row.method.starts_with(name)).copied()
}

fn differences(findings: &Findings) -> Table {
    let mut table = Table::new(
        format!(
            "Rate of the documents minus rate of the control, intervals at level {}; p of a permutation \
             of clusters over the two sets, two-sided. Detectable: at power 0.8.",
            percent(findings.settings.level)
        ),
        3,
        &["Model", "Suffix", "Prefix", "Difference", "p", "Detectable"],
    );
    for row in &findings.differences {
        table.row([
            row.model.to_owned(),
            count(u64::from(row.suffix)),
            row.prefix.clone(),
            with_interval(row.estimate, Some(row.low), Some(row.high)),
            p_value(Some(row.p)),
            number(row.detectable),
        ]);
    }
    table
}

fn overlap(findings: &Findings) -> Table {
    let mut table = Table::new(
        "Documents by what happened to them. Kept: reproduced by both; gained: by the model only; \
         lost: by the baseline only; never: by neither.",
        3,
        &[
            "Set", "Suffix", "Prefix", "Kept", "Gained", "Lost", "Never", "Jaccard",
        ],
    );
    for row in &findings.overlap {
        table.row([
            set_name(&row.bucket).to_owned(),
            count(u64::from(row.suffix)),
            row.prefix.clone(),
            count(row.kept),
            count(row.gained),
            count(row.lost),
            count(row.never),
            optional(row.jaccard),
        ]);
    }
    table
}

/// A contrast in words.
fn kind(kind: ContrastKind) -> &'static str {
    match kind {
        ContrastKind::Paired => "change",
        ContrastKind::Did => "change beyond the control's",
        ContrastKind::Arm => "difference of arms",
        ContrastKind::Size => "difference of models",
        ContrastKind::Trend => "trend over presentations",
    }
}

fn contrasts(findings: &Findings) -> Table {
    let mut table = Table::new(
        format!(
            "Changes of rates (exact) and of log-probabilities in nats from the baseline to the model, intervals at level {}. The adjusted p \
             allows for the number of comparisons. Detectable: the smallest change that so many \
             clusters would show.",
            percent(findings.settings.level)
        ),
        6,
        &[
            "Contrast",
            "Of",
            "Set",
            "Suffix",
            "Prefix",
            "Method",
            "Change",
            "p",
            "p adjusted",
            "Detectable",
            "Clusters",
        ],
    );
    for row in &findings.contrasts {
        table.row([
            kind(row.kind).to_owned(),
            row.measure.as_str().replace('_', " "),
            set_name(&row.bucket).to_owned(),
            count(u64::from(row.suffix)),
            row.prefix.clone(),
            methods(&row.method),
            with_interval(row.estimate, Some(row.low), Some(row.high)),
            p_value(row.p),
            p_value(row.p_adjusted),
            optional(row.detectable),
            count(row.clusters),
        ]);
    }
    table
}
