//! `axmem bench step`: what a training step of an experiment takes, on its grid, without its text.

use std::iter;

use anyhow::Result;
use axmem_trainer::products::Products;
use axmem_trainer::random::Stream;
use axmem_trainer::{Grid, Llama, ModelConfig, Rank, Row, StepRecord, TrainConfig, Trainer};
use serde_json::{Value, json};

use super::median;
use crate::audit::Subject;
use crate::certify;
use crate::events::{Events, print};
use crate::experiment::{Arm, Experiment, Model, Weights};
use crate::only::Only;
use crate::plan;
use crate::ranks::Ranks;
use crate::stages::engine;
use crate::store::{self, Store};

/// What is measured.
#[derive(Debug)]
pub struct Request {
    /// The experiment; of its text only the length and number of rows count.
    pub experiment: Experiment,
    /// The store, in which fetched models are kept.
    pub store: Store,
    /// The model and the arm; all if not named.
    pub only: Only,
    /// Steps before those that count.
    pub warm: usize,
    /// Steps that count.
    pub steps: usize,
    /// One JSON object a line.
    pub json: bool,
}

/// Measures every chosen model with every chosen arm, one after another. Every process of a run calls it; the first prints.
///
/// # Errors
/// A part that the study does not have, published weights that can't be had, and those of training.
pub fn run(request: &Request, ranks: &Ranks, events: &Events) -> Result<()> {
    let experiment = &request.experiment;
    request.only.check(experiment)?;
    for (index, model) in experiment.models.iter().enumerate() {
        for arm in &experiment.train.arms {
            let subject = plan::Subject {
                model: Some(index),
                arm: Some(arm.name().to_owned()),
                ..plan::Subject::default()
            };
            if request.only.takes(experiment, &subject) {
                measure(request, model, arm, ranks, events)?;
            }
        }
    }
    Ok(())
}

/// What the first rank saw of the steps that count.
struct Steps {
    config: ModelConfig,
    records: Vec<StepRecord>,
    /// Seconds of the step's matrix products alone, before and after the steps; none on several ranks or with Goldfish.
    products: Vec<f64>,
    /// Most bytes that the process held in a step.
    peak_bytes: u64,
}

fn measure(
    request: &Request,
    model: &Model,
    arm: &Arm,
    ranks: &Ranks,
    events: &Events,
) -> Result<()> {
    let experiment = &request.experiment;
    let masks = match arm {
        Arm::Goldfish(goldfish) => Some(engine::goldfish(goldfish)?),
        Arm::Standard => None,
    };
    let train = engine::config(experiment, model, masks);
    let batch = arm.batch(experiment.batch(model));
    let grid = &experiment.layout(Some(model)).grid;
    let published = match &model.weights {
        Weights::Published(published) => {
            let cache = request.store.cache();
            Some(Subject::find(&published.source, &cache, ranks, events)?)
        }
        Weights::Random(_) => None,
    };
    let steps = ranks.run(grid, |rank| {
        let llama = match (&published, &model.weights) {
            (Some(subject), _) => subject.weights.llama(rank)?,
            (None, Weights::Random(shape)) => {
                let vocab = certify::vocabulary(experiment, shape);
                Llama::initialise(&shape.config(vocab), rank, experiment.seed)?
            }
            (None, Weights::Published(_)) => unreachable!("found above"),
        };
        let rows = rows(
            llama.config(),
            batch,
            experiment.documents.tokens,
            experiment.seed,
        );
        steps(rank, llama, &train, &rows, request)
    })?;
    if ranks.is_first() {
        let shape = [batch, experiment.documents.tokens];
        let line = line(
            &steps,
            [&model.name, arm.name()],
            shape,
            &train,
            grid,
            ranks,
        );
        print(&if request.json {
            line.to_string()
        } else {
            sentence(&line)
        });
    }
    Ok(())
}

/// Rows of ids drawn evenly from the vocabulary: arithmetic does not depend on what they are.
fn rows(config: &ModelConfig, batch: usize, tokens: usize, seed: u64) -> Vec<Row> {
    let stream = Stream::new(seed, "axmem bench step");
    let id = |at: usize| (stream.uniform(at as u64) * config.vocab as f64) as u32;
    (0..batch)
        .map(|row| {
            let ids = (row * tokens..(row + 1) * tokens).map(id);
            Row::document(ids.collect(), true)
        })
        .collect()
}

