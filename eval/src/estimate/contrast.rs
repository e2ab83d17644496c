//! Contrasts: change over time, change against control, arm against arm; [`super::size`] adds model against model, [`super::trend`] the
//! slope over exposures.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Analysis, CHANGES, Observation, Pair, Series, bucket_name, cluster_means, pairs, series, size,
    trend,
};
use crate::record::{ModelInfo, ScoreRow, Time};
use crate::stats::{
    Interval, Side, Unit, benjamini_hochberg, did, holm, mcnemar, paired_change, sign_flip,
    smallest_detectable, smallest_detectable_gain,
};
use crate::{Error, Result};

/// What is compared with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContrastKind {
    /// The same documents at two times.
    Paired,
    /// Their change minus the change of control.
    Did,
    /// The same documents after training under two arms.
    Arm,
    /// The change of the same documents under two models, next to each other in size.
    Size,
    /// How the change rises with exposures: its slope on ln(1 + e), over all buckets.
    Trend,
}

impl ContrastKind {
    /// The word used in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paired => "paired",
            Self::Did => "did",
            Self::Arm => "arm",
            Self::Size => "size",
            Self::Trend => "trend",
        }
    }
}

impl std::fmt::Display for ContrastKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ContrastKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Paired, Self::Did, Self::Arm, Self::Size, Self::Trend]
            .into_iter()
            .find(|value| value.as_str() == text)
            .ok_or_else(|| {
                Error::Records(format!(
                    "`{text}` is not one of paired, did, arm, size, trend"
                ))
            })
    }
}

/// What is compared of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Whether all ids of the suffix are reproduced: differences are those of rates.
    Exact,
    /// Log-probability of the suffix, in nats.
    LogProbability,
}

impl Measure {
    pub(super) const ALL: [Self; 2] = [Self::Exact, Self::LogProbability];

    /// The word used in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::LogProbability => "log_probability",
        }
    }

    /// Its value for one document.
    pub(super) fn of(self, one: &Observation<'_>) -> f64 {
        match self {
            Self::Exact => f64::from(u8::from(one.exact)),
            Self::LogProbability => one.log_probability,
        }
    }
}

impl std::fmt::Display for Measure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Measure {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|value| value.as_str() == text)
            .ok_or_else(|| Error::Records(format!("`{text}` is not one of exact, log_probability")))
    }
}

/// One row of the `contrasts` table; trials are pooled.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// Name of the model.
    pub model: String,
    /// Training arm.
    pub arm: String,
    /// `control`, or the nominal exposures; `all` for `trend`.
    pub bucket: String,
    /// What is compared.
    pub kind: ContrastKind,
    /// Of what.
    pub measure: Measure,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix setting.
    pub prefix: String,
    /// First time; for `arm` the reference arm, for `size` the smaller model.
    pub from: String,
    /// Second time; for `arm` the arm, for `size` the larger model.
    pub to: String,
    /// The difference: of rates, or in nats; for `trend` by unit of ln(1 + e).
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Confidence level.
    pub level: f64,
    /// Two-sided p.
    pub p: Option<f64>,
    /// p adjusted within its family.
    pub p_adjusted: Option<f64>,
    /// `primary` (Holm) or `secondary` (Benjamini-Hochberg).
    pub family: String,
    /// Interval and test: `bootstrap` (percentile, over clusters), or `recovered_variance` where
    /// clusters do not differ and the bootstrap would have width 0 (see [`did`] and
    /// [`paired_change`]), or `flat` (an interval of width 0) where this is so of log-probabilities; then `+mcnemar` (exact), `+sign_flip` or `+permutation`.
    /// Of models with different tokenizers `unpaired:` stands before it.
    pub method: String,
    /// Smallest effect that would be found with the asked power; none where the interval is flat.
    pub detectable: Option<f64>,
    /// For `trend` of exact match, [`cochran_armitage`](crate::stats::cochran_armitage)'s z of the gained among the documents not
    /// reproduced at the first time, as a description.
    pub z: Option<f64>,
    /// Clusters, of both sides where there are two.
    pub clusters: u64,
}

