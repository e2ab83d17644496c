//! The command line: what can be typed, and which part of the plan it runs.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::events::{self, Events, Style};
use crate::experiment;
use crate::plan::Stage;
use crate::run::{self, Request};
use crate::store::Store;

/// Find out when language models memorise their training text, and stop it
#[derive(Debug, Parser)]
#[command(version = env!("AXMEM_VERSION"), max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 2 usage or configuration, 3 input data or a damaged artefact, 4 model or
checkpoint, 5 disk, memory or another resource, 6 a number that is not finite, 7 a rank or a
collective, 130 interrupted.";

const RUN_EXAMPLES: &str = "\
Examples:
  axmem run experiments/quickstart.yaml
  axmem run experiments/quickstart.yaml --set seed=1 --store /scratch/runs
  axmem run experiments/quickstart.yaml --set train.rate.peak=1e-3 --set buckets.size=12
  axmem run experiments/70b.yaml --dry-run

A run that was interrupted goes on where it was; a second run does nothing but print where the
report is. A changed setting repeats exactly what depends on it.";

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
    },
    /// Print the ordered stages of a study with their keys and state; start nothing
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
    /// Write the report of a study; stages that were done are not repeated
    #[command(after_help = "Example:\n  axmem report experiments/quickstart.yaml")]
    Report(Study),
    /// Print the completion script of a shell
    #[command(
        after_help = "Example:\n  axmem completions bash > ~/.local/share/bash-completion/completions/axmem"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
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

impl Study {
    fn request(&self, until: Stage) -> Result<(Request, Events)> {
        let request = Request {
            experiment: experiment::load(&self.file, &self.sets)?,
            store: Store::new(&self.store),
            until,
        };
        Ok((request, Events::new(Style::choose(self.json))))
    }

    fn run(&self, until: Stage) -> Result<()> {
        let (request, events) = self.request(until)?;
        run::run(request, &events)
    }

    fn show(&self) -> Result<()> {
        let (request, _) = self.request(Stage::Report)?;
        run::show(request, self.json)
    }
}

/// Parses the arguments of this process and does what they say.
///
/// # Errors
/// Whatever goes wrong; [`crate::exit::code`] gives its exit code. Wrong arguments end the
/// process with exit code 2.
pub fn run() -> Result<()> {
    match Cli::parse().command {
        Command::Run {
            study,
            dry_run: true,
        }
        | Command::Plan(study) => study.show(),
        Command::Run {
            study,
            dry_run: false,
        }
        | Command::Report(study) => study.run(Stage::Report),
        Command::Bucket(study) => study.run(Stage::Buckets),
        Command::Train(study) => study.run(Stage::Train),
        Command::Score(study) => study.run(Stage::Score),
        Command::Estimate(study) => study.run(Stage::Estimate),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "axmem", &mut script);
            events::print(&String::from_utf8_lossy(&script));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
