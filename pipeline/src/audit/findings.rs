//! What an audit found, ready to be shown: numbers and texts, nothing that is still to be computed.

use axmem_eval::estimate::{Contrast, Estimate, Overlap};
use serde::{Deserialize, Serialize};

/// The whole of an audit.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// Version of the program.
    pub version: String,
    /// The command, as it can be typed again.
    pub command: String,
    /// The audited model.
    pub model: ModelFacts,
    /// The model of `--baseline`.
    pub baseline: Option<ModelFacts>,
    /// The tokenizer.
    pub tokenizer: TokenizerFacts,
    /// The audited documents.
    pub documents: TextFacts,
    /// The documents of `--control`.
    pub control: Option<TextFacts>,
    /// How it was measured.
    pub settings: Settings,
    /// Rates by set, model, suffix and prefix; one row per method of interval.
    #[serde(skip)]
    pub rates: Vec<Rate>,
    /// Rates of the documents minus those of the control, by model, suffix and prefix.
    pub differences: Vec<Difference>,
    /// Changes from the baseline to the model: `paired` (each set) and `did` (documents against control).
    #[serde(skip)]
    pub contrasts: Vec<Contrast>,
    /// Kept, gained, lost and never, from the baseline to the model.
    #[serde(skip)]
    pub overlap: Vec<Overlap>,
    /// Every scored document of every set under the model, for the distributions; the longest suffix under the first prefix.
    #[serde(skip)]
    pub scored: Vec<Scored>,
    /// Documents shown with their texts: those that are reproduced, then the nearest misses.
    #[serde(skip)]
    pub shown: Vec<Shown>,
    /// Ids of all documents (not of the control) that are reproduced.
    #[serde(skip)]
    pub reproduced: Vec<String>,
    /// Documents that are reproduced but not shown, for there are many.
    pub not_shown: usize,
    /// Wall-clock seconds of scoring.
    pub seconds: f64,
}

/// A model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Label.
    pub name: String,
    /// As typed.
    pub source: String,
    /// The hub's commit, if it is from there.
    pub revision: Option<String>,
    /// Number of parameters.
    pub parameters: u64,
    /// Layers, hidden size and so on, in one line.
    pub shape: String,
    /// Types of the stored values.
    pub stored: String,
    /// Name and SHA-256 of each file that is used; of a run, of the index of its checkpoint, which holds the hashes of all
    /// values.
    pub files: Vec<(String, String)>,
    /// What a reader should know of how it was read.
    pub notes: Vec<String>,
    /// τ: margins below it are fragile.
    pub tolerance: f32,
}

/// The tokenizer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenizerFacts {
    /// Where it is from.
    pub source: String,
    /// SHA-256 of its `tokenizer.json`.
    pub sha256: String,
    /// Number of ids.
    pub ids: usize,
    /// `always` or `never`, and why, such as `always (the tokenizer's own policy)`.
    pub bos: String,
}

/// A set of documents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TextFacts {
    /// The file or folder.
    pub path: String,
    /// SHA-256 of its content.
    pub sha256: String,
    /// Documents in it (after `--limit`).
    pub read: usize,
    /// Documents scored.
    pub scored: usize,
    /// Their clusters.
    pub clusters: usize,
    /// Documents cut to their first ids.
    pub cut: usize,
    /// Documents that were not scored, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Notes of the reader.
    pub notes: Vec<String>,
}

/// Settings of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Suffix lengths S.
    pub suffix: Vec<usize>,
    /// Prefix settings.
    pub prefix: Vec<String>,
    /// Fewest ids before a suffix under prefix `all`.
    pub min_prefix: usize,
    /// Documents are cut to so many ids.
    pub tokens: usize,
    /// Documents read at once.
    pub batch: usize,
    /// The layout of the ranks, such as `1x1x1x1`.
    pub grid: String,
    /// Type in which is computed.
    pub dtype: String,
    /// Confidence level of intervals.
    pub level: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of these.
    pub seed: u64,
    /// The rate of `--fail-above`.
    pub fail_above: Option<f64>,
    /// Most words of true text that the report shows of a document; `None` is all.
    pub words: Option<usize>,
}

/// A rate of exact match.
#[derive(Debug)]
pub struct Rate {
    /// `documents` or `control`.
    pub set: &'static str,
    /// `model` or `baseline`.
    pub model: &'static str,
    /// The rate under one method of interval.
    pub estimate: Estimate,
}

/// Rate of the documents minus rate of the control.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// `model` or `baseline`.
    pub model: &'static str,
    /// Suffix length S.
    pub suffix: u32,
    /// Prefix setting.
    pub prefix: String,
    /// The difference.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Two-sided p of a permutation of clusters over the two sets.
    pub p: f64,
    /// Smallest difference that would be found with power 0.8.
    pub detectable: f64,
}

/// One scored document in numbers.
#[derive(Clone, Debug)]
pub struct Scored {
    /// `documents` or `control`.
    pub set: &'static str,
    /// Whether all ids of the longest suffix are reproduced.
    pub exact: bool,
    /// Ids reproduced before the first that differs.
    pub matched_prefix: u32,
    /// Log-probability of the suffix at temperature 1, in nats: log `p_z`.
    pub log_probability: f64,
}

/// One document with its text.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Shown {
    /// `documents` or `control`.
    pub set: &'static str,
    /// The document's id.
    pub document: String,
    /// Its cluster.
    pub cluster: String,
    /// Whether the suffix is reproduced.
    pub exact: bool,
    /// Whether rounding could decide that.
    pub fragile: bool,
    /// Ids reproduced before the first that differs.
    pub matched_prefix: u32,
    /// Length of the suffix, in ids.
    pub suffix: u32,
    /// Log-probability of the suffix at temperature 1, in nats.
    pub log_probability: f64,
    /// Probability of the suffix at temperature 1.
    pub p_z: f64,
    /// The same among the 40 likeliest ids of each step.
    pub p_z_top_k: f64,
    /// Samples at temperature 1 until the suffix comes with probability 1/2.
    pub queries: f64,
    /// Levenshtein distance of ids between suffix and generation.
    pub edit_distance: Option<u32>,
    /// ROUGE-L (F1) of Unicode words between suffix and generation.
    pub rouge_l_words: Option<f64>,
    /// The text that the model has seen before the suffix, or its end.
    pub prefix_text: String,
    /// Whether it begins earlier than what is shown, for [`Settings::words`].
    pub prefix_elided: bool,
    /// Whether the suffix and the generated text begin earlier than what is shown, for [`Settings::words`].
    pub same_elided: bool,
    /// The true suffix, up to the first id that differs; the whole of it if none does.
    pub target_same: String,
    /// The true suffix from there on.
    pub target_rest: String,
    /// What greedy decoding gives, up to the first id that differs.
    pub generated_same: String,
    /// What it gives from there on.
    pub generated_rest: String,
    /// Whether the true suffix goes on beyond what is shown, for [`Settings::words`].
    pub target_elided: bool,
    /// Whether the generated text does.
    pub generated_elided: bool,
}
