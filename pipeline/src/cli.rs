//! The command line: what can be typed, and which part of the plan it runs.

mod audit;
mod bench;
mod power;
mod report;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::json;

use crate::certify;
use crate::events::{self, Events, Style};
use crate::experiment::{self, Experiment};
use crate::export::{self, Dtype, Layout};
use crate::only::Only;
use crate::plan::Stage;
use crate::ranks::{self, Ranks};
use crate::rates;
use crate::run::{self, Request};
use crate::show;
use crate::store::Store;
use crate::verify;

/// Find out when language models memorise their training text, and stop it
#[derive(Debug, Parser)]
#[command(version = env!("AXMEM_VERSION"), max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 2 usage or configuration, 3 input data or a damaged artefact, 4 model or
checkpoint, 5 disk, memory or another resource, 6 a number that is not finite or a certificate
that fails, 7 a rank or a collective, 10 an audit's rate above --fail-above, 130 interrupted.";

const RUN_EXAMPLES: &str = "\
Examples:
  axmem run experiments/quickstart.yaml
  axmem run experiments/quickstart.yaml --set seed=1 --store /scratch/runs
  axmem run experiments/quickstart.yaml --set train.rate.peak=1e-3 --set buckets.size=12
  axmem run experiments/70b.yaml --dry-run
  axmem run experiments/ladder-cpu.yaml --only model=20m,trial=0
  axmem run experiments/quickstart.yaml --set matrix.seed=[0,1,2]

A run that was interrupted goes on where it was; a second run does nothing but print where the
report is. A changed setting repeats exactly what depends on it. A file with a `matrix` is several
experiments, run one after another.";

const RATES_EXAMPLES: &str = "\
Example:
  axmem rates experiments/ladder-cpu.yaml --peaks 1e-3,2e-3,4e-3,8e-3

Runs the warm-up of the first trial at every rate; no document of a bucket is trained on. The rate of
the end of training keeps its ratio to the peak. Writes rates.md and rates.json into the folder of the
study in the store, and prints what to put into the experiment file; a study goes on with what the
search trained.";

const CERTIFY_EXAMPLES: &str = "\
Examples:
  axmem certify experiments/quickstart.yaml --set 'grid={x: 2, z: 2}'
  mpirun -n 8 axmem certify experiments/quickstart.yaml --set 'grid={x: 2, y: 2, z: 2}'

Writes certificate.json into the folder of the study in the store, where its report finds it. A
difference above its limit ends with exit code 6.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  axmem export runs/train-v1/KEY --to hf model
  axmem export runs/train-v1/KEY --to hf model --dtype bf16 --shard-mb 2000

RUN is an artefact of the stages weights, warmup or train (`axmem train FILE` prints the folder of
each arm and trial), or a checkpoint. DIR is new or empty, and gets config.json, the weights, and
the tokenizer of the study if it is still in the store.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  axmem verify runs/quickstart
  axmem verify audit --json

