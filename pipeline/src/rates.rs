//! `axmem rates`: a learning rate for each model, chosen by its loss on held-out text after the warm-up.
//!
//! The search sees background text alone, no document of a bucket: it runs the study's own stages until the score
//! before treatment, of the first trial, once for each rate. What it trains at the chosen rate the study goes on with.

use std::cmp::Ordering;
use std::fs;

use anyhow::{Context as _, Result};
use axmem_datasets::{files, table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::events::Events;
use crate::exit::{self, Failure, Kind};
use crate::experiment::{Experiment, Time};
use crate::plan::{Node, Plan, Stage};
use crate::ranks::Ranks;
use crate::run;
use crate::stages::training::Validation;
use crate::store::Store;

/// What is to be searched.
#[derive(Debug)]
pub struct Request {
    /// The experiment.
    pub experiment: Experiment,
    /// The store.
    pub store: Store,
    /// The peaks to try for every model.
    pub peaks: Vec<f64>,
}

/// One rate of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tried {
    model: String,
    peak: f64,
    #[serde(rename = "final")]
    last: f64,
    /// Mean loss on held-out text, nats per token; none if the training diverged.
    #[serde(rename = "held_out_loss")]
    loss: Option<f64>,
}

/// The file `rates.json`.
#[derive(Serialize, Deserialize)]
struct Search {
    version: String,
    /// Without the rates.
    experiment: Value,
    tried: Vec<Tried>,
}

/// Tries every rate for every model and writes `rates.md` and `rates.json` into the study's folder in the store, with those that
/// an earlier search of the same study tried.
/// Collective, as [`run::run`].
///
/// # Errors
/// A study without warm-up or held-out text, rates that cannot be used, and what stages fail with.
pub fn run(request: &Request, ranks: &Ranks, events: &Events) -> Result<()> {
    let experiment = &request.experiment;
    check(request)?;
    let mut tried = Vec::new();
    for model in &experiment.models {
        for &peak in &request.peaks {
            let mut alone = experiment.clone();
            alone.models = vec![model.clone()];
            let rate = &mut alone.models[0].rate;
            // The shape of the schedule stays.
            rate.last *= peak / rate.peak;
            rate.peak = peak;
            let last = rate.last;
            let made = run::make(&mut alone, &request.store, &before_treatment, ranks, events);
            let loss = match made {
                Ok(made) => Some(ranks.lead(|| held_out(&alone, &request.store, &made.plan))?),
                // Threads end together, processes do not.
                Err(error) if diverged(&error) && ranks.processes() == 1 => None,
                Err(error) => return Err(error),
            };
            tried.push(Tried {
                model: model.name.clone(),
                peak,
                last,
                loss,
            });
        }
    }
    ranks.lead(|| {
        tried.extend(earlier(request, &tried, events));
        let order = |one: &Tried| {
            let model = experiment
                .models
                .iter()
                .position(|model| model.name == one.model);
            (model, one.peak)
        };
        tried.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
        write(request, &tried, events)
    })
}

/// An experiment without what a search is about.
fn without_rates(experiment: &Experiment) -> Value {
    let mut value = json!(experiment);
    if let Some(train) = value["train"].as_object_mut() {
        train.remove("rate");
    }
    for model in value["models"].as_array_mut().into_iter().flatten() {
        if let Some(model) = model.as_object_mut() {
            model.remove("rate");
        }
    }
    value
}

/// What an earlier search of the same study tried and this one did not. One of other settings is replaced, and it is said.
fn earlier(request: &Request, tried: &[Tried], events: &Events) -> Vec<Tried> {
    let path = request
        .store
        .published(&request.experiment.name)
        .join("rates.json");
    let search = fs::read(&path).ok();
    let search: Option<Search> = search.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let search = match search {
        Some(search) if search.experiment != without_rates(&request.experiment) => {
            let path = path.display();
            let sentence = format!(
                "{path} was of other settings and is replaced; what it trained is kept in the store"
            );
            events.tell("replaced", json!({ "record": path.to_string() }), &sentence);
            None
        }
        search => search,
    };
    let is_new = |one: &Tried| {
        let again = |other: &Tried| (&other.model, other.peak) == (&one.model, one.peak);
        !tried.iter().any(again)
    };
    search.map_or_else(Vec::new, |search| {
        search.tried.into_iter().filter(is_new).collect()
    })
}

fn check(request: &Request) -> Result<()> {
    let experiment = &request.experiment;
    if experiment.train.warmup.steps == 0 {
        return Err(Failure::usage(
            "train.warmup.steps is 0: rates are compared by what the warm-up on background text learns",
        ));
    }
    if experiment.background.held_out == 0 {
        return Err(Failure::usage(
            "background.held_out is 0: rates are compared by the loss on held-out text",
        ));
    }
    let mut peaks = request.peaks.clone();
    peaks.sort_by(f64::total_cmp);
    if peaks.iter().any(|peak| !peak.is_finite() || *peak <= 0.0) {
        return Err(Failure::usage("--peaks: a rate is a positive number"));
    }
    if peaks.len() < 2
        || peaks
            .windows(2)
            .any(|pair| pair[0].total_cmp(&pair[1]).is_eq())
    {
        return Err(Failure::usage("--peaks: give at least two different rates"));
    }
    Ok(())
}

