//! What is measured, and how it is analysed.

use super::{Resolved, refuse};
use crate::experiment::file::{
    Analysis, AnalysisFile, Bos, Buckets, Documents, Exposures, Prefix, Primary, ScoreFile,
    ThresholdFile, Time,
};
use crate::experiment::limits::{self, within};
use crate::experiment::resolved::{Model, Score};

pub(super) fn score(file: ScoreFile, documents: &Documents) -> Resolved<Score> {
    let mut suffix = file.suffix;
    suffix.sort_unstable();
    suffix.dedup();
    let Some(&longest) = suffix.last() else {
        return refuse("score.suffix", "is empty; name at least one length");
    };
    for &length in &suffix {
        within("score.suffix", length, &limits::TOKENS)?;
    }
    if suffix.len().max(file.prefix.len()) > *limits::LIST.end() {
        return refuse(
            "score",
            format!(
                "has more than {} lengths of suffix or prefix",
                limits::LIST.end()
            ),
        );
    }
    if file.prefix.is_empty() {
        return refuse("score.prefix", "is empty; use `all`");
    }
    within(
        "score.min_prefix",
        file.min_prefix,
        &(0..=*limits::TOKENS.end()),
    )?;
    // A prefix of so many ids is text; the beginning-of-sequence id of the document is none.
    let head = usize::from(documents.bos == Bos::Always);
    let mut before = 1;
    for (index, prefix) in file.prefix.iter().enumerate() {
        if file.prefix[..index].contains(prefix) {
            return refuse("score.prefix", "names a prefix twice");
        }
        before = before.max(match *prefix {
            Prefix::All => file.min_prefix,
            Prefix::Tokens(tokens) => {
                within("score.prefix", tokens, &limits::TOKENS)?;
                tokens + head
            }
        });
    }
    let needed = longest + before;
    if needed > documents.min_tokens {
        return refuse(
            "score.suffix",
            format!(
                "a suffix of {longest} ids with its prefix needs documents of at least {needed} \
                 ids, documents.min_tokens is {}",
                documents.min_tokens
            ),
        );
    }
    within("score.batch", file.batch, &limits::BATCH)?;
    limits::pass("score.batch", file.batch, documents.tokens)?;
    Ok(Score {
        suffix,
        prefix: file.prefix,
        min_prefix: file.min_prefix,
        generate: file.generate,
        batch: file.batch,
    })
}

pub(super) fn analysis(
    file: &AnalysisFile,
    score: &Score,
    buckets: &Buckets,
    models: &[Model],
) -> Resolved<Analysis> {
    let suffix = file.primary.suffix.unwrap_or(score.suffix[0]);
    if !score.suffix.contains(&suffix) {
        return refuse(
            "analysis.primary.suffix",
            format!("{suffix} is not in score.suffix {:?}", score.suffix),
        );
    }
    let highest = buckets.epochs.iter().copied().max().unwrap_or(0);
    let exposures = match file.primary.exposures {
        Exposures::Max => highest,
        Exposures::Level(level) => {
            let mut treated = buckets.epochs.iter().filter(|&&epochs| epochs > 0);
            let Some(&epochs) = treated.find(|&&epochs| u64::from(epochs) == level) else {
                return refuse(
                    "analysis.primary.exposures",
                    format!(
                        "{level} is no treated level of buckets.epochs {:?}",
                        buckets.epochs
                    ),
                );
            };
            epochs
        }
    };
    if file.primary.time.0 >= file.primary.time.1 {
        return refuse(
            "analysis.primary.time",
            "the first time must come before the second",
        );
    }
    if file.primary.time.1 != Time::After {
        return refuse(
            "analysis.primary.time",
            "the primary comparison ends at `after`: nothing is presented before",
        );
    }
    within("analysis.level", file.level, &limits::LEVEL)?;
    if !(file.margin > 0.0 && file.margin < 1.0) {
        return refuse("analysis.margin", "must be between 0 and 1");
    }
    within("analysis.resamples", file.resamples, &limits::RESAMPLES)?;
    Ok(Analysis {
        primary: Primary {
            time: file.primary.time,
            suffix,
            exposures,
            contrast: file.primary.contrast,
            measure: file.primary.measure,
        },
        level: file.level,
        margin: file.margin,
        resamples: file.resamples,
        threshold: threshold(file.threshold.clone(), models, highest)?,
    })
}

/// The question of a ladder; a study of one model has none.
fn threshold(
    file: Option<ThresholdFile>,
    models: &[Model],
    highest: u32,
) -> Resolved<Option<ThresholdFile>> {
    if let ([_], Some(_)) = (models, &file) {
        return refuse(
            "analysis.threshold",
            "needs several models; list them under `model`",
        );
    }
    let question = file.unwrap_or_default();
    if !(question.rate > 0.0 && question.rate < 1.0) {
        return refuse("analysis.threshold.rate", "must be between 0 and 1");
    }
    if !(1..=highest).contains(&question.exposures) {
        return refuse(
            "analysis.threshold.exposures",
            format!(
                "{} is not from 1 to the highest of buckets.epochs, {highest}; nothing is said beyond what is run",
                question.exposures
            ),
        );
    }
    Ok((models.len() > 1).then_some(question))
}
