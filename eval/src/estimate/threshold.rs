//! The scaling threshold: the model size from which a number of exposures is enough to memorise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;

use super::{Analysis, Observation, pairs, series};
use crate::record::{ModelInfo, ScoreRow, Time};
use crate::stats::{Cell, Random, clopper_pearson, firth};
use crate::{Error, Result};

/// What is asked of a ladder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// Share of documents gained, in (0, 1).
    pub rate: f64,
    /// Presentations of a document.
    pub exposures: u32,
}

/// Where a ladder of models reaches a rate. Nothing is said of sizes beyond its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The smallest rung reaches it.
    Below,
    /// Between two rungs.
    Between,
    /// No rung reaches it.
    Above,
    /// The curve falls through the rate as models grow, there is no curve, or nothing or everything was gained and the end of
    /// the ladder alone does not settle it.
    Unidentified,
}

impl Place {
    const ALL: [Self; 4] = [Self::Below, Self::Between, Self::Above, Self::Unidentified];

    /// The words used in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Below => "below the smallest rung",
            Self::Between => "between rungs",
            Self::Above => "above the largest rung",
            Self::Unidentified => "not identified",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|place| place.as_str() == text)
            .ok_or_else(|| Error::Records(format!("`{text}` is no place of a threshold")))
    }
}

/// The threshold of one family of models under one arm: a row of the table `thresholds`.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// Training arm.
    pub arm: String,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix.
    pub prefix: String,
    /// Family of models.
    pub family: String,
    /// Share of documents gained that is asked for.
    pub rate: f64,
    /// After so many presentations.
    pub exposures: u32,
    /// Parameters of the family's models, ascending.
    pub rungs: Vec<u64>,
    /// For each rung, the documents of all trials that were presented so often and not reproduced at `warm`.
    pub documents: Vec<u64>,
    /// Of these, the documents that were gained.
    pub gained: Vec<u64>,
    /// For each rung, the control documents of all trials that were not reproduced at `warm`.
    pub control_documents: Vec<u64>,
    /// Of these, the documents that were gained although they were not presented.
    pub control_gained: Vec<u64>,
    /// The answer.
    pub place: Place,
    /// Number of parameters where the curve crosses the rate, between two rungs.
    pub parameters: Option<f64>,
    /// The largest rung below it.
    pub rung_below: Option<u64>,
    /// The smallest rung above it.
    pub rung_above: Option<u64>,
    /// Lower end of the interval.
    pub low_place: Place,
    /// Its number of parameters, between two rungs.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high_place: Place,
    /// Its number of parameters, between two rungs.
    pub high: Option<f64>,
    /// Confidence level.
    pub level: f64,
    /// Share of the resamples that had an answer; 0 where they can't have one, since all outcomes are the same.
    pub identified: f64,
    /// Coefficients of 1, log10 N - `centre`, ln(1 + e), their product, and the families after the first; empty where they
    /// are not defined.
    pub coefficients: Vec<f64>,
    /// Mean of log10 N over the models.
    pub centre: f64,
    /// Clusters.
    pub clusters: u64,
}