/// The score between warm-up and treatment of the first trial.
fn before_treatment(_: &Experiment, node: &Node) -> bool {
    node.stage == Stage::Score
        && node.subject.time == Some(Time::Warm)
        && node.subject.trial.is_none_or(|trial| trial == 0)
}

fn diverged(error: &anyhow::Error) -> bool {
    exit::code(error) == Kind::Numerical as u8
}

/// Mean loss on held-out text, nats per token.
fn held_out(experiment: &Experiment, store: &Store, plan: &Plan) -> Result<f64> {
    let node = plan
        .nodes
        .iter()
        .find(|node| before_treatment(experiment, node))
        .context("a study is scored before treatment")?;
    let rows: Vec<Validation> = table::read(run::folder(store, node).join("validation.parquet"))?;
    let row = rows.first().context("held-out text is scored")?;
    Ok(row.loss)
}

/// The best of a model's rates, and whether a rate outside those tried may be better.
fn best<'a>(tried: &'a [Tried], model: &str) -> Option<(&'a Tried, bool)> {
    let of_model = || tried.iter().filter(|one| one.model == model);
    let loss = |one: &Tried| one.loss.unwrap_or(f64::INFINITY);
    let best = of_model().min_by(|a, b| loss(a).total_cmp(&loss(b)))?;
    best.loss?;
    let inside =
        of_model().any(|one| one.peak < best.peak) && of_model().any(|one| one.peak > best.peak);
    Some((best, !inside))
}

/// Rows of a step: one number, or one for each model.
fn batches(experiment: &Experiment) -> String {
    let models = &experiment.models;
    if models.iter().all(|model| model.batch.is_none()) {
        return experiment.train.batch.to_string();
    }
    let each = models
        .iter()
        .map(|model| format!("{} ({})", experiment.batch(model), model.name));
    each.collect::<Vec<_>>().join(", ")
}

fn write(request: &Request, tried: &[Tried], events: &Events) -> Result<()> {
    let experiment = &request.experiment;
    let mut lines = vec![
        format!(
            "Loss on held-out background text (nats per token) after {} warm-up steps of {} rows, trial 0, seed {}.",
            experiment.train.warmup.steps,
            batches(experiment),
            experiment.seed
        ),
        String::new(),
        "| model | peak rate | held-out loss | |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for one in tried {
        let loss = one
            .loss
            .map_or("diverged".to_owned(), |loss| format!("{loss:.4}"));
        let mark = match best(tried, &one.model) {
            Some((best, true)) if best == one => "chosen; at the edge of the rates tried",
            Some((best, false)) if best == one => "chosen",
            _ => "",
        };
        lines.push(format!(
            "| {} | {} | {loss} | {mark} |",
            one.model, one.peak
        ));
    }
    let folder = request.store.published(&experiment.name);
    files::create_dir_all(&folder)?;
    files::write_atomic(
        folder.join("rates.md"),
        (lines.join("\n") + "\n").as_bytes(),
    )?;
    let search = Search {
        version: env!("AXMEM_VERSION").to_owned(),
        experiment: without_rates(experiment),
        tried: tried.to_vec(),
    };
    let record = json!(search);
    files::write_atomic(
        folder.join("rates.json"),
        format!("{record:#}\n").as_bytes(),
    )?;
    for model in &experiment.models {
        let name = &model.name;
        let sentence = match best(tried, name) {
            None => format!("{name}: every rate diverged; try lower ones"),
            Some((best, at_edge)) => format!(
                "{name}: rate: {{ peak: {}, final: {} }}{}",
                best.peak,
                best.last,
                if at_edge {
                    "   (the lowest loss is at the edge of the rates tried; a rate beyond may be better)"
                } else {
                    ""
                }
            ),
        };
        let chosen = best(tried, name).map(|(best, _)| best.peak);
        let fields = json!({ "model": name, "peak": chosen });
        events.tell("rate", fields, &sentence);
    }
    let path = folder.join("rates.md");
    events.tell(
        "finished",
        json!({ "table": path }),
        &format!("the search is {}", path.display()),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(peak: f64, loss: Option<f64>) -> Tried {
        Tried {
            model: "small".to_owned(),
            peak,
            last: peak / 10.0,
            loss,
        }
    }

    #[test]
    fn the_lowest_loss_is_chosen_and_an_edge_is_told() {
        let all = [
            tried(1e-3, Some(3.0)),
            tried(2e-3, Some(2.5)),
            tried(4e-3, None),
        ];
        let (chosen, at_edge) = best(&all, "small").expect("a rate");
        assert_eq!((chosen.peak, at_edge), (2e-3, false));
        let (chosen, at_edge) = best(&all[..2], "small").expect("a rate");
        assert_eq!((chosen.peak, at_edge), (2e-3, true));
        assert!(best(&all[2..], "small").is_none());
    }
}
