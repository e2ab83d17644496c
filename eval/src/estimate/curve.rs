//! Curves over training: what a model reproduces at every so many steps, and what it still does so many steps after a document
//! was last presented.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{Analysis, bucket_name, cluster_means};
use crate::stats::{percentile, wilson};
use crate::{Error, Result};

/// A document in the middle of training: a row of the table `probes`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRow {
    /// Name of the model.
    pub model: String,
    /// Training arm.
    pub arm: String,
    /// Trial, from 0.
    pub trial: u32,
    /// Step that the model was scored after, the warm-up included.
    pub step: u32,
    /// Document.
    pub document: String,
    /// Its cluster.
    pub cluster: String,
    /// Its level in this trial; 0 is control.
    pub epochs: u32,
    /// Prefix.
    pub prefix: String,
    /// Suffix lengths S.
    pub suffix: Vec<u32>,
    /// For each, whether all its ids are reproduced.
    pub exact: Vec<bool>,
    /// For each, its log-probability in nats.
    pub log_probability: Vec<f64>,
}

/// What a curve runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// Steps of training, the warm-up included.
    Step,
    /// Steps since the document was last presented.
    SinceLast,
}

impl Axis {
    /// The word used in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::SinceLast => "since_last",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Axis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Step, Self::SinceLast]
            .into_iter()
            .find(|axis| axis.as_str() == text)
            .ok_or_else(|| Error::Records(format!("`{text}` is not one of step, since_last")))
    }
}

/// One point of a curve, trials pooled: a row of the table `curves`.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Name of the model.
    pub model: String,
    /// Training arm.
    pub arm: String,
    /// `control`, or the nominal exposures.
    pub bucket: String,
    /// Prefix.
    pub prefix: String,
    /// Suffix length S.
    pub suffix: u32,
    /// What the curve runs over.
    pub axis: Axis,
    /// Where on it: a step, or the least of the steps since the last presentation that are taken together.
    pub at: u32,
    /// Documents scored there, over all trials.
    pub documents: u64,
    /// Their clusters.
    pub clusters: u64,
    /// Rate of exact match.
    pub rate: f64,
    /// Lower end: bootstrap over clusters (percentile), Wilson's where clusters do not differ.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Mean log-probability of the suffix, nats.
    pub log_probability: f64,
    /// Lower end of the bootstrap over clusters; none where clusters do not differ.
    pub log_probability_low: Option<f64>,
    /// Upper end.
    pub log_probability_high: Option<f64>,
    /// Confidence level.
    pub level: f64,
}

/// Model, arm, trial and document.
pub type Run<'a> = (&'a str, &'a str, u32, &'a str);

/// The curves of all arms and buckets. `last` gives the step at which a document was last presented; `every` is the number of
/// steps between scores, by which steps since then are taken together.
///
/// # Errors
/// Settings out of range, and rows with lists of unequal length.
pub fn curves(
    rows: &[ProbeRow],
    last: &BTreeMap<Run<'_>, u32>,
    every: u32,
    analysis: &Analysis,
) -> Result<Vec<Curve>> {
    analysis.check()?;
    let mut cells: BTreeMap<_, Vec<(&str, f64, f64)>> = BTreeMap::new();
    for row in rows {
        if [row.exact.len(), row.log_probability.len()] != [row.suffix.len(); 2] {
            return Err(Error::document(
                &row.document,
                "its probe has lists of unequal length; the table is damaged",
            ));
        }
        let run = (&*row.model, &*row.arm, row.trial, &*row.document);
        // Only what will not be presented again.
        let since = last.get(&run).and_then(|last| row.step.checked_sub(*last));
        let since = since.map(|steps| (Axis::SinceLast, steps / every.max(1) * every.max(1)));
        for (axis, at) in [Some((Axis::Step, row.step)), since].into_iter().flatten() {
            for (index, &suffix) in row.suffix.iter().enumerate() {
                let key = (
                    &row.model,
                    &row.arm,
                    row.epochs,
                    &row.prefix,
                    suffix,
                    axis,
                    at,
                );
                let hit = f64::from(u8::from(row.exact[index]));
                let value = (&*row.cluster, hit, row.log_probability[index]);
                cells.entry(key).or_default().push(value);
            }
        }
    }
    let mut curves = Vec::new();
    for ((model, arm, epochs, prefix, suffix, axis, at), values) in cells {
        let hits = cluster_means(values.iter().map(|(cluster, hit, _)| (*cluster, *hit)));
        let logs = cluster_means(values.iter().map(|(cluster, _, log)| (*cluster, *log)));
        let clusters = hits.len() as f64;
        let mean = |means: &[f64]| means.iter().sum::<f64>() / clusters;
        let bootstrap =
            |means: &[f64]| percentile(means, analysis.level, analysis.resamples, analysis.seed);
        let rate =
            bootstrap(&hits).unwrap_or_else(|| wilson(hits.iter().sum(), clusters, analysis.level));
        let log = bootstrap(&logs);
        curves.push(Curve {
            model: model.clone(),
            arm: arm.clone(),
            bucket: bucket_name(epochs),
            prefix: prefix.clone(),
            suffix,
            axis,
            at,
            documents: values.len() as u64,
            clusters: hits.len() as u64,
            rate: mean(&hits),
            low: rate.low,
            high: rate.high,
            log_probability: mean(&logs),
            log_probability_low: log.map(|log| log.low),
            log_probability_high: log.map(|log| log.high),
            level: analysis.level,
        });
    }
    Ok(curves)
}
