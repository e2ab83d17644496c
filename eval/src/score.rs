//! Teacher-forced scoring: one pass over the true text gives exact match, matched prefix,
//! log-probability, ranks, entropy, margin and fragility.
//!
//! Greedy decoding reproduces a suffix if and only if, under the true prefix, every argmax equals
//! its target, so no text needs to be generated. Free-running decoding is the cross-check.
//! Documents of a batch are read side by side and never padded: the batch size cannot change a
//! result by more than rounding. Ranks that hold the same model share each batch.

mod position;
mod read;
mod summary;

use std::collections::{BTreeSet, HashMap, HashSet};

use self::position::Position;
use self::read::{Limits, Reading, continuations, read, read_cached};
pub use self::summary::{Contradiction, Score};
use crate::probe::{Cut, Prefix, Probe};
use crate::{Error, LanguageModel, Result};

/// Ids in a batch, unless set otherwise.
pub const BATCH_TOKENS: usize = 16_384;
/// Documents decoded as a cross-check where generated text is not wanted.
const CROSS_CHECKED: usize = 8;
/// Documents that measure the numerical tolerance.
const TOLERANCE_PROBES: usize = 32;
/// The smallest tolerance of a margin.
const SMALLEST_TOLERANCE: f32 = 1e-4;

/// How documents are scored.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreSettings {
    /// Suffix lengths S, each at least 1.
    pub suffix: Vec<usize>,
    /// What is shown before the suffix; one score per document and entry.
    pub prefix: Vec<Prefix>,
    /// The fewest ids that prefix `all` may have.
    pub min_prefix: usize,
    /// The most documents read at once, on all ranks together.
    pub batch: usize,
    /// The most ids read at once; a longer document is a batch alone. See [`BATCH_TOKENS`].
    pub batch_tokens: usize,
    /// The BOS id where the policy adds one.
    pub bos: Option<u32>,
    /// Also decode the longest suffix of every document free-running, and compare.
    pub generate: bool,
    /// Documents decoded and compared, though not kept, where `generate` is off; see
    /// [`cross_check_sample`].
    pub cross_check: BTreeSet<String>,
    /// τ: a document whose absolute signed margin is below it is fragile.
    pub tolerance: f32,
}

impl ScoreSettings {
    fn limits(&self) -> Limits {
        Limits {
            documents: self.batch,
            tokens: self.batch_tokens,
        }
    }

    fn longest(&self) -> usize {
        self.suffix.iter().copied().max().unwrap_or(0)
    }
}

/// Scores every probe under every prefix setting: for each prefix in order, the probes in order.
///
/// On a grid all ranks call it with the same probes; each evaluates its share, and all get all scores.
///
/// # Errors
/// Settings out of range, a document that is too short or longer than the model, an id outside the
/// vocabulary, logits that are not finite, or free-running and teacher-forced exact match that
/// differ on a document that is not fragile. Each names the document.
pub fn score<M: LanguageModel>(
    model: &M,
    probes: &[Probe],
    settings: &ScoreSettings,
) -> Result<Vec<Score>> {
    check(model, probes, settings)?;
    let (longest, limits) = (settings.longest(), settings.limits());
    let mut scores = Vec::with_capacity(probes.len() * settings.prefix.len());
    for &prefix in &settings.prefix {
        let long = cut_all(model, probes, longest, prefix, settings)?;
        let long = readings(probes, &long);
        let long_positions = read(model, &long, limits)?;
        // Under prefix `all` a shorter suffix is seen by the same pass; under prefix P its prefix
        // starts elsewhere, so it is a pass of its own.
        let mut by_suffix = Vec::with_capacity(settings.suffix.len());
        for &suffix in &settings.suffix {
            by_suffix.push(if prefix == Prefix::All || suffix == longest {
                long_positions
                    .iter()
                    .map(|all| all[longest - suffix..].to_vec())
                    .collect()
            } else {
                let cuts = cut_all(model, probes, suffix, prefix, settings)?;
                read(model, &readings(probes, &cuts), limits)?
            });
        }
        let first = scores.len();
        for (index, probe) in probes.iter().enumerate() {
            let passes: Vec<&[Position]> = by_suffix
                .iter()
                .map(|all: &Vec<Vec<Position>>| all[index].as_slice())
                .collect();
            scores.push(Score::new(
                &long[index],
                &probe.cluster,
                prefix,
                &passes,
                &long_positions[index],
                settings,
            ));
        }
        decode(model, &long, &mut scores[first..], settings)?;
    }
    Ok(scores)
}