/// Estimates every contrast that the scores allow.
///
/// # Errors
/// A document scored twice or at one of two times only, arms with unequal documents, or settings
/// out of range.
pub fn contrasts(
    rows: &[ScoreRow],
    models: &[ModelInfo],
    analysis: &Analysis,
) -> Result<Vec<Contrast>> {
    analysis.check()?;
    let series = series(rows)?;
    let mut contrasts = Vec::new();
    for (key, observations) in &series {
        for (from, to) in CHANGES {
            let pairs = pairs(observations, from, to)?;
            let levels: BTreeSet<u32> = pairs.iter().map(|pair| pair.epochs).collect();
            for measure in Measure::ALL {
                let cell = Cell::new(key, 0, from.as_str(), to.as_str(), measure);
                contrasts.extend(trend::over_exposures(&cell, &pairs, analysis)?);
                for &epochs in &levels {
                    let cell = Cell::new(key, epochs, from.as_str(), to.as_str(), measure);
                    contrasts.push(over_time(&cell, &pairs, analysis));
                    if epochs > 0 {
                        contrasts.extend(against_control(&cell, &pairs, analysis)?);
                    }
                }
            }
        }
        if key.arm != analysis.reference_arm {
            let reference = Series {
                arm: analysis.reference_arm.clone(),
                ..key.clone()
            };
            if let Some(other) = series.get(&reference) {
                for measure in Measure::ALL {
                    contrasts.extend(against_arm(key, observations, other, measure, analysis)?);
                }
            }
        }
    }
    contrasts.extend(size::neighbours(&series, models, analysis)?);
    adjust(&mut contrasts, analysis);
    Ok(contrasts)
}

/// The labels of a contrast.
pub(super) struct Cell<'a> {
    key: &'a Series,
    epochs: u32,
    from: &'a str,
    to: &'a str,
    pub(super) measure: Measure,
}

impl<'a> Cell<'a> {
    pub(super) fn new(
        key: &'a Series,
        epochs: u32,
        from: &'a str,
        to: &'a str,
        measure: Measure,
    ) -> Self {
        Self {
            key,
            epochs,
            from,
            to,
            measure,
        }
    }

    /// A contrast without numbers.
    pub(super) fn contrast(&self, kind: ContrastKind, analysis: &Analysis) -> Contrast {
        Contrast {
            model: self.key.model.clone(),
            arm: self.key.arm.clone(),
            bucket: bucket_name(self.epochs),
            kind,
            measure: self.measure,
            suffix: self.key.suffix,
            prefix: self.key.prefix.clone(),
            from: self.from.to_owned(),
            to: self.to.to_owned(),
            estimate: 0.0,
            low: 0.0,
            high: 0.0,
            level: analysis.level,
            p: None,
            p_adjusted: None,
            family: String::new(),
            method: String::new(),
            detectable: None,
            z: None,
            clusters: 0,
        }
    }

    /// Fills in an interval and its test. Recovered variances are those of rates; where log-probabilities have no spread,
    /// neither has the interval, and nothing follows from it.
    fn with_interval(
        &self,
        kind: ContrastKind,
        (estimate, interval, fallback): (f64, Interval, bool),
        (p, test): (f64, &str),
        analysis: &Analysis,
    ) -> Contrast {
        let (level, power) = (analysis.level, analysis.power);
        let detectable = smallest_detectable(estimate, interval, level, power);
        let (interval, method, detectable) = match (fallback, self.measure) {
            (false, _) => (interval, "bootstrap", Some(detectable)),
            (true, Measure::Exact) => (interval, "recovered_variance", Some(detectable)),
            (true, Measure::LogProbability) => {
                let flat = Interval {
                    low: estimate,
                    high: estimate,
                };
                (flat, "flat", None)
            }
        };
        Contrast {
            estimate,
            low: interval.low,
            high: interval.high,
            p: Some(p),
            method: format!("{method}+{test}"),
            detectable,
            ..self.contrast(kind, analysis)
        }
    }
}

