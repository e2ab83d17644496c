//! Contrasts: change over time, change against control, arm against arm.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Analysis, CHANGES, Observation, Pair, Series, bucket_name, cluster_means, pairs, series,
};
use crate::record::{ScoreRow, Time};
use crate::stats::{
    Side, Unit, benjamini_hochberg, did, holm, mcnemar, paired_change, sign_flip,
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
}

impl ContrastKind {
    /// The word used in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paired => "paired",
            Self::Did => "did",
            Self::Arm => "arm",
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
        [Self::Paired, Self::Did, Self::Arm]
            .into_iter()
            .find(|value| value.as_str() == text)
            .ok_or_else(|| Error::Records(format!("`{text}` is not one of paired, did, arm")))
    }
}

/// One row of the `contrasts` table; trials are pooled.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// Name of the model.
    pub model: String,
    /// Training arm.
    pub arm: String,
    /// `control`, or the nominal exposures.
    pub bucket: String,
    /// What is compared.
    pub kind: ContrastKind,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix setting.
    pub prefix: String,
    /// First time; for `arm` the reference arm.
    pub from: String,
    /// Second time; for `arm` the arm.
    pub to: String,
    /// Difference of rates.
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
    /// [`paired_change`]); then `+mcnemar` (exact), `+sign_flip` or `+permutation`.
    pub method: String,
    /// Smallest effect that would be found with the asked power.
    pub detectable: Option<f64>,
    /// Clusters, of both sides where there are two.
    pub clusters: u64,
}

/// Estimates every contrast that the scores allow.
///
/// # Errors
/// A document scored twice or at one of two times only, arms with unequal documents, or settings
/// out of range.
pub fn contrasts(rows: &[ScoreRow], analysis: &Analysis) -> Result<Vec<Contrast>> {
    analysis.check()?;
    let series = series(rows)?;
    let mut contrasts = Vec::new();
    for (key, observations) in &series {
        for (from, to) in CHANGES {
            let pairs = pairs(observations, from, to)?;
            let levels: BTreeSet<u32> = pairs.iter().map(|pair| pair.epochs).collect();
            for &epochs in &levels {
                contrasts.push(over_time(key, epochs, from, to, &pairs, analysis));
            }
            for &epochs in levels.iter().filter(|&&epochs| epochs > 0) {
                contrasts.extend(against_control(key, epochs, from, to, &pairs, analysis)?);
            }
        }
        if key.arm != analysis.reference_arm {
            let reference = Series {
                arm: analysis.reference_arm.clone(),
                ..key.clone()
            };
            if let Some(other) = series.get(&reference) {
                contrasts.extend(against_arm(key, observations, other, analysis)?);
            }
        }
    }
    adjust(&mut contrasts, analysis);
    Ok(contrasts)
}

