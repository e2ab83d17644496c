//! Where generations leave the text: the hazard of the first mismatch at positions whose targets a mask dropped from the
//! loss, beside those it kept.

use std::collections::{BTreeMap, HashMap};

use super::{Analysis, bucket_name};
use crate::record::{ScoreRow, Time};
use crate::stats::{Interval, Random, central, sorted_replicates};
use crate::{Error, Result};

/// The hazard of one bucket: a row of the table `hazards`. Trials are pooled.
#[derive(Debug, Clone, PartialEq)]
pub struct Hazard {
    /// Name of the model.
    pub model: String,
    /// Training arm that was scored.
    pub arm: String,
    /// Arm whose mask sorts the positions. Another than `arm` asks what the same positions do without the mask.
    pub mask: String,
    /// `control`, or the nominal exposures.
    pub bucket: String,
    /// When.
    pub time: Time,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix setting.
    pub prefix: String,
    /// Dropped positions reached with the true text so far.
    pub dropped: u64,
    /// First mismatches there.
    pub dropped_left: u64,
    /// Kept positions reached with the true text so far.
    pub kept: u64,
    /// First mismatches there.
    pub kept_left: u64,
    /// Share of the dropped positions reached at which the text is left; none if none was reached.
    pub dropped_hazard: Option<f64>,
    /// Share of the kept ones.
    pub kept_hazard: Option<f64>,
    /// Dropped minus kept.
    pub difference: Option<f64>,
    /// Lower end, bootstrap over clusters (percentile); none if some resample reached no position of one kind.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Confidence level.
    pub level: f64,
    /// Clusters.
    pub clusters: u64,
}

/// By arm with a mask and by document, whether the mask keeps each of the document's last ids as a target.
pub type Masks = BTreeMap<String, HashMap<String, Vec<bool>>>;

/// Positions reached and left, dropped first, then kept.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    reached: [u64; 2],
    left: [u64; 2],
}

impl Counts {
    fn add(&mut self, other: &Self) {
        for kind in 0..2 {
            self.reached[kind] += other.reached[kind];
            self.left[kind] += other.left[kind];
        }
    }

    fn hazard(&self, kind: usize) -> Option<f64> {
        let reached = self.reached[kind];
        (reached > 0).then(|| self.left[kind] as f64 / reached as f64)
    }

    fn difference(&self) -> Option<f64> {
        Some(self.hazard(0)? - self.hazard(1)?)
    }
}

/// The hazards of every arm under every mask, before and after training. A greedy continuation leaves the text at its first
/// mismatch; until then it is the text, so the scores under the true prefix say where.
///
/// # Errors
/// A document without a mask or with fewer flags than its suffix is long, and settings out of range.
pub fn hazards(rows: &[ScoreRow], masks: &Masks, analysis: &Analysis) -> Result<Vec<Hazard>> {
    analysis.check()?;
    let mut found = Vec::new();
    for (mask, documents) in masks {
        let mut cells: BTreeMap<_, BTreeMap<&str, Counts>> = BTreeMap::new();
        let scored = rows.iter().filter(|row| row.time != Time::Initial);
        for row in scored {
            let score = &row.score;
            let keep = documents.get(&score.document).ok_or_else(|| {
                Error::document(&score.document, format!("has no mask of arm {mask}"))
            })?;
            for &suffix in &score.suffix {
                let key = (
                    &row.model,
                    &row.arm,
                    &score.prefix,
                    suffix,
                    row.epochs,
                    row.time,
                );
                let counts = count(row, keep, suffix as usize)?;
                let cluster = cells.entry(key).or_default();
                cluster.entry(&score.cluster).or_default().add(&counts);
            }
        }
        for ((model, arm, prefix, suffix, epochs, time), clusters) in cells {
            let clusters: Vec<Counts> = clusters.into_values().collect();
            let mut all = Counts::default();
            for counts in &clusters {
                all.add(counts);
            }
            let interval = interval(&clusters, analysis);
            found.push(Hazard {
                model: model.clone(),
                arm: arm.clone(),
                mask: mask.clone(),
                bucket: bucket_name(epochs),
                time,
                suffix,
                prefix: prefix.clone(),
                dropped: all.reached[0],
                dropped_left: all.left[0],
                kept: all.reached[1],
                kept_left: all.left[1],
                dropped_hazard: all.hazard(0),
                kept_hazard: all.hazard(1),
                difference: all.difference(),
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                level: analysis.level,
                clusters: clusters.len() as u64,
            });
        }
    }
    Ok(found)
}

/// The positions of a suffix until the first mismatch.
fn count(row: &ScoreRow, keep: &[bool], suffix: usize) -> Result<Counts> {
    let score = &row.score;
    let (target, predicted) = (&score.target, &score.predicted);
    if target.len() != predicted.len() || suffix > target.len() || suffix > keep.len() {
        return Err(Error::document(
            &score.document,
            format!("has no ids, choices or mask for a suffix of {suffix}"),
        ));
    }
    let of_suffix = |length: usize| length - suffix..;
    let mut counts = Counts::default();
    let places = target[of_suffix(target.len())]
        .iter()
        .zip(&predicted[of_suffix(predicted.len())])
        .zip(&keep[of_suffix(keep.len())]);
    for ((target, predicted), &kept) in places {
        let kind = usize::from(kept);
        counts.reached[kind] += 1;
        if target != predicted {
            counts.left[kind] += 1;
            break;
        }
    }
    Ok(counts)
}

fn interval(clusters: &[Counts], analysis: &Analysis) -> Option<Interval> {
    let replicates = sorted_replicates(analysis.resamples, analysis.seed, |random: &mut Random| {
        let mut all = Counts::default();
        for _ in 0..clusters.len() {
            all.add(&clusters[random.below(clusters.len())]);
        }
        all.difference().unwrap_or(f64::NAN)
    });
    let is_defined = replicates.iter().all(|value| !value.is_nan());
    is_defined.then(|| central(&replicates, analysis.level))
}