/// The first 8 documents by id, for [`ScoreSettings::cross_check`].
pub fn cross_check_sample(probes: &[Probe]) -> BTreeSet<String> {
    let documents: BTreeSet<&String> = probes.iter().map(|probe| &probe.document).collect();
    documents.into_iter().take(CROSS_CHECKED).cloned().collect()
}

/// Measures τ: twice the largest change of a gap (target logit - largest other logit) when the
/// first 32 probes by document id are scored, under the first prefix setting, at another batch size
/// and through the cache, and at least 1e-4. On a grid all ranks call it with the same probes, and find the same.
///
/// # Errors
/// As [`score`].
pub fn measure_tolerance<M: LanguageModel>(
    model: &M,
    probes: &[Probe],
    settings: &ScoreSettings,
) -> Result<f32> {
    check(model, probes, settings)?;
    let mut chosen: Vec<&Probe> = probes.iter().collect();
    chosen.sort_by_key(|probe| &probe.document);
    chosen.truncate(TOLERANCE_PROBES);
    let chosen: Vec<Probe> = chosen.into_iter().cloned().collect();
    let limits = settings.limits();
    // One document at a time on each rank, or all at once where that is the usual batch.
    let (_, parts) = model.share();
    let other = Limits {
        documents: if limits.documents <= parts {
            TOLERANCE_PROBES.max(2 * parts)
        } else {
            parts
        },
        ..limits
    };
    let mut change = 0.0_f32;
    let cuts = cut_all(
        model,
        &chosen,
        settings.longest(),
        settings.prefix[0],
        settings,
    )?;
    let readings = readings(&chosen, &cuts);
    let reference = read(model, &readings, limits)?;
    let batched = read(model, &readings, other)?;
    let cached = read_cached(model, &readings, limits)?;
    for other in [batched, cached] {
        for (a, b) in reference.iter().flatten().zip(other.iter().flatten()) {
            if a.gap.to_bits() != b.gap.to_bits() {
                change = change.max((a.gap - b.gap).abs());
            }
        }
    }
    if !change.is_finite() {
        return Err(Error::Model(
            "logits change by an infinite amount between batch sizes".to_owned(),
        ));
    }
    Ok((2.0 * change).max(SMALLEST_TOLERANCE))
}

/// The documents as one pass reads them.
fn readings<'a>(probes: &'a [Probe], cuts: &'a [Cut]) -> Vec<Reading<'a>> {
    let pairs = probes.iter().zip(cuts);
    pairs
        .map(|(probe, cut)| Reading {
            document: &probe.document,
            cut,
        })
        .collect()
}

fn check<M: LanguageModel>(model: &M, probes: &[Probe], settings: &ScoreSettings) -> Result<()> {
    if settings.suffix.is_empty() || settings.suffix.contains(&0) {
        return Err(Error::setting(
            "score.suffix",
            "give at least one length, each of at least 1 id",
        ));
    }
    if settings.prefix.is_empty() || settings.prefix.contains(&Prefix::Tokens(0)) {
        return Err(Error::setting(
            "score.prefix",
            "give `all` or numbers of at least 1 id",
        ));
    }
    if settings.batch == 0 {
        return Err(Error::setting("score.batch", "must be at least 1"));
    }
    if settings.batch_tokens == 0 {
        return Err(Error::setting("score.batch_tokens", "must be at least 1"));
    }
    if model.vocab() < 2 {
        return Err(Error::Model(
            "a margin needs a vocabulary of at least 2 ids".to_owned(),
        ));
    }
    let mut seen = HashSet::with_capacity(probes.len());
    for probe in probes {
        if !seen.insert(probe.document.as_str()) {
            return Err(Error::document(
                &probe.document,
                "is probed twice; each document gives one score",
            ));
        }
        if let Some(id) = probe.ids.iter().find(|&&id| id as usize >= model.vocab()) {
            return Err(Error::document(
                &probe.document,
                format!(
                    "holds id {id}, and the model's vocabulary ends at {}; is this its tokenizer?",
                    model.vocab() - 1
                ),
            ));
        }
    }
    Ok(())
}

