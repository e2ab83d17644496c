//! Model against model: each rung of a ladder with the next smaller one.

use std::collections::{BTreeMap, BTreeSet};

use super::contrast::{Cell, paired, unpaired};
use super::{Analysis, Contrast, ContrastKind, Measure, Observation, Pair, Series, pairs};
use crate::record::{ModelInfo, Time};
use crate::stats::{Side, Unit};
use crate::{Error, Result};

/// For each model and the next smaller one: the change between `warm` and `after` of the larger minus that of the smaller, bucket
/// by bucket. Under one tokenizer document by document, on the same ids; under two tokenizers a document is another
/// span of the same article, so the documents are not paired and the method says so.
///
/// # Errors
/// A model that `models` does not name, and two models of one tokenizer with unequal documents or buckets.
pub(super) fn neighbours(
    series: &BTreeMap<Series, Vec<Observation<'_>>>,
    models: &[ModelInfo],
    analysis: &Analysis,
) -> Result<Vec<Contrast>> {
    let mut models: Vec<&ModelInfo> = models.iter().collect();
    models.sort_by_key(|model| (model.parameters, &model.model));
    let mut contrasts = Vec::new();
    for pair in models.windows(2) {
        let (smaller, larger) = (pair[0], pair[1]);
        for (key, observations) in series.iter().filter(|(key, _)| key.model == larger.model) {
            let below = Series {
                model: smaller.model.clone(),
                ..key.clone()
            };
            let Some(others) = series.get(&below) else {
                continue;
            };
            let changes = pairs(observations, Time::Warm, Time::After)?;
            let others = pairs(others, Time::Warm, Time::After)?;
            let levels: BTreeSet<u32> = changes.iter().map(|pair| pair.epochs).collect();
            for measure in Measure::ALL {
                for &epochs in &levels {
                    let cell = Cell::new(key, epochs, &smaller.model, &larger.model, measure);
                    if smaller.tokenizer == larger.tokenizer {
                        let differences = differences(&changes, &others, epochs, measure)?;
                        contrasts.push(paired(&cell, ContrastKind::Size, &differences, analysis));
                        continue;
                    }
                    let mut units = units(&changes, epochs, measure, Side::Treated);
                    units.extend(self::units(&others, epochs, measure, Side::Control));
                    let contrast = unpaired(&cell, ContrastKind::Size, &units, analysis);
                    contrasts.extend(contrast.map(|contrast| Contrast {
                        method: format!("unpaired:{}", contrast.method),
                        ..contrast
                    }));
                }
            }
        }
    }
    Ok(contrasts)
}

/// Larger minus smaller, with the cluster of the document.
fn differences<'a>(
    larger: &[Pair<'a>],
    smaller: &[Pair<'_>],
    epochs: u32,
    measure: Measure,
) -> Result<Vec<(&'a str, f64)>> {
    let smaller: BTreeMap<(u32, &str), &Pair<'_>> = smaller
        .iter()
        .map(|pair| ((pair.trial, pair.document), pair))
        .collect();
    larger
        .iter()
        .filter(|pair| pair.epochs == epochs)
        .map(|pair| {
            let other = smaller.get(&(pair.trial, pair.document));
            let other = other
                .filter(|other| other.epochs == epochs)
                .ok_or_else(|| {
                    Error::document(
                        pair.document,
                        format!(
                            "was not scored in the same bucket of trial {} under every model of the ladder",
                            pair.trial
                        ),
                    )
                })?;
            Ok((pair.cluster, pair.change(measure) - other.change(measure)))
        })
        .collect()
}

/// Each cluster of a bucket with its mean change over trials and windows, on one side.
fn units(changes: &[Pair<'_>], epochs: u32, measure: Measure, side: Side) -> Vec<Unit> {
    let of_bucket = changes.iter().filter(|pair| pair.epochs == epochs);
    let means = super::cluster_means(of_bucket.map(|pair| (pair.cluster, pair.change(measure))));
    means
        .into_iter()
        .map(|mean| Unit {
            sides: vec![side],
            changes: vec![mean],
        })
        .collect()
}
