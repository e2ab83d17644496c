//! An experiment with every default filled in: what the plan hashes and the stages read.

use std::path::PathBuf;

use axmem_datasets::source::{ModelSource, Source};
use axmem_trainer::{ModelConfig, Recompute};
use serde::{Deserialize, Serialize};

use super::file::{
    Analysis, Arm, Buckets, Checkpoint, Compensate, Documents, Dtype, Goldfish, Optimizer,
    Placement, Prefix, Probes, Rate, Shape, Warmup,
};
use super::grid::Layout;

/// A resolved experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Name of the study.
    pub name: String,
    /// Seed of everything drawn.
    pub seed: u64,
    /// The models: one, or those of a ladder in the order of the file.
    pub models: Vec<Model>,
    /// The tokenizer.
    pub tokenizer: TokenizerChoice,
    /// The probed documents.
    pub corpus: Text,
    /// The background.
    pub background: Background,
    /// What a document is.
    pub documents: Documents,
    /// Buckets and trials.
    pub buckets: Buckets,
    /// The second control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<CreatedAfter>,
    /// Training.
    pub train: Train,
    /// The layout of the ranks.
    pub grid: Layout,
    /// Whether the grid is part of the keys.
    pub strict: bool,
    /// Probes.
    pub score: Score,
    /// The analysis.
    pub analysis: Analysis,
    /// Hash of the grid's certificate in the store, if there is one, filled when the plan is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

impl Experiment {
    /// Rows of a step of a model.
    pub fn batch(&self, model: &Model) -> usize {
        model.batch.unwrap_or(self.train.batch)
    }

    /// Rows of a forward pass of a rank of a model.
    pub fn micro_batch(&self, model: &Model) -> usize {
        model.micro_batch.unwrap_or(self.train.micro_batch)
    }

    /// The layout of the ranks of a model, or of what is about no model.
    pub fn layout<'a>(&'a self, model: Option<&'a Model>) -> &'a Layout {
        model
            .and_then(|model| model.grid.as_ref())
            .unwrap_or(&self.grid)
    }
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Label in tables.
    pub name: String,
    /// Where its initial weights come from.
    #[serde(flatten)]
    pub weights: Weights,
    /// The compute type.
    pub dtype: Dtype,
    /// The learning rate of its training.
    pub rate: Rate,
    /// Rows of a step, if it does not share [`Train::batch`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Rows of a forward pass, if it does not share [`Train::micro_batch`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<usize>,
    /// The layout of its ranks, if it does not share [`Experiment::grid`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<Layout>,
}

/// Where initial weights come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// Random numbers, one set for each trial.
    Random(Shape),
    /// Those of a published model.
    Published(PublishedModel),
}

/// A published model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedModel {
    /// The source with its commit, as [`ModelSource`] spells it.
    pub source: String,
    /// Pinned hash of the one file.
    pub sha256: Option<String>,
    /// Hash of the content of a local model, filled when the plan is made.
    pub content: Option<String>,
}

impl PublishedModel {
    /// The source, parsed again.
    ///
    /// # Errors
    /// Never after [`super::resolve::resolve`], which parsed it.
    pub fn parse(&self) -> axmem_datasets::Result<ModelSource> {
        self.source.parse()
    }

    /// The source, if it is on this machine by its spelling.
    pub fn local(&self) -> Option<ModelSource> {
        let source = self.parse().ok()?;
        matches!(source, ModelSource::Folder(_) | ModelSource::Gguf(_)).then_some(source)
    }
}

/// Where the tokenizer comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerChoice {
    /// Trained on the background.
    Bpe {
        /// Number of ids.
        vocab: usize,
    },
    /// A `tokenizer.json`.
    File {
        /// Its path.
        path: String,
        /// Hash of its content, filled when the plan is made.
        content: Option<String>,
    },
    /// The published model's own.
    Published,
}

/// A source of text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// As typed.
    pub source: String,
    /// The hub's commit.
    pub revision: Option<String>,
    /// Folder of a hub repository.
    pub config: Option<String>,
    /// Pinned hash.
    pub sha256: Option<String>,
    /// Hash of the content of a local source, filled when the plan is made.
    pub content: Option<String>,
}

