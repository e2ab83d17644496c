//! What is typed after `axmem bench`.

use std::path::PathBuf;

use anyhow::Result;
use axmem_trainer::launch::Threads;
use clap::{Args, Subcommand};

use super::{Study, counted};
use crate::bench::{decode, step};
use crate::events::{Events, Style};
use crate::only::Only;
use crate::ranks::Ranks;
use crate::store::Store;

const DECODE_EXAMPLES: &str = "\
Example:
  axmem bench decode --model model.gguf --documents articles.jsonl --limit 200 --batch 1,16

Every repeat runs on all threads of one rank; RAYON_NUM_THREADS sets how many. Loading and a first
pass over one batch are not counted.";

const STEP_EXAMPLES: &str = "\
Examples:
  axmem bench step experiments/ladder-cpu.yaml --only model=9.6m,arm=standard
  axmem bench step experiments/ladder-cpu.yaml --set 'grid={x: 2}' --steps 20 --json
  mpirun -n 8 axmem bench step experiments/70b.yaml --set 'grid={x: 2, y: 2, z: 2}'

Trains on ids drawn by chance, with the sizes, batch, grid and schedule of the experiment; no text is fetched, nothing is
kept. Every step is listed in the JSON, with seconds that the first rank waited for communication. On one rank the
step's matrix products are also timed alone, before and after the steps.";

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    /// Documents a second, scored teacher-forced and decoded free-running
    #[command(after_help = DECODE_EXAMPLES)]
    Decode(Decode),
    /// Seconds, tokens and operations of a training step of an experiment
    #[command(after_help = STEP_EXAMPLES)]
    Step(Step),
}

impl Bench {
    pub(super) fn run(self) -> Result<()> {
        match self {
            Self::Decode(decode) => decode.run(),
            Self::Step(step) => step.run(),
        }
    }
}

// A doc comment would replace that of the command.
#[derive(Debug, Args)]
pub(super) struct Decode {
    /// The model, as `axmem audit` takes it
    #[arg(long)]
    model: String,
    /// The documents, as `axmem audit` takes them; those with too few ids are left out
    #[arg(long, value_name = "FILE|DIR")]
    documents: PathBuf,
    /// Only the first N documents
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Ids shown of each document
    #[arg(long, value_name = "N", default_value_t = 206, value_parser = counted())]
    prefix: u64,
    /// Ids scored and decoded
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = counted())]
    suffix: u64,
    /// Documents read at once, a measurement for each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 16], value_parser = counted())]
    batch: Vec<u64>,
    /// Measurements of each kind
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = counted())]
    repeats: u64,
    /// Folder of the artefact store, in which fetched models are kept
    #[arg(long, value_name = "DIR", default_value = "runs")]
    store: PathBuf,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Decode {
    fn run(self) -> Result<()> {
        let request = decode::Request {
            model: self.model,
            documents: self.documents,
            limit: self.limit,
            prefix: self.prefix as usize,
            suffix: self.suffix as usize,
            batch: self.batch.into_iter().map(|batch| batch as usize).collect(),
            repeats: self.repeats as usize,
            cache: Store::new(self.store).cache(),
            json: self.json,
        };
        let ranks = Ranks::Threads(Threads::default());
        decode::run(&request, &ranks, &Events::new(Style::choose(self.json)))
    }
}

// A doc comment would replace that of the command.
#[derive(Debug, Args)]
pub(super) struct Step {
    #[command(flatten)]
    study: Study,
    /// Measure a part only, such as model=70b,arm=standard
    #[arg(long, value_name = "PART")]
    only: Option<Only>,
    /// Steps before those that count
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = counted())]
    warm: u64,
    /// Steps that count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = counted())]
    steps: u64,
}

impl Step {
    fn run(self) -> Result<()> {
        let only = self.only.unwrap_or_default();
        let mut request = step::Request {
            experiment: self.study.load()?,
            store: Store::new(&self.study.store),
            only,
            warm: self.warm as usize,
            steps: self.steps as usize,
            json: self.study.json,
        };
        let ranks = Ranks::join(request.only.layouts(&mut request.experiment))?;
        let events = Events::new(self.study.style(&ranks));
        let what = format!(
            "bench step {:?} {} {}",
            request.only, request.warm, request.steps
        );
        let experiments = std::slice::from_ref(&request.experiment);
        self.study
            .agree(&ranks, &what, experiments)
            .and_then(|()| step::run(&request, &ranks, &events))
            .map_err(|error| ranks.fail(error))
    }
}
