//! The keys below `train`.

use axmem_trainer::Recompute;
use serde::{Deserialize, Serialize};

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
    /// Scores in the middle of training.
    #[serde(default)]
    pub probes: Option<Probes>,
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

/// `train.probes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Steps between scores of all documents.
    pub every: u32,
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
