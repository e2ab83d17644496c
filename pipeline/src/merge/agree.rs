//! What studies have in common if their models are to be compared.
//!
//! Rates, batches, grids and what changes no number may be those of each model; anything else that training or measuring
//! depends on must be the same, or a difference between models could come from it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use axmem_eval::ScoreRow;
use serde_json::{Value, json};

use super::study::{Found, Study};
use crate::exit::Failure;
use crate::experiment::{Arm, Experiment, Model, Text, Weights};

/// Refuses studies with settings that do not belong together; no table is read for it.
///
/// # Errors
/// Names the setting, two folders and both values (exit code 2).
pub(super) fn settings(studies: &[Found]) -> Result<()> {
    for (index, other) in studies.iter().enumerate() {
        for first in &studies[..index] {
            let [a, b] = [first.experiment(), other.experiment()];
            if let Some(model) = same_name(a, b) {
                return Err(Failure::usage(format!(
                    "two studies have a model called {model}: {} and {}; give one of them another `name`",
                    first.folder.display(),
                    other.folder.display()
                )));
            }
            if let Some((setting, one, two)) = differing(a, b) {
                return Err(Failure::usage(format!(
                    "`{setting}` is {one} in {} and {two} in {}, so their models can't be compared",
                    first.folder.display(),
                    other.folder.display()
                )));
            }
        }
    }
    Ok(())
}

/// Refuses studies whose documents were drawn into other buckets, which equal settings do not exclude: tokenizers may differ.
///
/// # Errors
/// Names two folders (exit code 2).
pub(super) fn documents(studies: &[Study], scores: &[Vec<ScoreRow>]) -> Result<()> {
    let mut others = studies.iter().zip(scores);
    let Some((first, rows)) = others.next() else {
        return Ok(());
    };
    let expected = levels(rows);
    for (other, rows) in others {
        if levels(rows) != expected {
            return Err(Failure::usage(format!(
                "{} and {} have different documents in their buckets, so their models can't be compared",
                first.found.folder.display(),
                other.found.folder.display()
            )));
        }
    }
    Ok(())
}

/// Level of each cluster in each trial.
fn levels(rows: &[ScoreRow]) -> BTreeMap<(&str, u32), u32> {
    rows.iter()
        .map(|row| ((&*row.score.cluster, row.trial), row.epochs))
        .collect()
}

/// A name that a model of both has.
fn same_name<'a>(a: &'a Experiment, b: &Experiment) -> Option<&'a str> {
    let names: BTreeSet<&str> = b.models.iter().map(|model| &*model.name).collect();
    let mut models = a.models.iter().map(|model| &*model.name);
    models.find(|name| names.contains(name))
}

/// A setting with another value in each study.
type Differing = (String, String, String);

/// The first setting that differs and may not.
fn differing(a: &Experiment, b: &Experiment) -> Option<Differing> {
    let mut plain = common(a).into_iter().zip(common(b));
    plain
        .find_map(|((setting, one), (_, two))| difference(setting.to_owned(), &one, &two))
        .or_else(|| text("corpus", Some(&a.corpus), Some(&b.corpus)))
        .or_else(|| {
            let [one, two] = [a, b].map(|experiment| experiment.background.text.as_ref());
            text("background", one, two)
        })
        .or_else(|| a.train.arms.iter().find_map(|one| arm(one, b)))
        .or_else(|| {
            // A study of one model asks for none.
            let one = json!(a.analysis.threshold.as_ref()?);
            let two = json!(b.analysis.threshold.as_ref()?);
            difference("analysis.threshold".to_owned(), &one, &two)
        })
}

/// Settings that must be the same as they are.
fn common(experiment: &Experiment) -> [(&'static str, Value); 14] {
    let (train, score) = (&experiment.train, &experiment.score);
    let mut analysis = experiment.analysis.clone();
    analysis.threshold = None;
    [
        ("model", json!(kind(experiment))),
        ("seed", json!(experiment.seed)),
        ("documents", json!(experiment.documents)),
        ("background.held_out", json!(experiment.background.held_out)),
        ("buckets", json!(experiment.buckets)),
        ("train.mix", json!(train.mix)),
        ("train.placement", json!(train.placement)),
        ("train.warmup", json!(train.warmup)),
        ("train.optimizer", json!(train.optimizer)),
        ("train.clip", json!(train.clip)),
        ("score.suffix", json!(score.suffix)),
        ("score.prefix", json!(score.prefix)),
        ("score.min_prefix", json!(score.min_prefix)),
        ("analysis", json!(analysis)),
    ]
}

/// Where the weights of a study's models come from; those of a ladder are all of one kind.
fn kind(experiment: &Experiment) -> &'static str {
    let is_random = |model: &Model| matches!(model.weights, Weights::Random(_));
    if experiment.models.iter().any(is_random) {
        "from random weights"
    } else {
        "from published weights"
    }
}

/// Two sources of text. Local ones are compared by their content, since their paths are those of a machine.
fn text(setting: &str, a: Option<&Text>, b: Option<&Text>) -> Option<Differing> {
    let content = |text: Option<&Text>| text.and_then(|text| text.content.clone());
    if let (Some(one), Some(two)) = (content(a), content(b))
        && one == two
    {
        return None;
    }
    difference(setting.to_owned(), &json!(a), &json!(b))
}

/// An arm beside that of the same name.
fn arm(one: &Arm, other: &Experiment) -> Option<Differing> {
    let two = other
        .train
        .arms
        .iter()
        .find(|arm| arm.name() == one.name())?;
    let value = |arm: &Arm| match arm {
        Arm::Standard => json!("standard"),
        Arm::Goldfish(goldfish) => {
            let mut value = json!(goldfish);
            value["name"] = json!(arm.name());
            value
        }
    };
    difference(
        format!("train.arms.{}", one.name()),
        &value(one),
        &value(two),
    )
}

/// The first place where two values differ, with both.
fn difference(place: String, a: &Value, b: &Value) -> Option<Differing> {
    let shown = |value: &Value| match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match (a, b) {
        (Value::Object(one), Value::Object(two)) => {
            let names: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
            let of = |fields: &serde_json::Map<String, Value>, name: &String| {
                fields.get(name).cloned().unwrap_or(Value::Null)
            };
            names.into_iter().find_map(|name| {
                difference(format!("{place}.{name}"), &of(one, name), &of(two, name))
            })
        }
        _ => (a != b).then(|| (place, shown(a), shown(b))),
    }
}