/// A mean over paired values with its test: for rates `McNemar`'s where each cluster was seen once and values are -1, 0
/// or 1, else sign-flip.
pub(super) fn paired(
    cell: &Cell<'_>,
    kind: ContrastKind,
    changes: &[(&str, f64)],
    analysis: &Analysis,
) -> Contrast {
    let means = cluster_means(changes.iter().copied());
    let change = paired_change(&means, analysis.level, analysis.resamples, analysis.seed);
    let once = means.len() == changes.len() && changes.iter().all(|(_, value)| value.abs() <= 1.0);
    let (p, test) = if once && cell.measure == Measure::Exact {
        let count = |sign: f64| {
            changes
                .iter()
                .filter(|(_, value)| value * sign > 0.0)
                .count() as u64
        };
        (mcnemar(count(1.0), count(-1.0)).exact, "mcnemar")
    } else {
        (
            sign_flip(&means, analysis.permutations, analysis.seed),
            "sign_flip",
        )
    };
    let found = (change.estimate, change.interval, change.fallback);
    let mut contrast = cell.with_interval(kind, found, (p, test), analysis);
    if cell.measure == Measure::Exact {
        let gain = smallest_detectable_gain(means.len() as u64, analysis.level, analysis.power);
        contrast.detectable = contrast.detectable.map(|effect| effect.max(gain));
    }
    Contrast {
        clusters: means.len() as u64,
        ..contrast
    }
}

fn over_time(cell: &Cell<'_>, pairs: &[Pair<'_>], analysis: &Analysis) -> Contrast {
    let changes: Vec<(&str, f64)> = pairs
        .iter()
        .filter(|pair| pair.epochs == cell.epochs)
        .map(|pair| (pair.cluster, pair.change(cell.measure)))
        .collect();
    paired(cell, ContrastKind::Paired, &changes, analysis)
}

fn against_control(
    cell: &Cell<'_>,
    pairs: &[Pair<'_>],
    analysis: &Analysis,
) -> Result<Option<Contrast>> {
    let units = units(cell, pairs)?;
    Ok(unpaired(cell, ContrastKind::Did, &units, analysis))
}

/// The mean of the treated sides minus that of the control sides, with a permutation test.
pub(super) fn unpaired(
    cell: &Cell<'_>,
    kind: ContrastKind,
    units: &[Unit],
    analysis: &Analysis,
) -> Option<Contrast> {
    let result = did(
        units,
        analysis.level,
        analysis.resamples,
        analysis.permutations,
        analysis.seed,
    )?;
    let involved = units
        .iter()
        .filter(|unit| unit.sides.iter().any(|side| *side != Side::Neither))
        .count();
    let found = (result.estimate, result.interval, result.fallback);
    let test = (result.p, "permutation");
    Some(Contrast {
        clusters: involved as u64,
        ..cell.with_interval(kind, found, test, analysis)
    })
}

/// Each cluster with its side and mean change in every trial.
fn units(cell: &Cell<'_>, pairs: &[Pair<'_>]) -> Result<Vec<Unit>> {
    let side = |level| match level {
        0 => Side::Control,
        level if level == cell.epochs => Side::Treated,
        _ => Side::Neither,
    };
    let clusters = clusters(cell.measure, pairs)?.into_iter();
    Ok(clusters
        .map(|(levels, changes)| Unit {
            sides: levels.into_iter().map(side).collect(),
            changes,
        })
        .collect())
}

