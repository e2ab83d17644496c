//! Teacher-forced scoring: one pass over the true text gives exact match, matched prefix,
//! log-probability, margin and fragility.
//!
//! Greedy decoding reproduces a suffix if and only if, under the true prefix, every argmax equals
//! its target, so no text needs to be generated. Free-running decoding is the cross-check.
//! Documents of a batch are read side by side and never padded: the batch size cannot change a
//! result by more than rounding.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use crate::decode::{argmax, check_rows};
use crate::probe::{Cut, Prefix, Probe};
use crate::{Error, LanguageModel, Result, greedy};

/// The most logits held at once (256 MiB of f32); a larger batch is read in parts.
const LOGITS_AT_ONCE: usize = 1 << 26;
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
    /// Documents read at once.
    pub batch: usize,
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

/// What one pass says about one document; lists run along `suffix`.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// The document's id.
    pub document: String,
    /// Its cluster.
    pub cluster: String,
    /// The prefix setting, `all` or a number.
    pub prefix: String,
    /// The suffix lengths S.
    pub suffix: Vec<u32>,
    /// All S ids reproduced.
    pub exact: Vec<bool>,
    /// Index of the first id that differs; S where none does.
    pub matched_prefix: Vec<u32>,
    /// Σ log p of the suffix in nats.
    pub log_probability: Vec<f64>,
    /// Probability that sampling at temperature 1 gives the suffix.
    pub p_z: Vec<f64>,
    /// Signed margin: least (target logit - largest other logit) over the S positions.
    pub margin: Vec<f32>,
    /// Absolute margin below τ.
    pub fragile: Vec<bool>,
    /// Share of teacher-forced argmaxes that equal their target.
    pub token_accuracy: Vec<f64>,
    /// The expected ids of the longest suffix.
    pub target: Vec<u32>,
    /// The teacher-forced argmaxes of the longest suffix.
    pub predicted: Vec<u32>,
    /// The free-running ids of the longest suffix, where they were asked for.
    pub generated: Option<Vec<u32>>,
}

/// What one row of logits says about its target.
#[derive(Debug, Clone, Copy)]
struct Position {
    predicted: u32,
    correct: bool,
    log_probability: f64,
    gap: f32,
}

impl Position {
    /// `None` where the row is not finite or the target has no row.
    fn of(row: &[f32], target: u32) -> Option<Self> {
        let (predicted, top) = argmax(row)?;
        let target_logit = *row.get(target as usize)?;
        let mut other = f32::NEG_INFINITY;
        let mut sum = 0.0_f64;
        for (id, &logit) in row.iter().enumerate() {
            sum += (f64::from(logit) - f64::from(top)).exp();
            if id != target as usize {
                other = other.max(logit);
            }
        }
        Some(Self {
            predicted,
            correct: predicted == target,
            log_probability: f64::from(target_logit) - f64::from(top) - sum.ln(),
            gap: target_logit - other,
        })
    }
}

/// Scores every probe under every prefix setting: for each prefix in order, the probes in order.
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
    let longest = longest(settings);
    let mut scores = Vec::with_capacity(probes.len() * settings.prefix.len());
    for &prefix in &settings.prefix {
        let long = cut_all(model, probes, longest, prefix, settings)?;
        let long_positions = read(model, probes, &long, settings.batch)?;
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
                read(model, probes, &cuts, settings.batch)?
            });
        }
        let first = scores.len();
        for (index, probe) in probes.iter().enumerate() {
            let passes: Vec<&[Position]> = by_suffix
                .iter()
                .map(|all: &Vec<Vec<Position>>| all[index].as_slice())
                .collect();
            scores.push(summarise(
                probe,
                prefix,
                &passes,
                &long[index],
                &long_positions[index],
                settings,
            ));
        }
        generate(model, &long, &mut scores[first..], settings)?;
    }
    Ok(scores)
}

/// The first 8 documents by id, for [`ScoreSettings::cross_check`].
pub fn cross_check_sample(probes: &[Probe]) -> BTreeSet<String> {
    let documents: BTreeSet<&String> = probes.iter().map(|probe| &probe.document).collect();
    documents.into_iter().take(CROSS_CHECKED).cloned().collect()
}

