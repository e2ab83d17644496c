//! What is typed after `axmem power`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::experiment;
use crate::power::{self, Request};

pub(super) const EXAMPLES: &str = "\
Examples:
  axmem power experiments/quickstart.yaml
  axmem power experiments/70b.yaml --effect 0.03,0.05,0.1
  axmem power experiments/70b.yaml --effect 0.05 --discordance 0.1 --set buckets.size=400

Starts nothing. An effect is the share of clusters (articles with their near-copies) whose text is
reproduced after training and would not have been without. Clusters that change by themselves, in
the control for instance, are the discordance. Smallest effects and sizes come from a closed form;
simulated tests check the smallest effect.";

// A doc comment would replace that of the command.
#[derive(Debug, Args)]
pub(super) struct Power {
    /// The experiment file (YAML)
    file: PathBuf,
    /// Replace a setting of the file; the value is YAML. May be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Effects of interest, shares of clusters; prints what each needs
    #[arg(long = "effect", value_name = "SHARE", value_delimiter = ',')]
    effects: Vec<f64>,
    /// Share of clusters that change between two times without an effect
    #[arg(long, value_name = "SHARE", default_value_t = 0.02)]
    discordance: f64,
    /// Probability of finding an effect
    #[arg(long = "power", value_name = "SHARE", default_value_t = 0.8)]
    target: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Power {
    pub(super) fn run(self) -> Result<()> {
        power::run(&Request {
            experiment: experiment::load(&self.file, &self.sets)?,
            effects: self.effects,
            discordance: self.discordance,
            power: self.target,
            json: self.json,
        })
    }
}
