//! Which documents were kept, gained, lost or never matched between two times.

use std::collections::BTreeMap;

use super::{CHANGES, Pair, Series, bucket_name, pairs, series};
use crate::record::{ScoreRow, Time};
use crate::{Error, Result};

/// What happened to a document between two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Matched at both.
    Kept,
    /// Matched at the second only.
    Gained,
    /// Matched at the first only.
    Lost,
    /// Matched at neither.
    Never,
}

impl State {
    /// The word used in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Gained => "gained",
            Self::Lost => "lost",
            Self::Never => "never",
        }
    }

    fn of(pair: &Pair<'_>) -> Self {
        match (pair.first.exact, pair.last.exact) {
            (true, true) => Self::Kept,
            (false, true) => Self::Gained,
            (true, false) => Self::Lost,
            (false, false) => Self::Never,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Kept, Self::Gained, Self::Lost, Self::Never]
            .into_iter()
            .find(|value| value.as_str() == text)
            .ok_or_else(|| {
                Error::Records(format!("`{text}` is not one of kept, gained, lost, never"))
            })
    }
}

/// One row of the `overlap` table; counts of documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlap {
    /// Name of the model.
    pub model: String,
    /// Training arm.
    pub arm: String,
    /// Trial, from `0`.
    pub trial: String,
    /// `control`, or the nominal exposures.
    pub bucket: String,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix setting.
    pub prefix: String,
    /// First time.
    pub from: Time,
    /// Second time.
    pub to: Time,
    /// Matched at both.
    pub kept: u64,
    /// Matched at the second only.
    pub gained: u64,
    /// Matched at the first only.
    pub lost: u64,
    /// Matched at neither.
    pub never: u64,
    /// kept / (kept + gained + lost); `None` where nothing was ever matched.
    pub jaccard: Option<f64>,
}

/// One row of the `transitions` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Name of the model.
    pub model: String,
    /// Training arm.
    pub arm: String,
    /// Trial, from `0`.
    pub trial: String,
    /// `control`, or the nominal exposures.
    pub bucket: String,
    /// The document's id.
    pub document: String,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix setting.
    pub prefix: String,
    /// First time.
    pub from: Time,
    /// Second time.
    pub to: Time,
    /// What happened.
    pub state: State,
}

/// The state of every document, by series, change, trial, bucket and document id.
///
/// # Errors
/// A document scored twice, or at one of two times only.
pub fn transitions(rows: &[ScoreRow]) -> Result<Vec<Transition>> {
    let mut transitions = Vec::new();
    for (
        Series {
            model,
            arm,
            prefix,
            suffix,
        },
        observations,
    ) in series(rows)?
    {
        for (from, to) in CHANGES {
            let mut pairs = pairs(&observations, from, to)?;
            pairs.sort_by_key(|pair| (pair.trial, pair.epochs, pair.document));
            transitions.extend(pairs.iter().map(|pair| Transition {
                model: model.clone(),
                arm: arm.clone(),
                trial: pair.trial.to_string(),
                bucket: bucket_name(pair.epochs),
                document: pair.document.to_owned(),
                suffix,
                prefix: prefix.clone(),
                from,
                to,
                state: State::of(pair),
            }));
        }
    }
    Ok(transitions)
}

/// The counts of [`transitions`] by series, change, trial and bucket.
///
/// # Errors
/// As [`transitions`].
pub fn overlap(rows: &[ScoreRow]) -> Result<Vec<Overlap>> {
    let mut overlaps = Vec::new();
    for (
        Series {
            model,
            arm,
            prefix,
            suffix,
        },
        observations,
    ) in series(rows)?
    {
        for (from, to) in CHANGES {
            let mut cells: BTreeMap<(u32, u32), [u64; 4]> = BTreeMap::new();
            for pair in pairs(&observations, from, to)? {
                cells.entry((pair.trial, pair.epochs)).or_default()[State::of(&pair) as usize] += 1;
            }
            overlaps.extend(cells.into_iter().map(
                |((trial, epochs), [kept, gained, lost, never])| {
                    let ever = kept + gained + lost;
                    Overlap {
                        model: model.clone(),
                        arm: arm.clone(),
                        trial: trial.to_string(),
                        bucket: bucket_name(epochs),
                        suffix,
                        prefix: prefix.clone(),
                        from,
                        to,
                        kept,
                        gained,
                        lost,
                        never,
                        jaccard: (ever > 0).then(|| kept as f64 / ever as f64),
                    }
                },
            ));
        }
    }
    Ok(overlaps)
}
