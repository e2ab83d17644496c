//! What was found, in sentences.
//!
//! Owns: the wording of the summary and the verdict on Goldfish. Every number comes from a row of
//! `estimates`, `contrasts` or `validation`; the verdict compares an interval of the tables with
//! the margin fixed before training.

use super::format::{count, interval, number, p_value, percent, plural, with_interval};
use super::interval::{method, methods};
use super::page::Text;
use super::study::{EXACT, Study};
use super::tables::{Contrast, Estimate};

/// Whether a Goldfish arm held memorisation below the margin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The standard arm memorised by more than the margin, the Goldfish arm by less.
    Shown,
    /// The tables leave it open.
    NotShown,
    /// The Goldfish arm memorised by more than the margin.
    Contradicted,
}

impl Verdict {
    /// The one word of the report.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::NotShown => "not shown",
            Self::Contradicted => "contradicted",
        }
    }

    /// Compares the changes of both arms with the margin. Without an interval, or without
    /// memorisation in the standard arm, nothing is shown.
    fn new(standard: Option<&Change>, goldfish: Option<&Change>, margin: f64) -> Self {
        let memorised = standard.is_some_and(|change| change.exceeds(margin));
        match goldfish {
            Some(change) if change.exceeds(margin) => Self::Contradicted,
            Some(change) if memorised && change.high < margin => Self::Shown,
            _ => Self::NotShown,
        }
    }
}

/// The primary contrast of an arm in exact match, which bears on the verdict.
struct Change {
    low: f64,
    high: f64,
    /// Where the interval comes from.
    source: &'static str,
    /// Whether the test of no change rejects it at the level of the study, adjusted for its family.
    is_found: bool,
}

impl Change {
    /// Whether it is above the margin by its interval, and not by the number of tests made.
    fn exceeds(&self, margin: f64) -> bool {
        self.is_found && self.low > margin
    }
}

/// The change of an arm. A resampled interval of width zero (no document changed, so no resample can) says nothing about
/// other documents; then the exact interval of the arm's own rate takes its place.
fn change(study: &Study, model: &str, arm: &str) -> Option<Change> {
    let contrast = study.primary_contrast(model, arm, EXACT)?;
    let (low, high) = (contrast.low?, contrast.high?);
    let error = 1.0 - study.primary.level;
    let is_found = contrast.p_adjusted.is_some_and(|p| p <= error);
    if high > low {
        return Some(Change {
            low,
            high,
            source: "interval of the change in exact match",
            is_found,
        });
    }
    let trial = study.summary_trial(model);
    let cell = study.cell(model, arm, &trial, &study.primary.bucket, &study.primary.to);
    let exact = cell
        .iter()
        .find(|row| row.method == "clopper_pearson")
        .or_else(|| cell.iter().find(|row| row.method == "wilson"))?;
    Some(Change {
        low: exact.low?,
        high: exact.high?,
        source: "interval of the arm's own rate, because no document changed and the resampled interval of the contrast has no width",
        is_found,
    })
}

/// The verdict on one Goldfish arm, with the interval it rests on and where that comes from.
pub(super) fn verdict(study: &Study, model: &str, arm: &str) -> (Verdict, Option<Text>) {
    let margin = study.primary.margin;
    let standard = study
        .reference
        .as_deref()
        .and_then(|standard| change(study, model, standard));
    let goldfish = change(study, model, arm);
    let verdict = Verdict::new(standard.as_ref(), goldfish.as_ref(), margin);
    let reason = goldfish.map(|change| {
        let memorised = standard.is_some_and(|change| change.exceeds(margin));
        let against = match &study.reference {
            Some(reference) if verdict == Verdict::NotShown && !memorised => {
                format!("; arm {reference} is not shown to have memorised by more than the margin")
            }
            None if verdict == Verdict::NotShown => {
                "; no arm of the standard loss was trained, so there is nothing to compare with"
                    .to_owned()
            }
            _ if verdict == Verdict::NotShown => too_few(study, model, arm).unwrap_or_default(),
            _ => String::new(),
        };
        Text::from(format!(
            "{} against a margin of {} ({}, at level {} for this model and arm alone; more than the margin also needs an adjusted \
             p of at most {}{against})",
            interval(Some(change.low), Some(change.high)),
            number(margin),
            change.source,
            percent(study.primary.level),
            number(1.0 - study.primary.level),
        ))
    });
    (verdict, reason)
}