DIR is the folder of a study's report in its store, of a joined report, or of an audit. Every file of the artefacts that
it rests on is hashed, and all rates, intervals, tests and figures are made again from the scores,
without a model. Every difference is listed with its file, place and both values, and ends with exit
code 3.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole study: fetch, bucket, score, train, score again, report
    #[command(after_help = RUN_EXAMPLES)]
    Run {
        #[command(flatten)]
        study: Study,
        /// Print the stages and their state; start nothing
        #[arg(long)]
        dry_run: bool,
        /// Train and score a part only, such as model=70b,arm=goldfish,trial=0; a later run of the whole joins it
        #[arg(long, value_name = "PART", conflicts_with = "dry_run")]
        only: Option<Only>,
    },
    /// Print the ordered stages of a study, or of every experiment of a matrix, with their keys and state; start nothing
    #[command(after_help = "Example:\n  axmem plan experiments/70b.yaml")]
    Plan(Study),
    /// Prepare the data: documents, tokens, buckets, background and held-out text
    #[command(after_help = "Example:\n  axmem bucket experiments/quickstart.yaml")]
    Bucket(Study),
    /// Train every arm and trial, with all that training needs
    #[command(after_help = "Example:\n  axmem train experiments/quickstart.yaml")]
    Train(Study),
    /// Score every model before, between and after training, with all that this needs
    #[command(after_help = "Example:\n  axmem score experiments/quickstart.yaml")]
    Score(Study),
    /// Turn scores into rates, intervals and contrasts, with all that this needs
    #[command(after_help = "Example:\n  axmem estimate experiments/quickstart.yaml")]
    Estimate(Study),
    /// Write the report of a study, or one report or figure of several finished studies
    #[command(after_help = report::EXAMPLES)]
    Report(report::Report),
    /// Choose the learning rate of every model by its loss on held-out background text after the warm-up
    #[command(after_help = RATES_EXAMPLES)]
    Rates {
        #[command(flatten)]
        study: Study,
        /// The peak rates to try
        #[arg(long, value_name = "RATE", value_delimiter = ',', required = true)]
        peaks: Vec<f64>,
    },
    /// Find out which effect a study can find, and how many clusters, trials or exposures one needs
    #[command(after_help = power::EXAMPLES)]
    Power(power::Power),
    /// Train a small copy of the model on the grid and on one rank, and compare
    #[command(after_help = CERTIFY_EXAMPLES)]
    Certify {
        #[command(flatten)]
        study: Study,
        /// Steps of each training
        #[arg(long, value_name = "K", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        steps: u64,
    },
    /// Find out which of a set of documents a checkpoint reproduces
    #[command(after_help = audit::EXAMPLES)]
    Audit(Box<audit::Audit>),
    /// Find out whether results are what their records give
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify {
        /// Folder of a study's report, of a joined one, or of an audit
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Print events as JSON, one a line, instead of progress
        #[arg(long)]
        json: bool,
    },
    /// Measure how fast this machine is
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write the weights of a run in the layout of other programs
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(Export),
    /// Print the completion script of a shell
    #[command(
        after_help = "Example:\n  axmem completions bash > ~/.local/share/bash-completion/completions/axmem"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Command {
    /// Whether all processes of a launcher have a part in it.
    fn on_ranks(&self) -> bool {
        match self {
            Self::Run { dry_run, .. } => !dry_run,
            Self::Plan(_)
            | Self::Power(_)
            | Self::Verify { .. }
            | Self::Bench(bench::Bench::Decode(_))
            | Self::Export(_)
            | Self::Completions { .. } => false,
            _ => true,
        }
    }
}

// What every command about a study takes; a doc comment would replace that of the command.
#[derive(Debug, Args)]
struct Study {
    /// The experiment file (YAML)
    file: PathBuf,
    /// Replace a setting of the file; the value is YAML. May be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Folder of the artefact store
    #[arg(long, value_name = "DIR", default_value = "runs")]
    store: PathBuf,
    /// Print events as JSON, one a line, instead of progress
    #[arg(long)]
    json: bool,
}

// What `export` takes; a doc comment would replace that of the command.
#[derive(Debug, Args)]
struct Export {
    /// Folder of an artefact that holds weights, or of a checkpoint
    run: PathBuf,
    /// The layout
    #[arg(long, value_enum, default_value_t)]
    to: Layout,
    /// The folder that is written, new or empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Type of the values
    #[arg(long, value_enum, default_value_t)]
    dtype: Dtype,
    /// Size of one file of weights, at most, in megabytes (10^6 bytes)
    #[arg(long, value_name = "MB", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    shard_mb: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Export {
    fn run(self) -> Result<()> {
        let request = export::Request {
            run: self.run,
            to: self.to,
            folder: self.folder,
            dtype: self.dtype,
            shard_bytes: self.shard_mb.saturating_mul(1_000_000),
        };
        export::run(&request, &Events::new(Style::choose(self.json)))
    }
}

impl Study {
    /// The experiments of the file.
    fn load_all(&self) -> Result<Vec<Experiment>> {
        experiment::load_all(&self.file, &self.sets)
    }

    /// The one experiment of the file.
    fn load(&self) -> Result<Experiment> {
        experiment::load(&self.file, &self.sets).map_err(ranks::refuse)
    }

    /// The experiments one after another; they share the store, so what several need is made once.
    fn run(&self, until: Stage, only: Option<Only>) -> Result<()> {
        let only = only.unwrap_or_default();
        let mut experiments = self
            .load_all()
            .and_then(|all| only.of(all))
            .map_err(ranks::refuse)?;
        let ranks = Ranks::join(
            experiments
                .iter_mut()
                .flat_map(|experiment| only.layouts(experiment)),
        )?;
        let events = Events::new(self.style(&ranks));
        self.agree(&ranks, until.name(), &experiments)
            .and_then(|()| self.run_each(experiments, until, &only, &ranks, &events))
            .map_err(|error| ranks.fail(error))
    }

