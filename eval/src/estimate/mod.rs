//! From score records to the tables `estimates`, `contrasts`, `overlap`, `transitions`, `thresholds`, `hazards` and `curves`.
//!
//! The unit is the cluster: a rate is the mean over clusters of the mean within a cluster, so that
//! a long article with many windows weighs as much as a short one.

mod contrast;
mod curve;
mod hazard;
mod overlap;
mod rate;
mod size;
mod threshold;
mod trend;

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{ScoreRow, Time};
use crate::{Error, Result};

pub use contrast::{Contrast, ContrastKind, Measure, contrasts};
pub use curve::{Axis, Curve, ProbeRow, Run, curves};
pub use hazard::{Hazard, Masks, hazards};
pub use overlap::{Overlap, State, Transition, overlap, transitions};
pub use rate::{Estimate, estimates};
pub use threshold::{Place, Question, Threshold, thresholds};

/// The changes in time that are looked at, where both ends were scored.
const CHANGES: [(Time, Time); 2] = [(Time::Warm, Time::After), (Time::Initial, Time::After)];

/// The primary hypothesis, fixed before training.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary {
    /// Start and end of the change.
    pub time: (Time, Time),
    /// Suffix length S.
    pub suffix: u32,
    /// Nominal exposures of the treated bucket; `None` takes the largest.
    pub exposures: Option<u32>,
    /// Which contrast.
    pub contrast: ContrastKind,
    /// Of what.
    pub measure: Measure,
}

/// How scores are analysed.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// The primary hypothesis; its tests are adjusted by Holm, all others by Benjamini-Hochberg.
    pub primary: Primary,
    /// Arm that other arms are compared with.
    pub reference_arm: String,
    /// Confidence level, in (0, 1).
    pub level: f64,
    /// Power of the smallest detectable effect, in (0, 1).
    pub power: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Random permutations of a test.
    pub permutations: usize,
    /// Seed of both.
    pub seed: u64,
}

impl Analysis {
    fn check(&self) -> Result<()> {
        let share = |value: f64| value > 0.0 && value < 1.0;
        if !share(self.level) {
            return Err(Error::setting(
                "analysis.level",
                format!("must lie between 0 and 1, got {}", self.level),
            ));
        }
        if !share(self.power) {
            return Err(Error::setting(
                "analysis.power",
                format!("must lie between 0 and 1, got {}", self.power),
            ));
        }
        if self.resamples == 0 || self.permutations == 0 {
            return Err(Error::setting(
                "analysis.resamples",
                "resamples and permutations must be at least 1",
            ));
        }
        Ok(())
    }
}

/// The bucket's name in tables: `control`, or its nominal exposures.
pub fn bucket_name(epochs: u32) -> String {
    if epochs == 0 {
        "control".to_owned()
    } else {
        epochs.to_string()
    }
}

/// What scores are compared within: one model, arm, prefix and suffix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    model: String,
    arm: String,
    prefix: String,
    suffix: u32,
}

/// One document of a series at one trial and time.
#[derive(Debug, Clone, Copy)]
struct Observation<'a> {
    trial: u32,
    time: Time,
    epochs: u32,
    document: &'a str,
    cluster: &'a str,
    exact: bool,
    fragile: bool,
    token_accuracy: f64,
    log_probability: f64,
}

/// Splits score rows into series, checking that lists fit and that no document counts twice.
fn series(rows: &[ScoreRow]) -> Result<BTreeMap<Series, Vec<Observation<'_>>>> {
    let mut series: BTreeMap<Series, Vec<Observation<'_>>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        let score = &row.score;
        if !seen.insert((
            &row.model,
            &row.arm,
            row.trial,
            row.time,
            &score.prefix,
            &score.document,
        )) {
            return Err(Error::document(
                &score.document,
                format!(
                    "has two scores for model {}, arm {}, trial {}, time {}, prefix {}",
                    row.model, row.arm, row.trial, row.time, score.prefix
                ),
            ));
        }
        let lengths = [
            score.exact.len(),
            score.fragile.len(),
            score.token_accuracy.len(),
            score.log_probability.len(),
        ];
        if lengths.iter().any(|&length| length != score.suffix.len()) {
            return Err(Error::document(
                &score.document,
                "its score has lists of unequal length; the table is damaged",
            ));
        }
        for (index, &suffix) in score.suffix.iter().enumerate() {
            let key = Series {
                model: row.model.clone(),
                arm: row.arm.clone(),
                prefix: score.prefix.clone(),
                suffix,
            };
            series.entry(key).or_default().push(Observation {
                trial: row.trial,
                time: row.time,
                epochs: row.epochs,
                document: &score.document,
                cluster: &score.cluster,
                exact: score.exact[index],
                fragile: score.fragile[index],
                token_accuracy: score.token_accuracy[index],
                log_probability: score.log_probability[index],
            });
        }
    }
    Ok(series)
}

/// One document seen at two times of one trial.
#[derive(Debug, Clone, Copy)]
struct Pair<'a> {
    trial: u32,
    epochs: u32,
    document: &'a str,
    cluster: &'a str,
    first: Observation<'a>,
    last: Observation<'a>,
}

impl Pair<'_> {
    fn change(&self, measure: Measure) -> f64 {
        measure.of(&self.last) - measure.of(&self.first)
    }
}

/// Pairs the observations of a series by trial and document; empty where a time was not scored.
fn pairs<'a>(observations: &[Observation<'a>], from: Time, to: Time) -> Result<Vec<Pair<'a>>> {
    let at = |time: Time| -> BTreeMap<(u32, &'a str), Observation<'a>> {
        observations
            .iter()
            .filter(|one| one.time == time)
            .map(|one| ((one.trial, one.document), *one))
            .collect()
    };
    let (before, after) = (at(from), at(to));
    if before.is_empty() || after.is_empty() {
        return Ok(Vec::new());
    }
    if let Some((trial, document)) = before
        .keys()
        .find(|key| !after.contains_key(*key))
        .or_else(|| after.keys().find(|key| !before.contains_key(*key)))
    {
        return Err(Error::document(
            document,
            format!(
                "was scored in trial {trial} at only one of {from} and {to}; a paired comparison needs both"
            ),
        ));
    }
    before
        .into_iter()
        .map(|(key, first)| {
            let last = after[&key];
            if first.epochs != last.epochs || first.cluster != last.cluster {
                return Err(Error::document(
                    first.document,
                    format!("has another bucket or cluster at {from} than at {to}"),
                ));
            }
            Ok(Pair {
                trial: first.trial,
                epochs: first.epochs,
                document: first.document,
                cluster: first.cluster,
                first,
                last,
            })
        })
        .collect()
}

/// Means of a value within each cluster, in the order of cluster ids.
fn cluster_means<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> Vec<f64> {
    let mut sums: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for (cluster, value) in values {
        let sum = sums.entry(cluster).or_default();
        sum.0 += value;
        sum.1 += 1;
    }
    sums.into_values()
        .map(|(sum, count)| sum / f64::from(count))
        .collect()
}