/// Said where not a single document changed and the interval is still wider than the margin: the verdict was out of reach.
fn too_few(study: &Study, model: &str, arm: &str) -> Option<String> {
    let primary = &study.primary;
    let hits = |bucket: &str| {
        let at = |time: &str| Some(study.estimate(model, arm, bucket, time)?.hits);
        Some(at(&primary.from)? + at(&primary.to)?)
    };
    let is_still = hits(&primary.bucket)? == 0 && hits(study.control()?)? == 0;
    is_still.then(|| {
        "; nothing was reproduced in either bucket, so with these numbers of clusters no outcome could have shown it: more are needed"
            .to_owned()
    })
}

/// What the primary contrast measures of an arm, in words.
pub(super) fn measured(study: &Study) -> &'static str {
    if study.primary.contrast == "paired" {
        "change"
    } else {
        "change against control"
    }
}

/// `16 hits in 24 documents, 24 clusters; Wilson`.
fn sizes(row: &Estimate) -> String {
    format!(
        "{} in {}, {}; {}",
        plural(row.hits, "hit"),
        plural(row.documents, "document"),
        plural(row.clusters, "cluster"),
        method(&row.method)
    )
}

/// The summary: one group of sentences per model.
pub(super) fn sentences(study: &Study) -> Vec<Text> {
    let mut list = Vec::new();
    for model in &study.models {
        let lead = if study.models.len() > 1 {
            format!("{model}: ")
        } else {
            String::new()
        };
        for arm in &study.arms {
            list.extend(treated(study, model, arm, &lead));
        }
        for arm in &study.arms {
            list.extend(control(study, model, arm, &lead));
        }
        for arm in study.arms.iter().filter(|arm| study.goldfish.contains(arm)) {
            let (verdict, reason) = verdict(study, model, arm);
            let mut text = Text::from(lead.as_str())
                .plain("That ")
                .code(arm.as_str())
                .plain(" prevents memorisation here is ")
                .strong(verdict.word());
            if let Some(reason) = reason {
                text = text.plain(": ");
                text.0.extend(reason.0);
            }
            list.push(text.plain("."));
            list.extend(against_reference(study, model, arm, &lead));
        }
        list.extend(price(study, model, &lead));
        list.extend(fragile(study, model, &lead));
    }
    list
}

/// Rate in the primary bucket and its difference from control.
fn treated(study: &Study, model: &str, arm: &str, lead: &str) -> Option<Text> {
    let primary = &study.primary;
    let after = study.estimate(model, arm, &primary.bucket, &primary.to)?;
    let mut text = Text::from(lead)
        .plain("Trained with arm ")
        .code(arm)
        .plain(format!(
            ", the model reproduced the last {} tokens of documents presented {} times at a rate of ",
            primary.suffix, primary.exposures
        ))
        .strong(with_interval(after.rate, after.low, after.high))
        .plain(format!(" ({})", sizes(after)));
    if let Some(before) = study.estimate(model, arm, &primary.bucket, &primary.from) {
        text = text.plain(format!(
            "; at time {} it was {} ({})",
            primary.from,
            with_interval(before.rate, before.low, before.high),
            plural(before.hits, "hit"),
        ));
    }
    text = text.plain(". ");
    let text = match study.primary_contrast(model, arm, EXACT) {
        Some(contrast) => {
            let tested = if contrast.low == contrast.high {
                "no document changed, so the resampled interval has no width and is no evidence of absence"
                    .to_owned()
            } else {
                tested(study, contrast)
            };
            let detectable = contrast.detectable.map_or_else(String::new, |value| {
                format!(
                    "; smallest difference detectable at power {}, without adjustment: {}",
                    number(study.power),
                    number(value)
                )
            });
            let what = if contrast.kind == "paired" {
                "Its change is "
            } else {
                "Its change exceeds that of the control by "
            };
            text.plain(what)
                .strong(with_interval(
                    contrast.estimate.unwrap_or(f64::NAN),
                    contrast.low,
                    contrast.high,
                ))
                .plain(format!(
                    " ({}, {} to {}, {}, {}): {tested}{detectable}.",
                    kind(&contrast.kind),
                    contrast.from,
                    contrast.to,
                    plural(contrast.clusters, "cluster"),
                    methods(&contrast.method),
                ))
        }
        None => text.plain("The tables hold no such contrast of exact match for this arm."),
    };
    Some(log_probability(study, model, arm, text))
}