    fn run_each(
        &self,
        experiments: Vec<Experiment>,
        until: Stage,
        only: &Only,
        ranks: &Ranks,
        events: &Events,
    ) -> Result<()> {
        let of = experiments.len();
        for (index, experiment) in experiments.into_iter().enumerate() {
            let name = experiment.name.clone();
            let request = Request {
                experiment,
                store: Store::new(&self.store),
                until,
                only: only.clone(),
            };
            if of == 1 {
                return run::run(request, ranks, events);
            }
            let number = index + 1;
            let fields = json!({ "name": name, "number": number, "of": of });
            let sentence = format!("experiment {number} of {of}: {name}");
            events.tell("experiment", fields, &sentence);
            run::run(request, ranks, events).with_context(|| format!("experiment {name}"))?;
        }
        Ok(())
    }

    fn rates(&self, peaks: Vec<f64>) -> Result<()> {
        let mut request = rates::Request {
            experiment: self.load()?,
            store: Store::new(&self.store),
            peaks,
        };
        let ranks = Ranks::join(Only::default().layouts(&mut request.experiment))?;
        let events = Events::new(self.style(&ranks));
        self.agree(
            &ranks,
            &format!("rates {:?}", request.peaks),
            std::slice::from_ref(&request.experiment),
        )
        .and_then(|()| rates::run(&request, &ranks, &events))
        .map_err(|error| ranks.fail(error))
    }

    fn certify(&self, steps: u64) -> Result<()> {
        let mut request = certify::Request {
            experiment: self.load()?,
            store: Store::new(&self.store),
            steps,
        };
        // The first model is certified.
        let first = Only::of_model(&request.experiment.models[0].name);
        let ranks = Ranks::join(first.layouts(&mut request.experiment))?;
        let events = Events::new(self.style(&ranks));
        let experiments = std::slice::from_ref(&request.experiment);
        self.agree(&ranks, &format!("certify {steps}"), experiments)
            .and_then(|()| certify::run(&request, &ranks, &events))
            .map_err(|error| ranks.fail(error))
    }

    /// Every process of a launcher must do the same to the same.
    fn agree(&self, ranks: &Ranks, what: &str, experiments: &[Experiment]) -> Result<()> {
        ranks.agree(&json!([
            env!("AXMEM_VERSION"),
            what,
            self.store,
            experiments
        ]))
    }

    /// The first process tells for all.
    fn style(&self, ranks: &Ranks) -> Style {
        if ranks.is_first() {
            Style::choose(self.json)
        } else {
            Style::Silent
        }
    }

    fn show(&self) -> Result<()> {
        let mut experiments = self.load_all()?;
        for experiment in &mut experiments {
            for layout in Only::default().layouts(experiment) {
                layout.fill(ranks::started());
            }
        }
        show::show(experiments, &Store::new(&self.store), self.json)
    }
}

/// Parses the arguments of this process and does what they say.
///
/// # Errors
/// Whatever goes wrong; [`crate::exit::code`] gives its exit code. Wrong arguments end the
/// process with exit code 2.
pub fn run() -> Result<()> {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) if ranks::after_the_first() == 0 => error.exit(),
        Err(error) => std::process::exit(error.exit_code()),
    };
    if ranks::process() > 0 && !command.on_ranks() {
        return Ok(());
    }
    match command {
        Command::Run {
            study,
            dry_run: true,
            only: _,
        }
        | Command::Plan(study) => study.show(),
        Command::Run {
            study,
            dry_run: false,
            only,
        } => study.run(Stage::Report, only),
        Command::Report(report) => report.run(),
        Command::Bucket(study) => study.run(Stage::Buckets, None),
        Command::Train(study) => study.run(Stage::Train, None),
        Command::Score(study) => study.run(Stage::Score, None),
        Command::Estimate(study) => study.run(Stage::Estimate, None),
        Command::Rates { study, peaks } => study.rates(peaks),
        Command::Power(power) => power.run(),
        Command::Certify { study, steps } => study.certify(steps),
        Command::Audit(audit) => audit.run(),
        Command::Verify { folder, json } => verify::run(&folder, &Events::new(Style::choose(json))),
        Command::Bench(bench) => bench.run(),
        Command::Export(export) => export.run(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "axmem", &mut script);
            events::print(&String::from_utf8_lossy(&script));
            Ok(())
        }
    }
}

/// A number of at least 1.
fn counted() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
