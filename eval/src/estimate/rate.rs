//! Rates of exact match by bucket and time, each with its intervals.

use std::collections::{BTreeMap, HashMap};

use axmem_datasets::exposure::{Exposure, Received, received};

use super::{Analysis, Observation, Series, bucket_name, cluster_means, series};
use crate::record::{ModelInfo, ScoreRow, Time};
use crate::stats::{Interval, clopper_pearson, korn_graubard, percentile, wilson};
use crate::{Error, Result};

/// One row of the `estimates` table: a rate under one method.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Name of the model.
    pub model: String,
    /// All parameters.
    pub parameters: u64,
    /// Family of models.
    pub family: String,
    /// Its tokenizer.
    pub tokenizer: String,
    /// Training arm.
    pub arm: String,
    /// A trial from `0`, or `pooled`.
    pub trial: String,
    /// `control`, or the nominal exposures.
    pub bucket: String,
    /// Nominal exposures.
    pub exposures_nominal: u32,
    /// Mean over documents of how often a suffix id was in the loss; `None` without a ledger.
    pub exposures_ledger: Option<f64>,
    /// When scored.
    pub time: Time,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix setting.
    pub prefix: String,
    /// Documents scored (of all trials, where pooled).
    pub documents: u64,
    /// Clusters they belong to.
    pub clusters: u64,
    /// Documents with exact match.
    pub hits: u64,
    /// Documents whose margin is below the tolerance.
    pub fragile: u64,
    /// Hits if every fragile document were a miss.
    pub hits_without_fragile: u64,
    /// Hits if every fragile document were a hit.
    pub hits_with_fragile: u64,
    /// Mean share of teacher-forced argmaxes that are right.
    pub token_accuracy: f64,
    /// Mean log-probability of the suffix, in nats.
    pub mean_log_probability: f64,
    /// Mean over clusters of the share of documents with exact match.
    pub rate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Confidence level.
    pub level: f64,
    /// `wilson`, `clopper_pearson`, `korn_graubard`, `bootstrap`, or `bootstrap_wilson` where the
    /// clusters do not differ and Wilson's interval on their number stands in for the bootstrap.
    pub method: String,
    /// Number format of the weights.
    pub dtype: String,
}

/// Estimates every rate: by model, arm, trial and pooled, bucket, time, suffix and prefix.
///
/// Wilson and Clopper-Pearson where each cluster was seen once, Korn-Graubard where one was seen
/// more often (several windows or trials), the bootstrap over clusters always.
///
/// # Errors
/// A document scored twice, a model without its [`ModelInfo`], a trained document that the ledger
/// does not know, or settings out of range.
pub fn estimates(
    rows: &[ScoreRow],
    models: &[ModelInfo],
    ledger: Option<&[Exposure]>,
    analysis: &Analysis,
) -> Result<Vec<Estimate>> {
    analysis.check()?;
    let received = ledger.map(received);
    let received: Option<ByDocument<'_>> = received.as_ref().map(|all| {
        let entries = all.iter().map(|one| {
            (
                (
                    one.model.as_str(),
                    one.arm.as_str(),
                    one.trial,
                    one.document.as_str(),
                ),
                one,
            )
        });
        entries.collect()
    });
    let mut estimates = Vec::new();
    for (key, observations) in series(rows)? {
        let info = models
            .iter()
            .find(|info| info.model == key.model)
            .ok_or_else(|| {
                Error::Records(format!(
                    "model `{}` was scored and is not described",
                    key.model
                ))
            })?;
        // `None` is the pool of all trials, and comes last.
        let mut cells: BTreeMap<(bool, u32, Time, u32), Vec<Observation<'_>>> = BTreeMap::new();
        for one in observations {
            cells
                .entry((false, one.trial, one.time, one.epochs))
                .or_default()
                .push(one);
            cells
                .entry((true, 0, one.time, one.epochs))
                .or_default()
                .push(one);
        }
        for ((pooled, trial, time, epochs), cell) in cells {
            let trial = if pooled {
                "pooled".to_owned()
            } else {
                trial.to_string()
            };
            let ledger = received
                .as_ref()
                .map(|received| mean_exposures(received, &key, time, &cell))
                .transpose()?;
            let base = describe(
                info,
                &key,
                trial,
                epochs,
                time,
                &cell,
                ledger,
                analysis.level,
            );
            for (method, interval) in intervals(&cell, analysis) {
                estimates.push(Estimate {
                    low: interval.low,
                    high: interval.high,
                    method: method.to_owned(),
                    ..base.clone()
                });
            }
        }
    }
    Ok(estimates)
}

