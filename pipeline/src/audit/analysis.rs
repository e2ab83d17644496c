//! Rates, intervals and comparisons of an audit, from its scores. The documents are bucket 1 and the control bucket 0 of one
//! arm; the baseline is its time `initial` and the model its time `after`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use axmem_eval::estimate::{
    Analysis, Contrast, ContrastKind, Measure, Overlap, Primary, contrasts, estimates, overlap,
};
use axmem_eval::stats::{Side, Unit, did, smallest_detectable};
use axmem_eval::{ModelInfo, ScoreRow, Time};

use super::ARM;
use super::findings::{Difference, ModelFacts, Rate, Scored};

/// Confidence level of all intervals.
pub(super) const LEVEL: f64 = 0.95;
/// Bootstrap resamples and permutations.
pub(super) const RESAMPLES: usize = 10_000;
/// Power of smallest detectable effects.
const POWER: f64 = 0.8;

/// All that is estimated.
pub(super) struct Estimated {
    pub(super) rates: Vec<Rate>,
    pub(super) differences: Vec<Difference>,
    pub(super) contrasts: Vec<Contrast>,
    pub(super) overlap: Vec<Overlap>,
}

impl Estimated {
    /// Estimates all there is; `tokenizer` is the hash of the tokenizer.
    pub(super) fn new(
        rows: &[ScoreRow],
        model: &ModelFacts,
        tokenizer: &str,
        seed: u64,
    ) -> Result<Self> {
        let has_control = rows.iter().any(|row| row.epochs == 0);
        let suffix = rows
            .first()
            .and_then(|row| row.score.suffix.first().copied());
        let analysis = Analysis {
            primary: Primary {
                time: (Time::Initial, Time::After),
                suffix: suffix.unwrap_or(0),
                exposures: Some(1),
                measure: Measure::Exact,
                contrast: if has_control {
                    ContrastKind::Did
                } else {
                    ContrastKind::Paired
                },
            },
            reference_arm: ARM.to_owned(),
            level: LEVEL,
            power: POWER,
            resamples: RESAMPLES,
            permutations: RESAMPLES,
            seed,
        };
        let info = ModelInfo {
            model: model.name.clone(),
            parameters: model.parameters,
            family: "llama".to_owned(),
            tokenizer: tokenizer.chars().take(12).collect(),
            dtype: "f32".to_owned(),
        };
        let rates = estimates(rows, &[info], None, &analysis)?
            .into_iter()
            .filter(|estimate| estimate.trial != "pooled")
            .map(|estimate| Rate {
                set: set_name(estimate.exposures_nominal),
                model: role(estimate.time),
                estimate,
            })
            .collect();
        Ok(Self {
            rates,
            differences: differences(rows, &analysis),
            contrasts: contrasts(rows, &[], &analysis)?,
            overlap: overlap(rows)?,
        })
    }
}

/// The name of a set by its bucket.
pub(super) fn set_name(level: u32) -> &'static str {
    if level == 0 { "control" } else { "documents" }
}

fn role(time: Time) -> &'static str {
    match time {
        Time::After => "model",
        Time::Initial | Time::Warm => "baseline",
    }
}

/// Exact match of the documents of every cluster, with its side.
type Hits<'a> = BTreeMap<&'a str, (Side, Vec<bool>)>;

/// The rate of the documents minus that of the control, where there is one.
fn differences(rows: &[ScoreRow], analysis: &Analysis) -> Vec<Difference> {
    let mut cells: BTreeMap<(Time, &str, usize), Hits<'_>> = BTreeMap::new();
    for row in rows {
        let side = if row.epochs == 0 {
            Side::Control
        } else {
            Side::Treated
        };
        for (index, &exact) in row.score.exact.iter().enumerate() {
            cells
                .entry((row.time, row.score.prefix.as_str(), index))
                .or_default()
                .entry(row.score.cluster.as_str())
                .or_insert((side, Vec::new()))
                .1
                .push(exact);
        }
    }
    let suffixes = rows.first().map_or(&[][..], |row| &row.score.suffix);
    cells
        .into_iter()
        .filter_map(|((time, prefix, index), clusters)| {
            let units: Vec<Unit> = clusters
                .into_values()
                .map(|(side, exact)| Unit {
                    sides: vec![side],
                    changes: vec![
                        exact.iter().filter(|&&hit| hit).count() as f64 / exact.len() as f64,
                    ],
                })
                .collect();
            // With rates in place of changes this is a difference of two independent rates.
            let found = did(
                &units,
                analysis.level,
                analysis.resamples,
                analysis.permutations,
                analysis.seed,
            )?;
            Some(Difference {
                model: role(time),
                suffix: suffixes[index],
                prefix: prefix.to_owned(),
                estimate: found.estimate,
                low: found.interval.low,
                high: found.interval.high,
                p: found.p,
                detectable: smallest_detectable(
                    found.estimate,
                    found.interval,
                    analysis.level,
                    analysis.power,
                ),
            })
        })
        .collect()
}

/// The model's scores of all documents under the first prefix, for distributions.
pub(super) fn scored(rows: &[ScoreRow]) -> Vec<Scored> {
    let mut seen = BTreeSet::new();
    rows.iter()
        .filter(|row| row.time == Time::After && seen.insert(row.score.document.as_str()))
        .filter_map(|row| {
            let last = longest(&row.score.suffix)?;
            Some(Scored {
                set: set_name(row.epochs),
                exact: row.score.exact[last],
                matched_prefix: row.score.matched_prefix[last],
                log_probability: row.score.log_probability[last],
            })
        })
        .collect()
}

/// The place of the longest suffix.
pub(super) fn longest(suffix: &[u32]) -> Option<usize> {
    (0..suffix.len()).max_by_key(|&index| suffix[index])
}
