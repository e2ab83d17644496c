//! `axmem report`: of a study, or of several finished ones.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::Study;
use crate::events::{Events, Style};
use crate::exit::Failure;
use crate::merge;
use crate::plan::Stage;
use crate::ranks;

pub(super) const EXAMPLES: &str = "\
Examples:
  axmem report experiments/quickstart.yaml
  axmem report runs/tinyllama-1b runs/llama2-7b --out joined
  axmem report runs/ladder-cpu --figure threshold --out figures

Studies are joined if they have the same documents in the same buckets, the same training but for
rates, batches and grids, and the same suffixes, prefixes and analysis; else the setting is named.
With folders nothing is trained or scored. axmem verify makes a joined report again.";

// A doc comment would replace that of the command.
#[derive(Debug, Args)]
pub(super) struct Report {
    /// The experiment file (YAML), or folders of the reports of finished studies
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Only one figure of finished studies, as SVG and PNG
    #[arg(long, value_enum, requires = "out")]
    figure: Option<merge::Figure>,
    /// Folder of the report or figure of finished studies
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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

impl Report {
    pub(super) fn run(self) -> Result<()> {
        if let ([file], None) = (self.paths.as_slice(), &self.out)
            && !file.is_dir()
        {
            let study = Study {
                file: file.clone(),
                sets: self.sets,
                store: self.store,
                json: self.json,
            };
            return study.run(Stage::Report, None);
        }
        let Some(out) = self.out else {
            let sentence =
                "several studies, or the folder of one, need --out DIR for what is written";
            return Err(ranks::refuse(Failure::usage(sentence)));
        };
        if ranks::process() > 0 {
            return Ok(());
        }
        let request = merge::Request {
            folders: self.paths,
            figure: self.figure,
            out,
        };
        merge::run(&request, &Events::new(Style::choose(self.json)))
    }
}