fn describe(
    info: &ModelInfo,
    key: &Series,
    trial: String,
    epochs: u32,
    time: Time,
    cell: &[Observation<'_>],
    exposures_ledger: Option<f64>,
    level: f64,
) -> Estimate {
    let count = |test: &dyn Fn(&Observation<'_>) -> bool| {
        cell.iter().filter(|one| test(one)).count() as u64
    };
    let means = cluster_means(
        cell.iter()
            .map(|one| (one.cluster, f64::from(u8::from(one.exact)))),
    );
    Estimate {
        model: key.model.clone(),
        parameters: info.parameters,
        family: info.family.clone(),
        tokenizer: info.tokenizer.clone(),
        arm: key.arm.clone(),
        trial,
        bucket: bucket_name(epochs),
        exposures_nominal: epochs,
        exposures_ledger,
        time,
        suffix: key.suffix,
        prefix: key.prefix.clone(),
        documents: cell.len() as u64,
        clusters: means.len() as u64,
        hits: count(&|one| one.exact),
        fragile: count(&|one| one.fragile),
        hits_without_fragile: count(&|one| one.exact && !one.fragile),
        hits_with_fragile: count(&|one| one.exact || one.fragile),
        token_accuracy: cell.iter().map(|one| one.token_accuracy).sum::<f64>() / cell.len() as f64,
        mean_log_probability: cell.iter().map(|one| one.log_probability).sum::<f64>()
            / cell.len() as f64,
        rate: means.iter().sum::<f64>() / means.len() as f64,
        low: 0.0,
        high: 1.0,
        level,
        method: String::new(),
        dtype: info.dtype.clone(),
    }
}

fn intervals(cell: &[Observation<'_>], analysis: &Analysis) -> Vec<(&'static str, Interval)> {
    let level = analysis.level;
    let means = cluster_means(
        cell.iter()
            .map(|one| (one.cluster, f64::from(u8::from(one.exact)))),
    );
    let (hits, clusters) = (means.iter().sum::<f64>(), means.len() as f64);
    let mut intervals = if means.len() == cell.len() {
        vec![
            ("wilson", wilson(hits, clusters, level)),
            ("clopper_pearson", clopper_pearson(hits, clusters, level)),
        ]
    } else {
        vec![("korn_graubard", korn_graubard(&means, cell.len(), level))]
    };
    intervals.push(
        match percentile(&means, level, analysis.resamples, analysis.seed) {
            Some(interval) => ("bootstrap", interval),
            None => ("bootstrap_wilson", wilson(hits, clusters, level)),
        },
    );
    intervals
}

/// What was received by model, arm, trial and document.
type ByDocument<'a> = HashMap<(&'a str, &'a str, u32, &'a str), &'a Received>;

/// Mean over documents of the full presentations of the suffix; 0 before training.
fn mean_exposures(
    received: &ByDocument<'_>,
    key: &Series,
    time: Time,
    cell: &[Observation<'_>],
) -> Result<f64> {
    if time != Time::After {
        return Ok(0.0);
    }
    let mut sum = 0.0;
    for one in cell.iter().filter(|one| one.epochs > 0) {
        sum += received
            .get(&(
                key.model.as_str(),
                key.arm.as_str(),
                one.trial,
                one.document,
            ))
            .and_then(|received| {
                let mut suffixes = received.suffix.iter();
                let index = suffixes.position(|&suffix| suffix == key.suffix)?;
                received.exposures.get(index)
            })
            .ok_or_else(|| {
                Error::document(
                    one.document,
                    format!(
                        "is in a bucket of {} exposures in trial {} of arm {}, and the exposure ledger has no entry of it for a suffix of {}",
                        one.epochs, one.trial, key.arm, key.suffix
                    ),
                )
            })?;
    }
    Ok(sum / cell.len() as f64)
}