/// Measures τ: twice the largest change of a gap (target logit - largest other logit) when the
/// first 32 probes by document id are scored at another batch size and through the cache, and at
/// least 1e-4.
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
    let other_batch = if settings.batch == 1 {
        TOLERANCE_PROBES
    } else {
        1
    };
    let mut change = 0.0_f32;
    for &prefix in &settings.prefix {
        let cuts = cut_all(model, &chosen, longest(settings), prefix, settings)?;
        let reference = read(model, &chosen, &cuts, settings.batch)?;
        let batched = read(model, &chosen, &cuts, other_batch)?;
        let cached = read_cached(model, &chosen, &cuts, settings.batch)?;
        for other in [batched, cached] {
            for (a, b) in reference.iter().flatten().zip(other.iter().flatten()) {
                if a.gap.to_bits() != b.gap.to_bits() {
                    change = change.max((a.gap - b.gap).abs());
                }
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

fn longest(settings: &ScoreSettings) -> usize {
    settings.suffix.iter().copied().max().unwrap_or(0)
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

/// Reads each cut once, teacher-forced; the positions of its suffix, in the order of the cuts.
fn read<M: LanguageModel>(
    model: &M,
    probes: &[Probe],
    cuts: &[Cut],
    batch: usize,
) -> Result<Vec<Vec<Position>>> {
    let vocab = model.vocab();
    let rows = cuts.first().map_or(1, |cut| cut.suffix().len());
    let batch = batch.min((LOGITS_AT_ONCE / (rows * vocab)).max(1));
    let mut read = Vec::with_capacity(cuts.len());
    for (probes, cuts) in probes.chunks(batch).zip(cuts.chunks(batch)) {
        // The last id is only ever a target.
        let sequences: Vec<&[u32]> = cuts
            .iter()
            .map(|cut| &cut.ids[..cut.ids.len() - 1])
            .collect();
        let positions: Vec<Range<usize>> = cuts
            .iter()
            .map(|cut| cut.prefix - 1..cut.ids.len() - 1)
            .collect();
        let logits = model.logits_at(&sequences, &positions)?; // [batch * S, V]
        check_rows(&logits, cuts.len() * rows, vocab)?;
        for ((probe, cut), block) in probes
            .iter()
            .zip(cuts)
            .zip(logits.chunks_exact(rows * vocab))
        {
            let rows = block.chunks_exact(vocab).zip(cut.suffix()).enumerate();
            let positions =
                rows.map(|(step, (row, &target))| position_of(row, target, probe, step));
            read.push(positions.collect::<Result<_>>()?);
        }
    }
    Ok(read)
}

/// As [`read`], feeding the true suffix id by id through the cache.
fn read_cached<M: LanguageModel>(
    model: &M,
    probes: &[Probe],
    cuts: &[Cut],
    batch: usize,
) -> Result<Vec<Vec<Position>>> {
    let vocab = model.vocab();
    let steps = cuts.first().map_or(1, |cut| cut.suffix().len());
    let mut all = Vec::with_capacity(cuts.len());
    for (probes, cuts) in probes.chunks(batch).zip(cuts.chunks(batch)) {
        let prefixes: Vec<&[u32]> = cuts.iter().map(Cut::prefix).collect();
        let (mut cache, mut logits) = model.prefill(&prefixes, steps - 1)?; // [batch, V]
        let mut read = vec![Vec::with_capacity(steps); cuts.len()];
        for step in 0..steps {
            check_rows(&logits, cuts.len(), vocab)?;
            let next: Vec<u32> = cuts.iter().map(|cut| cut.suffix()[step]).collect();
            for (index, row) in logits.chunks_exact(vocab).enumerate() {
                read[index].push(position_of(row, next[index], &probes[index], step)?);
            }
            if step + 1 < steps {
                logits = model.decode(&mut cache, &next)?;
            }
        }
        all.extend(read);
    }
    Ok(all)
}

fn position_of(row: &[f32], target: u32, probe: &Probe, position: usize) -> Result<Position> {
    Position::of(row, target).ok_or_else(|| Error::Numerical {
        document: probe.document.clone(),
        problem: format!("logits at position {position} of its suffix are not finite"),
    })
}

fn summarise(
    probe: &Probe,
    prefix: Prefix,
    passes: &[&[Position]],
    cut: &Cut,
    long: &[Position],
    settings: &ScoreSettings,
) -> Score {
    let mut score = Score {
        document: probe.document.clone(),
        cluster: probe.cluster.clone(),
        prefix: prefix.to_string(),
        suffix: settings
            .suffix
            .iter()
            .map(|&suffix| suffix as u32)
            .collect(),
        exact: Vec::new(),
        matched_prefix: Vec::new(),
        log_probability: Vec::new(),
        p_z: Vec::new(),
        margin: Vec::new(),
        fragile: Vec::new(),
        token_accuracy: Vec::new(),
        target: cut.suffix().to_vec(),
        predicted: long.iter().map(|position| position.predicted).collect(),
        generated: None,
    };
    for positions in passes {
        let matched = positions
            .iter()
            .take_while(|position| position.correct)
            .count();
        let correct = positions.iter().filter(|position| position.correct).count();
        let log_probability: f64 = positions
            .iter()
            .map(|position| position.log_probability)
            .sum();
        let margin = positions
            .iter()
            .map(|position| position.gap)
            .fold(f32::INFINITY, f32::min);
        score.exact.push(matched == positions.len());
        score.matched_prefix.push(matched as u32);
        score.log_probability.push(log_probability);
        score.p_z.push(log_probability.exp());
        score.margin.push(margin);
        score.fragile.push(margin.abs() < settings.tolerance);
        score
            .token_accuracy
            .push(correct as f64 / positions.len() as f64);
    }
    score
}

/// Decodes the longest suffix of each cut, or of those in the sample, and compares it with the
/// teacher-forced verdict.
fn generate<M: LanguageModel>(
    model: &M,
    cuts: &[Cut],
    scores: &mut [Score],
    settings: &ScoreSettings,
) -> Result<()> {
    let steps = longest(settings);
    let Some(last) = settings.suffix.iter().position(|&suffix| suffix == steps) else {
        return Ok(());
    };
    let mut chosen: Vec<(&Cut, &mut Score)> = cuts
        .iter()
        .zip(scores)
        .filter(|(_, score)| settings.generate || settings.cross_check.contains(&score.document))
        .collect();
    for batch in chosen.chunks_mut(settings.batch) {
        let prefixes: Vec<&[u32]> = batch.iter().map(|(cut, _)| cut.prefix()).collect();
        let continuations = greedy(model, &prefixes, steps)?;
        for ((cut, score), generated) in batch.iter_mut().zip(continuations) {
            let exact = generated == cut.suffix();
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
                score.generated = Some(generated);
            }
        }
    }
    Ok(())
}