/// Level and mean change of each cluster in every trial.
pub(super) fn clusters(measure: Measure, pairs: &[Pair<'_>]) -> Result<Vec<(Vec<u32>, Vec<f64>)>> {
    let trials: BTreeSet<u32> = pairs.iter().map(|pair| pair.trial).collect();
    let mut cells: BTreeMap<&str, BTreeMap<u32, (u32, f64, u32)>> = BTreeMap::new();
    for pair in pairs {
        let sum = cells
            .entry(pair.cluster)
            .or_default()
            .entry(pair.trial)
            .or_insert((pair.epochs, 0.0, 0));
        if sum.0 != pair.epochs {
            return Err(Error::document(
                pair.document,
                format!(
                    "its cluster `{}` is in two buckets of trial {}",
                    pair.cluster, pair.trial
                ),
            ));
        }
        sum.1 += pair.change(measure);
        sum.2 += 1;
    }
    cells
        .into_iter()
        .map(|(cluster, by_trial)| {
            if by_trial.len() != trials.len() {
                return Err(Error::Records(format!(
                    "cluster `{cluster}` was scored in {} of {} trials; score all trials first",
                    by_trial.len(),
                    trials.len()
                )));
            }
            let trials = by_trial.into_values();
            Ok(trials
                .map(|(level, sum, count)| (level, sum / f64::from(count)))
                .unzip())
        })
        .collect()
}

/// The arm minus the reference arm after training, document by document, at equal bucket.
fn against_arm(
    key: &Series,
    arm: &[Observation<'_>],
    reference: &[Observation<'_>],
    measure: Measure,
    analysis: &Analysis,
) -> Result<Vec<Contrast>> {
    let after = |one: &&Observation<'_>| one.time == Time::After;
    let others: BTreeMap<(u32, &str), &Observation<'_>> = reference
        .iter()
        .filter(after)
        .map(|one| ((one.trial, one.document), one))
        .collect();
    let mut buckets: BTreeMap<u32, Vec<(&str, f64)>> = BTreeMap::new();
    let mut matched = 0;
    for one in arm.iter().filter(after) {
        let other = others
            .get(&(one.trial, one.document))
            .filter(|other| other.epochs == one.epochs)
            .ok_or_else(|| {
                Error::document(
                    one.document,
                    format!(
                        "trial {} of arm {} has no score in the same bucket of arm {}",
                        one.trial, key.arm, analysis.reference_arm
                    ),
                )
            })?;
        matched += 1;
        let change = measure.of(one) - measure.of(other);
        buckets
            .entry(one.epochs)
            .or_default()
            .push((one.cluster, change));
    }
    if matched != 0 && matched != others.len() {
        return Err(Error::Records(format!(
            "arm {} has {matched} documents after training and arm {} has {}",
            key.arm,
            analysis.reference_arm,
            others.len()
        )));
    }
    Ok(buckets
        .into_iter()
        .map(|(epochs, changes)| {
            let cell = Cell::new(key, epochs, &analysis.reference_arm, &key.arm, measure);
            paired(&cell, ContrastKind::Arm, &changes, analysis)
        })
        .collect())
}

/// Names the family of each contrast and adjusts its p within it.
fn adjust(contrasts: &mut [Contrast], analysis: &Analysis) {
    let primary = &analysis.primary;
    let largest = contrasts
        .iter()
        .filter_map(|contrast| contrast.bucket.parse::<u32>().ok())
        .max();
    let bucket = primary.exposures.or(largest).map(bucket_name);
    for contrast in &mut *contrasts {
        let times = matches!(contrast.kind, ContrastKind::Arm | ContrastKind::Size)
            || (contrast.from == primary.time.0.as_str() && contrast.to == primary.time.1.as_str());
        let is_primary = contrast.kind == primary.contrast
            && contrast.measure == primary.measure
            && times
            && contrast.suffix == primary.suffix
            && Some(&contrast.bucket) == bucket.as_ref();
        contrast.family = String::from(if is_primary { "primary" } else { "secondary" });
    }
    for (family, method) in [
        ("primary", holm as fn(&[f64]) -> Vec<f64>),
        ("secondary", benjamini_hochberg),
    ] {
        let members: Vec<(usize, f64)> = contrasts
            .iter()
            .enumerate()
            .filter(|(_, contrast)| contrast.family == family)
            .filter_map(|(index, contrast)| Some((index, contrast.p?)))
            .collect();
        let p: Vec<f64> = members.iter().map(|(_, p)| *p).collect();
        for ((index, _), adjusted) in members.iter().zip(method(&p)) {
            contrasts[*index].p_adjusted = Some(adjusted);
        }
    }
}