/// `p 0.012, adjusted 0.048 (Holm, primary family of 4 tests)`.
fn tested(study: &Study, contrast: &Contrast) -> String {
    let family = study
        .contrasts
        .iter()
        .filter(|row| row.family == contrast.family);
    let size = family.filter(|row| row.p.is_some()).count() as u64;
    let by = match contrast.family.as_str() {
        "primary" => "Holm",
        _ => "Benjamini and Hochberg",
    };
    format!(
        "p {}, adjusted {} ({by}, {} family of {})",
        p_value(contrast.p),
        p_value(contrast.p_adjusted),
        contrast.family,
        plural(size, "test")
    )
}

/// The same contrast of log-probabilities: it moves where exact match, which counts whole documents, does not yet.
fn log_probability(study: &Study, model: &str, arm: &str, text: Text) -> Text {
    let Some(contrast) = study.primary_contrast(model, arm, "log_probability") else {
        return text;
    };
    let lead = if study.primary.measure == contrast.measure {
        " Primary: the mean log-probability of the suffix "
    } else {
        " The mean log-probability of the suffix "
    };
    let against = if contrast.kind == "paired" {
        "changes by "
    } else {
        "changes, beyond that of the control, by "
    };
    text.plain(lead)
        .plain(against)
        .strong(format!(
            "{} nats",
            with_interval(
                contrast.estimate.unwrap_or(f64::NAN),
                contrast.low,
                contrast.high
            )
        ))
        .plain(format!(
            " ({}{}, {}{}).",
            means(study, contrast),
            methods(&contrast.method),
            tested(study, contrast),
            contrast
                .detectable
                .map_or_else(String::new, |value| format!(
                    "; smallest change detectable at power {}, without adjustment: {} nats",
                    number(study.power),
                    number(value)
                ))
        ))
}

/// `from −210 to −96 in the bucket, from −205 to −340 in the control; `: which of them moved.
fn means(study: &Study, contrast: &Contrast) -> String {
    let of = |bucket: &str, what: &str| {
        let at = |time: &str| {
            Some(number(
                study
                    .estimate(&contrast.model, &contrast.arm, bucket, time)?
                    .mean_log_probability?,
            ))
        };
        Some(format!(
            "from {} to {} in the {what}; ",
            at(&contrast.from)?,
            at(&contrast.to)?
        ))
    };
    let buckets = [
        Some((contrast.bucket.as_str(), "bucket")),
        study.control().map(|name| (name, "control")),
    ];
    let found = buckets
        .into_iter()
        .flatten()
        .filter_map(|(bucket, what)| of(bucket, what));
    found.collect()
}

/// The arm against the reference arm on the same documents of the primary bucket, after training.
fn against_reference(study: &Study, model: &str, arm: &str, lead: &str) -> Option<Text> {
    let primary = &study.primary;
    let row = study.contrasts.iter().find(|row| {
        row.kind == "arm"
            && row.measure == EXACT
            && row.model == model
            && row.arm == arm
            && row.bucket == primary.bucket
            && row.suffix == primary.suffix
            && row.prefix == primary.prefix
    })?;
    Some(
        Text::from(lead)
            .plain("On the same documents presented as often, the rate of arm ")
            .code(arm)
            .plain(" differs from that of arm ")
            .code(row.from.as_str())
            .plain(" by ")
            .strong(with_interval(
                row.estimate.unwrap_or(f64::NAN),
                row.low,
                row.high,
            ))
            .plain(format!(
                " (paired, {}, {}, {}).",
                plural(row.clusters, "cluster"),
                methods(&row.method),
                tested(study, row)
            )),
    )
}