/// The threshold for each arm, prefix, suffix and family. `models` are those of one ladder: rungs trained from random weights and
/// continued ones are asked about apart.
///
/// Outcome: gained between `warm` and `after`, among documents not reproduced at `warm`; e counts presentations, 0 for control.
/// `logit p = a + b log10 N + c ln(1 + e) + d log10 N ln(1 + e) + family`, by [`firth`]; a cluster with several windows counts as
/// one trial. Intervals: percentiles over resampled clusters, each with all its models, trials and windows.
///
/// Where a family gained nothing, or every document, of those presented so often (of all treated ones, if no bucket was), its
/// curve there is the penalty's or that of other buckets: the answer then is what the [`clopper_pearson`] interval of the largest or smallest rung at those presentations excludes.
///
/// # Errors
/// A model that `models` does not name, scores that don't pair up, a question outside (0, 1).
pub fn thresholds(
    rows: &[ScoreRow],
    models: &[ModelInfo],
    question: Question,
    analysis: &Analysis,
) -> Result<Vec<Threshold>> {
    analysis.check()?;
    if !(question.rate > 0.0 && question.rate < 1.0) {
        return Err(Error::setting(
            "threshold.rate",
            format!("must lie between 0 and 1, got {}", question.rate),
        ));
    }
    let mut ladders: BTreeMap<_, BTreeMap<String, Vec<Observation<'_>>>> = BTreeMap::new();
    for (key, observations) in series(rows)? {
        ladders
            .entry((key.arm, key.prefix, key.suffix))
            .or_default()
            .insert(key.model, observations);
    }
    let mut found = Vec::new();
    for ((arm, prefix, suffix), ladder) in ladders {
        let ladder = Ladder::new(&ladder, models)?;
        let groups = ladder.groups_of(0..ladder.clusters.len());
        let fit = firth(&groups);
        let replicates = ladder.replicates(question, analysis);
        for (index, family) in ladder.families.iter().enumerate() {
            let outcomes = ladder.outcomes(&groups, index, question.exposures);
            let (answer, (low, high, identified)) = match outcomes {
                Outcomes::Mixed => (
                    ladder.answer(&groups, fit.as_deref(), index, question),
                    interval(&replicates, index, analysis.level),
                ),
                outcomes => {
                    let answer = ladder.settled(outcomes, index, question, analysis.level);
                    (answer, (answer, answer, 0.0))
                }
            };
            let rungs = ladder.rungs(index);
            let counts = ladder.counts(index, question.exposures);
            let control = ladder.counts(index, 0);
            let above = answer
                .parameters
                .map(|parameters| rungs.partition_point(|&rung| (rung as f64) < parameters));
            found.push(Threshold {
                arm: arm.clone(),
                suffix,
                prefix: prefix.clone(),
                family: (*family).to_owned(),
                rate: question.rate,
                exposures: question.exposures,
                place: answer.place,
                parameters: answer.parameters,
                rung_below: above.and_then(|above| rungs.get(above.checked_sub(1)?).copied()),
                rung_above: above.and_then(|above| rungs.get(above).copied()),
                rungs,
                documents: counts.iter().map(|count| count.documents).collect(),
                gained: counts.iter().map(|count| count.gained).collect(),
                control_documents: control.iter().map(|count| count.documents).collect(),
                control_gained: control.iter().map(|count| count.gained).collect(),
                low_place: low.place,
                low: low.parameters,
                high_place: high.place,
                high: high.parameters,
                level: analysis.level,
                identified,
                coefficients: fit.clone().unwrap_or_default(),
                centre: ladder.centre,
                clusters: ladder.clusters.len() as u64,
            });
        }
    }
    Ok(found)
}

/// Where one fit crosses the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Answer {
    place: Place,
    parameters: Option<f64>,
}

impl Answer {
    fn at(place: Place) -> Self {
        Self {
            place,
            parameters: None,
        }
    }
}

/// Documents of one model that had one number of exposures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// Index of the model.
    model: usize,
    exposures: u32,
}

/// What one cluster adds to a group.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// Index of the group.
    group: usize,
    trials: f64,
    hits: f64,
}

/// What became of documents of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcomes {
    NoneGained,
    AllGained,
    Mixed,
}

/// The documents of one group.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    documents: u64,
    gained: u64,
    clusters: u64,
}

struct Ladder<'a> {
    models: Vec<&'a ModelInfo>,
    /// In order of name; the first is the reference.
    families: Vec<&'a str>,
    /// Mean of log10 N.
    centre: f64,
    groups: Vec<Group>,
    /// Covariates of each group, no trials.
    cells: Vec<Cell>,
    counts: Vec<Count>,
    clusters: Vec<Vec<Share>>,
}