/// A mean over paired values with its test: `McNemar`'s where each cluster was seen once, sign-flip
/// where one was seen more often.
fn paired(
    key: &Series,
    epochs: u32,
    kind: ContrastKind,
    from: &str,
    to: &str,
    changes: &[(&str, f64)],
    analysis: &Analysis,
) -> Contrast {
    let means = cluster_means(changes.iter().copied());
    let change = paired_change(&means, analysis.level, analysis.resamples, analysis.seed);
    let (p, test) = if means.len() == changes.len() {
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
    let interval = if change.fallback {
        "recovered_variance"
    } else {
        "bootstrap"
    };
    Contrast {
        model: key.model.clone(),
        arm: key.arm.clone(),
        bucket: bucket_name(epochs),
        kind,
        suffix: key.suffix,
        prefix: key.prefix.clone(),
        from: from.to_owned(),
        to: to.to_owned(),
        estimate: change.estimate,
        low: change.interval.low,
        high: change.interval.high,
        level: analysis.level,
        p: Some(p),
        p_adjusted: None,
        family: String::new(),
        method: format!("{interval}+{test}"),
        detectable: Some(
            smallest_detectable(
                change.estimate,
                change.interval,
                analysis.level,
                analysis.power,
            )
            .max(smallest_detectable_gain(
                means.len() as u64,
                analysis.level,
                analysis.power,
            )),
        ),
        clusters: means.len() as u64,
    }
}

fn over_time(
    key: &Series,
    epochs: u32,
    from: Time,
    to: Time,
    pairs: &[Pair<'_>],
    analysis: &Analysis,
) -> Contrast {
    let changes: Vec<(&str, f64)> = pairs
        .iter()
        .filter(|pair| pair.epochs == epochs)
        .map(|pair| (pair.cluster, pair.change()))
        .collect();
    paired(
        key,
        epochs,
        ContrastKind::Paired,
        from.as_str(),
        to.as_str(),
        &changes,
        analysis,
    )
}

fn against_control(
    key: &Series,
    epochs: u32,
    from: Time,
    to: Time,
    pairs: &[Pair<'_>],
    analysis: &Analysis,
) -> Result<Option<Contrast>> {
    let units = units(epochs, pairs)?;
    let Some(result) = did(
        &units,
        analysis.level,
        analysis.resamples,
        analysis.permutations,
        analysis.seed,
    ) else {
        return Ok(None);
    };
    let involved = units
        .iter()
        .filter(|unit| unit.sides.iter().any(|side| *side != Side::Neither))
        .count();
    Ok(Some(Contrast {
        model: key.model.clone(),
        arm: key.arm.clone(),
        bucket: bucket_name(epochs),
        kind: ContrastKind::Did,
        suffix: key.suffix,
        prefix: key.prefix.clone(),
        from: from.to_string(),
        to: to.to_string(),
        estimate: result.estimate,
        low: result.interval.low,
        high: result.interval.high,
        level: analysis.level,
        p: Some(result.p),
        p_adjusted: None,
        family: String::new(),
        method: format!(
            "{}+permutation",
            if result.fallback {
                "recovered_variance"
            } else {
                "bootstrap"
            }
        ),
        detectable: Some(smallest_detectable(
            result.estimate,
            result.interval,
            analysis.level,
            analysis.power,
        )),
        clusters: involved as u64,
    }))
}

/// Each cluster with its side and mean change in every trial.
fn units(epochs: u32, pairs: &[Pair<'_>]) -> Result<Vec<Unit>> {
    let trials: BTreeSet<u32> = pairs.iter().map(|pair| pair.trial).collect();
    let mut cells: BTreeMap<&str, BTreeMap<u32, (u32, f64, u32)>> = BTreeMap::new();
    for pair in pairs {
        let cell = cells
            .entry(pair.cluster)
            .or_default()
            .entry(pair.trial)
            .or_insert((pair.epochs, 0.0, 0));
        if cell.0 != pair.epochs {
            return Err(Error::document(
                pair.document,
                format!(
                    "its cluster `{}` is in two buckets of trial {}",
                    pair.cluster, pair.trial
                ),
            ));
        }
        cell.1 += pair.change();
        cell.2 += 1;
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
            let (sides, changes) = by_trial
                .into_values()
                .map(|(level, sum, count)| {
                    let side = match level {
                        0 => Side::Control,
                        level if level == epochs => Side::Treated,
                        _ => Side::Neither,
                    };
                    (side, sum / f64::from(count))
                })
                .unzip();
            Ok(Unit { sides, changes })
        })
        .collect()
}

/// The arm minus the reference arm after training, document by document, at equal bucket.
fn against_arm(
    key: &Series,
    arm: &[Observation<'_>],
    reference: &[Observation<'_>],
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
        let change = f64::from(i8::from(one.exact) - i8::from(other.exact));
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
            paired(
                key,
                epochs,
                ContrastKind::Arm,
                &analysis.reference_arm,
                &key.arm,
                &changes,
                analysis,
            )
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
        let times = contrast.kind == ContrastKind::Arm
            || (contrast.from == primary.time.0.as_str() && contrast.to == primary.time.1.as_str());
        let is_primary = contrast.kind == primary.contrast
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