fn cut_all<M: LanguageModel>(
    model: &M,
    probes: &[Probe],
    suffix: usize,
    prefix: Prefix,
    settings: &ScoreSettings,
) -> Result<Vec<Cut>> {
    probes
        .iter()
        .map(|probe| {
            let cut = probe.cut(suffix, prefix, settings.min_prefix, settings.bos)?;
            // The last id is only ever a target, so it needs no position.
            if cut.ids.len() - 1 > model.max_positions() {
                return Err(Error::document(
                    &probe.document,
                    format!(
                        "its {} ids do not fit in the model's {} positions",
                        cut.ids.len(),
                        model.max_positions()
                    ),
                ));
            }
            Ok(cut)
        })
        .collect()
}

/// Decodes the longest suffix of the `chosen` documents free-running, after the first prefix setting, and keeps it with
/// what compares it to the target. `scores` are those of [`score`].
///
/// # Errors
/// As [`score`].
pub fn generate<M: LanguageModel>(
    model: &M,
    probes: &[Probe],
    scores: &mut [Score],
    chosen: &BTreeSet<String>,
    settings: &ScoreSettings,
) -> Result<()> {
    check(model, probes, settings)?;
    let prefix = settings.prefix[0];
    let wanted: Vec<Probe> = probes
        .iter()
        .filter(|probe| chosen.contains(&probe.document))
        .cloned()
        .collect();
    let cuts = cut_all(model, &wanted, settings.longest(), prefix, settings)?;
    let settings = ScoreSettings {
        generate: true,
        ..settings.clone()
    };
    let name = prefix.to_string();
    let mut first: HashMap<String, &mut Score> = scores
        .iter_mut()
        .filter(|score| score.prefix == name)
        .map(|score| (score.document.clone(), score))
        .collect();
    let mut found = Vec::with_capacity(wanted.len());
    for probe in &wanted {
        let score = first.get(&probe.document).ok_or_else(|| {
            Error::document(&probe.document, "was not scored under the first prefix")
        })?;
        found.push((**score).clone());
    }
    decode(model, &readings(&wanted, &cuts), &mut found, &settings)?;
    for score in found {
        if let Some(place) = first.get_mut(&score.document) {
            **place = score;
        }
    }
    Ok(())
}

/// Decodes the longest suffix of each document, or of those in the sample, and compares it with the
/// teacher-forced verdict.
fn decode<M: LanguageModel>(
    model: &M,
    long: &[Reading<'_>],
    scores: &mut [Score],
    settings: &ScoreSettings,
) -> Result<()> {
    let longest = settings.longest();
    let Some(last) = settings.suffix.iter().position(|&suffix| suffix == longest) else {
        return Ok(());
    };
    let wanted = |document: &str| settings.generate || settings.cross_check.contains(document);
    let chosen: Vec<Reading<'_>> = long
        .iter()
        .filter(|reading| wanted(reading.document))
        .copied()
        .collect();
    let generated = continuations(model, &chosen, settings.limits())?;
    let scores = scores.iter_mut().filter(|score| wanted(&score.document));
    for ((reading, score), generated) in chosen.iter().zip(scores).zip(generated) {
        let exact = generated == reading.cut.suffix();
        if exact != score.exact[last] && !score.fragile[last] {
            let does = if exact {
                "reproduces"
            } else {
                "does not reproduce"
            };
            return Err(Error::Numerical {
                document: score.document.clone(),
                problem: format!(
                    "free-running decoding {does} the suffix and the teacher-forced pass says otherwise, at a margin of {} (tolerance {}); measure the tolerance again or score in f32",
                    score.margin[last], settings.tolerance
                ),
            });
        }
        if settings.generate {
            score.add_generated(generated);
        }
    }
    Ok(())
}