impl<'a> Ladder<'a> {
    fn new(
        observations: &BTreeMap<String, Vec<Observation<'_>>>,
        infos: &'a [ModelInfo],
    ) -> Result<Self> {
        let models = observations
            .keys()
            .map(|name| {
                let known = infos.iter().find(|info| info.model == *name);
                known.ok_or_else(|| {
                    Error::Records(format!(
                        "scores name model {name}, which is not of the ladder"
                    ))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let families: BTreeSet<&str> = models.iter().map(|info| &*info.family).collect();
        let families: Vec<&str> = families.into_iter().collect();
        let sizes: Vec<f64> = models.iter().map(|info| log10(info)).collect();
        let centre = sizes.iter().sum::<f64>() / sizes.len() as f64;

        let mut shares: BTreeMap<&str, BTreeMap<Group, (f64, f64)>> = BTreeMap::new();
        let mut counts: BTreeMap<Group, Count> = BTreeMap::new();
        for (model, observations) in observations.values().enumerate() {
            let pairs = pairs(observations, Time::Warm, Time::After)?;
            let mut windows: BTreeMap<_, u32> = BTreeMap::new();
            for pair in &pairs {
                *windows.entry((pair.trial, pair.cluster)).or_default() += 1;
            }
            for pair in pairs.iter().filter(|pair| !pair.first.exact) {
                let weight = 1.0 / f64::from(windows[&(pair.trial, pair.cluster)]);
                let group = Group {
                    model,
                    exposures: pair.epochs,
                };
                let count = counts.entry(group).or_default();
                count.documents += 1;
                count.gained += u64::from(pair.last.exact);
                let share = shares
                    .entry(pair.cluster)
                    .or_default()
                    .entry(group)
                    .or_default();
                count.clusters += u64::from(share.0 <= 0.0);
                share.0 += weight;
                share.1 += if pair.last.exact { weight } else { 0.0 };
            }
        }
        let (groups, counts): (Vec<Group>, Vec<Count>) = counts.into_iter().unzip();
        let places: BTreeMap<Group, usize> = groups.iter().copied().zip(0..).collect();
        let clusters = shares
            .into_values()
            .map(|shares| {
                let share = |(group, (trials, hits))| Share {
                    group: places[&group],
                    trials,
                    hits,
                };
                shares.into_iter().map(share).collect()
            })
            .collect();
        let mut ladder = Self {
            models,
            families,
            centre,
            groups,
            cells: Vec::new(),
            counts,
            clusters,
        };
        ladder.cells = ladder
            .groups
            .iter()
            .map(|group| {
                let size = log10(ladder.models[group.model]);
                Cell {
                    x: ladder.covariates(size, group.exposures, ladder.family(group)),
                    trials: 0.0,
                    hits: 0.0,
                }
            })
            .collect();
        Ok(ladder)
    }

    /// Index of the family of a group's model.
    fn family(&self, group: &Group) -> usize {
        let family = &self.models[group.model].family;
        self.families.partition_point(|other| *other < &**family)
    }

    fn covariates(&self, size: f64, exposures: u32, family: usize) -> Vec<f64> {
        let (size, dose) = (size - self.centre, f64::from(exposures).ln_1p());
        let mut x = vec![1.0, size, dose, size * dose];
        x.extend((1..self.families.len()).map(|other| f64::from(u8::from(other == family))));
        x
    }

    /// The groups with the trials and hits of some clusters, named by index, as often as they are named.
    fn groups_of(&self, clusters: impl Iterator<Item = usize>) -> Vec<Cell> {
        let mut groups = self.cells.clone();
        for share in clusters.flat_map(|cluster| &self.clusters[cluster]) {
            groups[share.group].trials += share.trials;
            groups[share.group].hits += share.hits;
        }
        groups
    }

    /// What became of the documents of a family that were presented so often, or of all treated ones if none were.
    fn outcomes(&self, groups: &[Cell], family: usize, exposures: u32) -> Outcomes {
        let (mut trials, mut hits) = (0.0, 0.0);
        let is_asked = |group: &Group| group.exposures == exposures && self.family(group) == family;
        let has_asked = self.groups.iter().any(is_asked);
        for (group, cell) in self.groups.iter().zip(groups) {
            let counts = if has_asked {
                is_asked(group)
            } else {
                group.exposures > 0 && self.family(group) == family
            };
            if counts {
                trials += cell.trials;
                hits += cell.hits;
            }
        }
        if hits <= 0.0 {
            Outcomes::NoneGained
        } else if hits >= trials {
            Outcomes::AllGained
        } else {
            Outcomes::Mixed
        }
    }

    /// The documents presented so often, for each rung of a family.
    fn counts(&self, family: usize, exposures: u32) -> Vec<Count> {
        let models = self.ascending(family);
        let count = |model| {
            let group = self.groups.binary_search(&Group { model, exposures });
            group.map_or_else(|_| Count::default(), |group| self.counts[group])
        };
        models.into_iter().map(count).collect()
    }

    /// The answer where all outcomes are the same, from the end of the ladder alone.
    fn settled(&self, outcomes: Outcomes, family: usize, question: Question, level: f64) -> Answer {
        let counts = self.counts(family, question.exposures);
        let interval = |count: Option<&Count>| {
            let clusters = count.map_or(0, |count| count.clusters) as f64;
            let hits = if outcomes == Outcomes::AllGained {
                clusters
            } else {
                0.0
            };
            clopper_pearson(hits, clusters, level)
        };
        Answer::at(match outcomes {
            Outcomes::NoneGained if interval(counts.last()).high < question.rate => Place::Above,
            Outcomes::AllGained if interval(counts.first()).low > question.rate => Place::Below,
            _ => Place::Unidentified,
        })
    }

    /// Models of a family by their parameters.
    fn ascending(&self, family: usize) -> Vec<usize> {
        let mut models: Vec<usize> = (0..self.models.len())
            .filter(|&model| self.models[model].family == self.families[family])
            .collect();
        models.sort_by_key(|&model| self.models[model].parameters);
        models
    }

    /// Parameters of a family's models, ascending.
    fn rungs(&self, family: usize) -> Vec<u64> {
        let models = self.ascending(family).into_iter();
        models.map(|model| self.models[model].parameters).collect()
    }

    /// Where the curve of a family, fitted to the groups, reaches the rate.
    fn answer(
        &self,
        groups: &[Cell],
        fit: Option<&[f64]>,
        family: usize,
        question: Question,
    ) -> Answer {
        let rungs = self.rungs(family);
        let (Some(fit), [first, .., last]) = (fit, rungs.as_slice()) else {
            return Answer::at(Place::Unidentified);
        };
        let largest = self.groups.iter().map(|group| group.exposures).max();
        if Some(question.exposures) > largest {
            return Answer::at(Place::Unidentified);
        }
        match self.outcomes(groups, family, question.exposures) {
            Outcomes::NoneGained => return Answer::at(Place::Above),
            Outcomes::AllGained => return Answer::at(Place::Below),
            Outcomes::Mixed => {}
        }
        let wanted = (question.rate / (1.0 - question.rate)).ln();
        let above = |size: f64| {
            let x = self.covariates(size, question.exposures, family);
            x.iter().zip(fit).map(|(x, b)| x * b).sum::<f64>() - wanted
        };
        let (low, high) = ((*first as f64).log10(), (*last as f64).log10());
        match (above(low), above(high)) {
            (start, end) if start >= 0.0 && end >= 0.0 => Answer::at(Place::Below),
            (start, end) if start < 0.0 && end < 0.0 => Answer::at(Place::Above),
            // The curve is a line in log10 N.
            (start, end) if start < 0.0 => Answer {
                place: Place::Between,
                parameters: Some(10.0_f64.powf(low + (high - low) * start / (start - end))),
            },
            _ => Answer::at(Place::Unidentified),
        }
    }

    /// The answers for all families in every resample of the clusters.
    fn replicates(&self, question: Question, analysis: &Analysis) -> Vec<Vec<Answer>> {
        let count = self.clusters.len();
        (0..analysis.resamples as u64)
            .into_par_iter()
            .map(|stream| {
                let mut random = Random::new(analysis.seed, stream);
                let groups = self.groups_of((0..count).map(|_| random.below(count)));
                let fit = firth(&groups);
                (0..self.families.len())
                    .map(|family| self.answer(&groups, fit.as_deref(), family, question))
                    .collect()
            })
            .collect()
    }
}

fn log10(info: &ModelInfo) -> f64 {
    (info.parameters as f64).log10()
}

/// The ends of the central share `level` of the resamples of a family, and the share of them that had an answer. The ends are
/// not identified if so many resamples had none that they could lie anywhere.
fn interval(replicates: &[Vec<Answer>], family: usize, level: f64) -> (Answer, Answer, f64) {
    let mut answers: Vec<Answer> = replicates
        .iter()
        .map(|answers| answers[family])
        .filter(|answer| answer.place != Place::Unidentified)
        .collect();
    let identified = answers.len() as f64 / replicates.len() as f64;
    if answers.is_empty() || identified < level {
        let nowhere = Answer::at(Place::Unidentified);
        return (nowhere, nowhere, identified);
    }
    let order = |answer: &Answer| match answer.place {
        Place::Below => f64::NEG_INFINITY,
        _ => answer.parameters.unwrap_or(f64::INFINITY),
    };
    answers.sort_by(|a, b| order(a).total_cmp(&order(b)));
    // Order statistics, outwards: nothing lies between a size and "beyond the ladder".
    let tail = (1.0 - level) / 2.0;
    let last = (answers.len() - 1) as f64;
    let low = (tail * last).floor() as usize;
    let high = ((1.0 - tail) * last).ceil() as usize;
    (answers[low], answers[high], identified)
}