fn steps(
    rank: &Rank,
    llama: Llama,
    train: &TrainConfig,
    rows: &[Row],
    request: &Request,
) -> Result<Steps> {
    let config = llama.config().clone();
    // Goldfish leaves out products of the head, as many as its masks say.
    let is_counted = rank.grid.ranks() == 1 && train.goldfish.is_none();
    let products = is_counted
        .then(|| Products::of_step(&config, rows, train.micro_batch, train.schedule.recompute));
    let alone = || products.as_ref().map(Products::seconds);
    let mut trainer = Trainer::new(rank, llama, train.clone())?;
    // So small that weights stay what they are, whatever the number of steps.
    let rate = 1e-9;
    for _ in 0..request.warm {
        trainer.step(rank, rows, rate)?;
    }
    // Before the products, whose buffers are no part of a step.
    let peak_bytes = store::peak_memory_bytes();
    let before = alone();
    let records: Result<Vec<StepRecord>, _> = iter::repeat_with(|| trainer.step(rank, rows, rate))
        .take(request.steps)
        .collect();
    let records = records?;
    let products = before.into_iter().chain(alone()).collect();
    Ok(Steps {
        config,
        records,
        products,
        peak_bytes,
    })
}

/// What is printed of a model and an arm.
fn line(
    steps: &Steps,
    [model, arm]: [&str; 2],
    [batch, tokens]: [usize; 2],
    train: &TrainConfig,
    grid: &Grid,
    ranks: &Ranks,
) -> Value {
    let of =
        |value: fn(&StepRecord) -> f64| -> Vec<f64> { steps.records.iter().map(value).collect() };
    let seconds = of(|record| record.seconds);
    let step = median(&seconds);
    let per_second = |amount: u64| amount as f64 / step;
    let last = steps.records.last();
    let alone = (!steps.products.is_empty()).then(|| median(&steps.products));
    json!({
        "model": model,
        "arm": arm,
        "parameters": steps.config.parameters(),
        "config": steps.config,
        "grid": grid,
        "back_end": ranks.back_end(),
        "ranks": grid.ranks(),
        "threads": rayon::current_num_threads(),
        "dtype": "f32",
        "rows": batch,
        "micro_batch": train.micro_batch,
        "tokens": tokens,
        "kept_tokens": last.map(|record| record.kept_tokens),
        "schedule": train.schedule,
        "seconds": seconds,
        "median": step,
        "tokens_per_second": per_second((batch * tokens) as u64),
        "flops_per_second": last.map(|record| per_second(record.model_flops)),
        "exposed": {
            "x": median(&of(|record| record.exposed.x)),
            "y": median(&of(|record| record.exposed.y)),
            "z": median(&of(|record| record.exposed.z)),
            "data": median(&of(|record| record.exposed.data)),
        },
        "products": steps.products,
        "products_share": alone.map(|alone| alone / step),
        "pool_peak_bytes": last.map(|record| record.peak_bytes),
        "process_peak_bytes": steps.peak_bytes,
        "version": env!("AXMEM_VERSION"),
    })
}

/// The same in words.
fn sentence(line: &Value) -> String {
    let number = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
    let seconds: Vec<f64> = line["seconds"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = seconds.iter().copied().fold(0.0, f64::max);
    let name = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let ending = if let Some(share) = line["products_share"].as_f64() {
        format!(
            "; its matrix products alone take {:.0} % of that",
            100.0 * share
        )
    } else if line["ranks"] == 1 {
        String::new()
    } else {
        let exposed = ["x", "y", "z", "data"].map(|axis| {
            format!(
                "{axis} {:.4}",
                line["exposed"][axis].as_f64().unwrap_or(f64::NAN)
            )
        });
        format!("; waits for communication (s): {}", exposed.join(", "))
    };
    format!(
        "{} {}: {:.4} s a step (median of {}; {least:.4} to {most:.4}), {:.0} tokens/s, {:.1} GFLOP/s of the model; {} rows of {} \
         ids, {} at a time, {} {}, {} threads; peak {:.2} GiB{ending}",
        name("model"),
        name("arm"),
        number("median"),
        seconds.len(),
        number("tokens_per_second"),
        number("flops_per_second") / 1e9,
        line["rows"],
        line["tokens"],
        line["micro_batch"],
        line["ranks"],
        if line["ranks"] == 1 { "rank" } else { "ranks" },
        line["threads"],
        number("process_peak_bytes") / f64::from(1 << 30),
    )
}