/// Rate in the control; with no hit, its upper bound.
fn control(study: &Study, model: &str, arm: &str, lead: &str) -> Option<Text> {
    let bucket = study.control()?;
    let row = study.estimate(model, arm, bucket, &study.primary.to)?;
    let text = Text::from(lead)
        .plain("Control documents (never presented) under arm ")
        .code(arm)
        .plain(": ");
    Some(if row.hits == 0 {
        let text = text.strong("0 hits").plain(format!(
            " in {}, {}",
            plural(row.documents, "document"),
            plural(row.clusters, "cluster")
        ));
        match row.high {
            Some(high) => text
                .plain("; upper bound of the rate ")
                .strong(number(high))
                .plain(format!(
                    " ({}, {}).",
                    method(&row.method),
                    percent(row.level)
                )),
            None => text.plain("."),
        }
    } else {
        text.plain("rate ")
            .strong(with_interval(row.rate, row.low, row.high))
            .plain(format!(" ({}).", sizes(row)))
    })
}

/// Held-out loss of the arms, side by side.
fn price(study: &Study, model: &str, lead: &str) -> Option<Text> {
    let mut parts = Vec::new();
    for arm in &study.arms {
        let losses = study.held_out(model, arm, &study.primary.to);
        if !losses.is_empty() {
            parts.push(format!("{} after arm {arm}", mean_of(&losses)));
        }
    }
    if parts.len() < 2 {
        return None;
    }
    let arm = study.arms.first()?;
    let before = study.held_out(model, arm, &study.primary.from);
    if !before.is_empty() {
        parts.insert(0, format!("{} at {}", mean_of(&before), study.primary.from));
    }
    Some(Text::from(format!(
        "{lead}The price on held-out text, loss in nats per token, mean of {} (each in brackets): {}.",
        plural(study.trials(model).len() as u64, "trial"),
        parts.join(", ")
    )))
}

/// `8.05 (8.05, 8.09, 8.04, 8.03)`.
fn mean_of(values: &[f64]) -> String {
    let each: Vec<String> = values.iter().copied().map(number).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    format!("{} ({})", number(mean), each.join(", "))
}

/// Share of fragile documents at the primary time.
fn fragile(study: &Study, model: &str, lead: &str) -> Option<Text> {
    let (mut fragile, mut documents) = (0, 0);
    for arm in &study.arms {
        for (_, bucket) in &study.levels {
            if let Some(row) = study.estimate(model, arm, bucket, &study.primary.to) {
                fragile += row.fragile;
                documents += row.documents;
            }
        }
    }
    (documents > 0).then(|| {
        Text::from(format!(
            "{lead}{} of {} scores after training are fragile, that is, so near a tie that rounding could turn them.",
            count(fragile),
            count(documents)
        ))
    })
}

/// The name of a kind of contrast in words.
pub(super) fn kind(kind: &str) -> &str {
    match kind {
        "did" => "difference in differences",
        "paired" => "paired change",
        "arm" => "difference between arms",
        "size" => "difference between sizes",
        "trend" => "trend over presentations",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Verdict};

    #[test]
    fn goldfish_prevents_only_below_the_margin_and_with_something_to_prevent() {
        let change = |low, high, is_found| {
            Some(Change {
                low,
                high,
                source: "",
                is_found,
            })
        };
        let memorised = || change(0.4, 0.8, true);
        let cases = [
            (memorised(), change(0.0, 0.03, false), Verdict::Shown),
            (memorised(), change(0.0, 0.14, false), Verdict::NotShown),
            (memorised(), change(0.06, 0.3, true), Verdict::Contradicted),
            (memorised(), change(0.06, 0.3, false), Verdict::NotShown),
            (
                change(0.06, 0.3, false),
                change(0.0, 0.03, false),
                Verdict::NotShown,
            ),
            (
                change(0.0, 0.1, true),
                change(0.0, 0.03, false),
                Verdict::NotShown,
            ),
            (None, change(0.0, 0.03, false), Verdict::NotShown),
            (memorised(), None, Verdict::NotShown),
        ];
        for (standard, goldfish, verdict) in cases {
            let (standard, goldfish) = (standard.as_ref(), goldfish.as_ref());
            assert_eq!(Verdict::new(standard, goldfish, 0.05), verdict);
        }
    }
}
