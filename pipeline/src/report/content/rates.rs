//! Sections of rates and of their differences.

use std::collections::BTreeMap;

use super::{arm_name, arm_order, time_name, time_order, trial_name};
use crate::report::findings;
use crate::report::format::{NONE, count, number, optional, p_value, percent, with_interval};
use crate::report::interval::{Interval, method, methods};
use crate::report::page::{Block, Table, Text};
use crate::report::study::{SIZE, Study};
use crate::report::tables::Estimate;

pub(super) fn rates(study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("rates", "Rates of exact match"));
    let primary = &study.primary;
    for model in &study.models {
        let main = study.summary_trial(model);
        let mut keys: Vec<(String, u32, String)> = Vec::new();
        for row in study.estimates.iter().filter(|row| row.model == *model) {
            let key = (row.trial.clone(), row.suffix, row.prefix.clone());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let first = (main.clone(), primary.suffix, primary.prefix.clone());
        blocks.push(Block::Table(rate_table(
            study,
            &study.estimates,
            model,
            &first,
        )));
        for key in keys.iter().filter(|key| **key != first) {
            // With one trial the pooled rows repeat it, but for the method.
            if key.0 == "pooled" && main != "pooled" {
                continue;
            }
            blocks.push(Block::Details(
                format!(
                    "{model}: {}, suffix {}, prefix {}",
                    trial_name(&key.0),
                    key.1,
                    key.2
                ),
                vec![Block::Table(rate_table(
                    study,
                    &study.estimates,
                    model,
                    key,
                ))],
            ));
        }
    }
}

/// Order of rates: place of the arm, exposures, place of the time; then arm, bucket, time.
type CellKey<'a> = (usize, u32, u8, &'a str, &'a str, &'a str);

/// The rates of a model at one trial, suffix and prefix.
pub(super) fn rate_table(
    study: &Study,
    estimates: &[Estimate],
    model: &str,
    key: &(String, u32, String),
) -> Table {
    let (trial, suffix, prefix) = key;
    let rows: Vec<&Estimate> = estimates
        .iter()
        .filter(|row| {
            row.model == model
                && row.trial == *trial
                && row.suffix == *suffix
                && row.prefix == *prefix
        })
        .collect();
    let mut cells: BTreeMap<CellKey<'_>, Vec<&Estimate>> = BTreeMap::new();
    for row in rows.iter().copied() {
        cells
            .entry((
                arm_order(study, &row.arm),
                row.exposures_nominal,
                time_order(&row.time),
                row.arm.as_str(),
                row.bucket.as_str(),
                row.time.as_str(),
            ))
            .or_default()
            .push(row);
    }
    let level = rows.first().map_or(study.primary.level, |row| row.level);
    let methods: Vec<&str> = ["wilson", "clopper_pearson", "bootstrap", "korn_graubard"]
        .into_iter()
        .filter(|method| rows.iter().any(|row| row.method.starts_with(method)))
        .collect();
    let mut header = vec!["Arm", "Bucket", "Time", "Rate"];
    header.extend(methods.iter().map(|name| match *name {
        "bootstrap" => "Bootstrap",
        other => method(other),
    }));
    header.extend([
        "Documents",
        "Clusters",
        "Hits",
        "Fragile",
        "Hits, fragile out",
        "Hits, fragile in",
        "Token accuracy",
        "Mean log p",
        "Ledger exposures",
    ]);
    let mut table = Table::new(
        format!(
            "{model}, {}: exact match of the last {suffix} tokens, prefix {prefix}; intervals at level {}.",
            trial_name(trial),
            percent(level)
        ),
        3,
        &header,
    );
    for ((_, _, _, arm, bucket, time), estimates) in cells {
        let row = estimates[0];
        let mut line = vec![
            arm_name(arm),
            bucket.into(),
            time_name(study, time),
            Text::new().strong(number(row.rate)),
        ];
        for method in &methods {
            let cell = estimates.iter().find(|row| row.method.starts_with(method));
            line.push(match cell {
                // Named after the method that stands in where resamples do not differ.
                Some(row) if row.method != *method => Text::new().faint("no spread"),
                Some(row) => Interval::from(*row).text(),
                None => NONE.into(),
            });
        }
        line.extend(
            [
                count(row.documents),
                count(row.clusters),
                count(row.hits),
                count(row.fragile),
                count(row.hits_without_fragile),
                count(row.hits_with_fragile),
                optional(row.token_accuracy),
                optional(row.mean_log_probability),
                optional(row.exposures_ledger),
            ]
            .map(Text::from),
        );
        table.rows.push(line);
    }
    table
}

pub(super) fn contrasts(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    blocks.push(Block::Section("contrasts", "Contrasts"));
    let detectable = format!("Detectable at power {}", number(study.power));
    let mut table = Table::new(
        format!(
            "Differences of rates, and of log-probabilities in nats; a trend is the slope on ln(1 + presentations) over all buckets, \
             whose interval (percentile bootstrap over clusters) covers less than it says where few documents changed, and z describes it by \
             Cochran and Armitage, of the documents gained. p of sign flips is exact where their patterns could be counted; of {} \
             random permutations it is at least {}. The primary contrast ({} of {} at {} presentations, {} to {}) is in bold; \
             the margin for Goldfish is {}.",
            count(primary.resamples),
            number(1.0 / (primary.resamples as f64 + 1.0)),
            findings::kind(&primary.contrast),
            primary.measure.replace('_', " "),
            primary.exposures,
            primary.from,
            primary.to,
            number(primary.margin)
        ),
        6,
        &[
            "Contrast",
            "Of",
            "Arm",
            "Bucket",
            "Times",
            "Method",
            "Difference",
            "Level",
            "p",
            "p adjusted",
            "Family",
            &detectable,
            "z",
            "Clusters",
            "Suffix",
            "Prefix",
        ],
    );
    let several = study.models.len() > 1;
    // Neighbouring sizes have a table of their own.
    let mut rows: Vec<_> = study
        .contrasts
        .iter()
        .filter(|row| row.kind != SIZE)
        .collect();
    rows.sort_by_key(|row| study.model_order(&row.model));
    for row in rows {
        let is_primary = row.kind == primary.contrast
            && row.measure == primary.measure
            && row.bucket == primary.bucket
            && row.suffix == primary.suffix
            && row.prefix == primary.prefix
            && row.from == primary.from
            && row.to == primary.to;
        let name = if several {
            format!("{}: {}", row.model, findings::kind(&row.kind))
        } else {
            findings::kind(&row.kind).to_owned()
        };
        let estimate = row.estimate.unwrap_or(f64::NAN);
        let difference = if row.method.starts_with("flat") {
            format!("{} (no spread)", number(estimate))
        } else {
            with_interval(estimate, row.low, row.high)
        };
        table.rows.push(vec![
            name.into(),
            row.measure.replace('_', " ").into(),
            arm_name(&row.arm),
            row.bucket.as_str().into(),
            format!("{} → {}", row.from, row.to).into(),
            methods(&row.method).into(),
            if is_primary {
                Text::new().strong(difference)
            } else {
                difference.into()
            },
            percent(row.level).into(),
            p_value(row.p).into(),
            p_value(row.p_adjusted).into(),
            row.family.as_str().into(),
            optional(row.detectable).into(),
            optional(row.z).into(),
            count(row.clusters).into(),
            count(u64::from(row.suffix)).into(),
            row.prefix.as_str().into(),
        ]);
    }
    blocks.push(Block::Table(table));
}
