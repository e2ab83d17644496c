//! `axmem certify`: trains a small copy of a study's model on the study's grid and on one rank, and
//! writes the largest differences.
//!
//! What is compared, and with which limits, is the trainer's; here is what is asked for, printed
//! and kept.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_trainer::certify::{self, Certificate, Study};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::events::{Events, print};
use crate::exit::{Failure, Kind};
use crate::experiment::{Arm, Experiment, Shape, TokenizerChoice, Weights};
use crate::ranks::Ranks;
use crate::stages::engine;
use crate::store::{self, Store};

/// Ids of the small model where the study's own number isn't known before its tokenizer is.
const VOCABULARY: usize = 331;

/// What is to be certified.
#[derive(Debug)]
pub struct Request {
    /// The experiment.
    pub experiment: Experiment,
    /// The store.
    pub store: Store,
    /// Steps of each training.
    pub steps: u64,
}

/// What `certificate.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Whether every comparison is within its limit.
    pub passed: bool,
    /// `thread` or `mpi`.
    pub back_end: String,
    /// Number of processes.
    pub processes: usize,
    /// Version of the program.
    pub program: String,
    /// Machine of the first rank.
    pub host: String,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// The comparisons.
    #[serde(flatten)]
    pub certificate: Certificate,
}

/// Where the certificate of an experiment is.
pub fn path(store: &Store, experiment: &Experiment) -> PathBuf {
    store.published(&experiment.name).join("certificate.json")
}

/// Certifies a grid. Every process of a run calls it; the first prints and writes.
///
/// # Errors
/// A difference above its limit (exit code 6), after the certificate is written; those of training.
pub fn run(request: &Request, ranks: &Ranks, events: &Events) -> Result<()> {
    let experiment = &request.experiment;
    let study = study(experiment, request.steps)?;
    let grid = &experiment.layout(experiment.models.first()).grid;
    let started = Instant::now();
    let trained = ranks.run(grid, |rank| Ok(certify::train(rank, &study)?))?;
    ranks.lead(|| {
        let trained = trained.context("the first rank has what the grid trained")?;
        let certificate = trained.compare(&study)?;
        let record = Record {
            passed: certificate.passed(),
            back_end: ranks.back_end().to_owned(),
            processes: ranks.processes(),
            program: env!("AXMEM_VERSION").to_owned(),
            host: store::host(),
            seconds: started.elapsed().as_secs_f64(),
            certificate,
        };
        let path = path(&request.store, experiment);
        files::create_dir_all(request.store.published(&experiment.name))?;
        let text = serde_json::to_string_pretty(&record).context("the certificate")?;
        files::write_atomic(&path, text.as_bytes())?;
        if events.is_json() {
            let fields = json!({ "certificate": record, "file": path });
            events.tell("certificate", fields, "");
        } else {
            print(&table(&record));
        }
        if record.passed {
            let sentence = format!("the certificate is {}", path.display());
            events.tell("finished", json!({ "certificate": path }), &sentence);
            return Ok(());
        }
        let broken = record
            .certificate
            .checks
            .iter()
            .filter(|check| !check.passed);
        let broken: Vec<&str> = broken.map(|check| check.name.as_str()).collect();
        Err(Failure::new(
            Kind::Numerical,
            format!(
                "grid {grid} does not give what one rank gives: {}; see {}",
                broken.join("; "),
                path.display()
            ),
        )
        .into())
    })
}

/// The model, and the settings of the arm that masks most.
fn study(experiment: &Experiment, steps: u64) -> Result<Study> {
    let model = &experiment.models[0];
    let Weights::Random(shape) = &model.weights else {
        return Err(Failure::model(
            "the sizes of published weights are not known to this version of axmem; certify a study with \
             model.random of the same heads and kv_heads",
        ));
    };
    let vocab = vocabulary(experiment, shape);
    let masks = experiment.train.arms.iter().find_map(|arm| match arm {
        Arm::Goldfish(goldfish) => Some(engine::goldfish(goldfish)),
        Arm::Standard => None,
    });
    // The study's rise and fall, in so many steps.
    let rise = u64::from(experiment.train.warmup.steps).min(steps / 4);
    let mut rate = engine::rate(&experiment.train, model, 0);
    (rate.warmup_steps, rate.decay_steps) = (rise, steps - rise);
    Ok(Study {
        model: shape.config(vocab),
        train: engine::config(experiment, model, masks.transpose()?),
        rate,
        steps,
    })
}

/// Ids of a model with random weights, as far as they are known before the tokenizer is made.
pub(crate) fn vocabulary(experiment: &Experiment, shape: &Shape) -> usize {
    match (shape.vocab, &experiment.tokenizer) {
        (Some(vocab), _) => vocab,
        (None, TokenizerChoice::Bpe { vocab }) => *vocab,
        (None, _) => VOCABULARY,
    }
}

/// The comparisons as lines of equal columns.
fn table(record: &Record) -> String {
    let certificate = &record.certificate;
    let (grid, model) = (&certificate.grid, &certificate.model);
    let mut lines = vec![format!(
        "{grid} (x, y, z, data) on {} against one rank: {} steps of {} rows; blocks {}, hidden {}, ffn {}, heads {}, \
         key-value heads {}, ids {}",
        record.back_end,
        certificate.steps,
        certificate.rows,
        model.layers,
        model.hidden,
        model.ffn,
        model.heads,
        model.kv_heads,
        model.vocab
    )];
    let checks = &certificate.checks;
    let width = checks.iter().map(|check| check.name.len()).max();
    let width = width.unwrap_or(0);
    for check in checks {
        let number = |number: f64| match number {
            0.0 => "0".to_owned(),
            number => format!("{number:.1e}"),
        };
        let (value, limit) = (number(check.value), number(check.limit));
        let outcome = if check.passed { "pass" } else { "FAIL" };
        let line = format!(
            "{outcome}  {:<width$}  {value:<7} limit {limit:<7} {}",
            check.name, check.place
        );
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}