/// Background and held-out text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// Its source; `None` is the rest of the corpus.
    #[serde(flatten)]
    pub text: Option<Text>,
    /// Rows.
    pub rows: usize,
    /// Held-out documents.
    pub held_out: usize,
}

/// A control of pages created after a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreatedAfter {
    /// The later dump.
    pub corpus: Text,
    /// The older snapshot.
    pub snapshot: Text,
    /// Documents, one of a page.
    pub size: usize,
}

impl CreatedAfter {
    /// Both sources with their fields.
    pub fn texts(&self) -> [(&'static str, &Text); 2] {
        [
            ("created_after.corpus", &self.corpus),
            ("created_after.snapshot", &self.snapshot),
        ]
    }
}

/// Training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// The losses.
    pub arms: Vec<Arm>,
    /// Rows of a step.
    pub batch: usize,
    /// Rows of a forward pass.
    pub micro_batch: usize,
    /// Background rows for each treated row.
    pub mix: u32,
    /// Where the presentations are.
    pub placement: Placement,
    /// The warm-up.
    pub warmup: Warmup,
    /// The learning rate of models that name none.
    pub rate: Rate,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Largest gradient norm.
    pub clip: f64,
    /// Recomputation.
    pub recompute: Recompute,
    /// Checkpoints.
    pub checkpoint: Checkpoint,
    /// Scores in the middle of training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
}

/// Probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Lengths of suffix, ascending.
    pub suffix: Vec<usize>,
    /// Prefixes.
    pub prefix: Vec<Prefix>,
    /// Shortest prefix.
    pub min_prefix: usize,
    /// Whether documents are decoded freely too.
    pub generate: bool,
    /// Documents scored at a time.
    pub batch: usize,
}

impl Score {
    /// The prefix that the report is about: all that stands before the suffix if it is listed, else the first.
    pub fn primary_prefix(&self) -> Prefix {
        let all = self
            .prefix
            .iter()
            .find(|prefix| matches!(prefix, Prefix::All));
        all.or(self.prefix.first()).copied().unwrap_or(Prefix::All)
    }
}

impl Text {
    /// The source, parsed again from what was typed.
    ///
    /// # Errors
    /// Never after [`super::resolve::resolve`], which parsed it.
    pub fn parse(&self) -> axmem_datasets::Result<Source> {
        self.source.parse()
    }

    /// The path of a local source.
    pub fn local(&self) -> Option<PathBuf> {
        match self.parse() {
            Ok(Source::Local(path)) => Some(path),
            _ => None,
        }
    }
}

impl Shape {
    /// The model of this shape with a row for each of `vocab` ids.
    pub fn config(&self, vocab: usize) -> ModelConfig {
        ModelConfig {
            vocab,
            hidden: self.hidden,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.hidden / self.heads,
            ffn: self.ffn,
            max_positions: self.max_positions,
            rope_theta: self.rope_theta,
            norm_eps: self.norm_eps,
            tied: self.tied,
            qkv_bias: false,
            output_bias: false,
            rope_scaling: None,
        }
    }
}

impl Goldfish {
    /// k / (k - 1), by which the dropped targets are made up for.
    pub fn factor(&self) -> f64 {
        f64::from(self.k) / f64::from(self.k - 1)
    }
}

impl Arm {
    /// Factor of the presentations of this arm.
    pub fn presentations_factor(&self) -> f64 {
        match self {
            Self::Goldfish(goldfish) if goldfish.compensate == Compensate::Presentations => {
                goldfish.factor()
            }
            _ => 1.0,
        }
    }

    /// Rows of a treated step of this arm.
    pub fn batch(&self, batch: usize) -> usize {
        match self {
            Self::Goldfish(goldfish) if goldfish.compensate == Compensate::Batch => {
                (batch as f64 * goldfish.factor()).round() as usize
            }
            _ => batch,
        }
    }
}
