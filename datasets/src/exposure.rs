//! The exposure ledger: what every presentation really gave a document to learn from.
//!
//! Under a loss that drops targets, e presentations are less than e exposures of the suffix that
//! is probed later. The ledger records the kept targets of each presentation, so that figures
//! need not use the nominal number.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::schedule::Slot;

/// One presentation of one document in one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposure {
    /// The model.
    pub model: String,
    /// The arm (the loss).
    pub arm: String,
    /// The trial, from 0.
    pub trial: u32,
    /// The training step, from 1, the warm-up included, as in the schedule.
    pub step: u32,
    /// The learning rate of that step.
    pub rate: f64,
    /// The document.
    pub document: String,
    /// Which presentation of the document, from 1.
    pub presentation: u32,
    /// Targets of the whole row that counted in the loss.
    pub kept_tokens: u32,
    /// Of the last so many targets, for each length of `suffix`, those that counted.
    pub kept_suffix: Vec<u32>,
    /// The lengths of suffix, in ids.
    pub suffix: Vec<u32>,
}

/// What a document received over a whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The model.
    pub model: String,
    /// The arm.
    pub arm: String,
    /// The trial.
    pub trial: u32,
    /// The document.
    pub document: String,
    /// Presentations, each counting one.
    pub presentations: u32,
    /// The lengths of suffix, in ids.
    pub suffix: Vec<u32>,
    /// For each length, presentations × mean kept share of the suffix: the number of full
    /// presentations of the suffix that the kept targets amount to.
    pub exposures: Vec<f64>,
}

/// The ledger of the document rows among `slots`, of the run of one model and arm. `rate` gives the learning rate of a step;
/// `kept` gives for a document which of its ids count as targets, one flag for each id, the same
/// at every presentation.
///
/// Fails if a suffix is empty or not shorter than a document: its first id is never a target.
pub fn ledger(
    [model, arm]: [&str; 2],
    slots: &[Slot],
    suffix: &[u32],
    rate: &dyn Fn(u32) -> f64,
    kept: &dyn Fn(&str) -> Result<Vec<bool>>,
) -> Result<Vec<Exposure>> {
    let mut counts: HashMap<&str, (u32, Vec<u32>)> = HashMap::new();
    let mut exposures = Vec::new();
    for slot in slots {
        let Some(document) = slot.document.as_deref() else {
            continue;
        };
        if !counts.contains_key(document) {
            counts.insert(document, count(document, &kept(document)?, suffix)?);
        }
        let (kept_tokens, kept_suffix) = &counts[document];
        exposures.push(Exposure {
            model: model.to_owned(),
            arm: arm.to_owned(),
            trial: slot.trial,
            step: slot.step,
            rate: rate(slot.step),
            document: document.to_owned(),
            presentation: slot.presentation,
            kept_tokens: *kept_tokens,
            kept_suffix: kept_suffix.clone(),
            suffix: suffix.to_vec(),
        });
    }
    Ok(exposures)
}

/// Kept targets of the whole row and of each suffix.
fn count(document: &str, kept: &[bool], suffix: &[u32]) -> Result<(u32, Vec<u32>)> {
    let number = |flags: &[bool]| flags.iter().filter(|&&flag| flag).count() as u32;
    let mut in_suffix = Vec::with_capacity(suffix.len());
    for &length in suffix {
        if length == 0 || length as usize >= kept.len() {
            return Err(Error::usage(format!(
                "a suffix of {length} ids does not fit document {document} of {} ids; it must \
                 have at least 1 and leave at least one id before it",
                kept.len()
            )));
        }
        in_suffix.push(number(&kept[kept.len() - length as usize..]));
    }
    Ok((number(kept), in_suffix))
}

/// Sums a ledger by model, arm, trial and document, in this order.
pub fn received(exposures: &[Exposure]) -> Vec<Received> {
    let mut sums: BTreeMap<(&str, &str, u32, &str), Received> = BTreeMap::new();
    for exposure in exposures {
        let key = (
            exposure.model.as_str(),
            exposure.arm.as_str(),
            exposure.trial,
            exposure.document.as_str(),
        );
        let sum = sums.entry(key).or_insert_with(|| Received {
            model: exposure.model.clone(),
            arm: exposure.arm.clone(),
            trial: exposure.trial,
            document: exposure.document.clone(),
            presentations: 0,
            suffix: exposure.suffix.clone(),
            exposures: vec![0.0; exposure.suffix.len()],
        });
        sum.presentations += 1;
        let shares = exposure.kept_suffix.iter().zip(&exposure.suffix);
        for (total, (&kept, &length)) in sum.exposures.iter_mut().zip(shares) {
            *total += f64::from(kept) / f64::from(length);
        }
    }
    sums.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(step: u32, document: Option<&str>, presentation: u32) -> Slot {
        Slot {
            trial: 0,
            step,
            row: 0,
            document: document.map(str::to_owned),
            background: document.is_none().then_some(0),
            presentation,
        }
    }

    #[test]
    fn the_ledger_counts_kept_targets_and_sums_to_full_presentations() {
        let slots = [
            slot(0, Some("a"), 1),
            slot(1, None, 0),
            slot(2, Some("a"), 2),
            slot(2, Some("b"), 1),
        ];
        let mask = |document: &str| {
            Ok(match document {
                "a" => vec![false, true, true, false, true],
                _ => vec![false, true, true, true, true],
            })
        };
        let exposures =
            ledger(["m", "g"], &slots, &[2, 4], &|step| f64::from(step), &mask).unwrap();
        assert_eq!(exposures.len(), 3);
        assert_eq!(exposures[0].kept_tokens, 3);
        assert_eq!(exposures[0].kept_suffix, [1, 3]);
        assert!((exposures[2].rate - 2.0).abs() < f64::EPSILON);

        let sums = received(&exposures);
        assert_eq!(sums[0].presentations, 2);
        assert_eq!(sums[0].exposures, [1.0, 1.5]);
        assert_eq!(sums[1].exposures, [1.0, 1.0]);
    }

    #[test]
    fn a_suffix_as_long_as_the_document_is_an_error_with_both_numbers() {
        let slots = [slot(0, Some("a"), 1)];
        let whole = |_: &str| Ok(vec![true; 40]);
        let error = ledger(["m", "s"], &slots, &[40], &|_| 0.0, &whole).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("40 ids does not fit document a of 40 ids"),
            "{error}"
        );
    }
}
