//! Records: a score with its place in the experiment, and what is known of a model.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result, Score};

/// When a document was scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Time {
    /// With the weights the experiment starts from.
    Initial,
    /// After the warm-up, before the first treated document.
    Warm,
    /// After training.
    After,
}

impl Time {
    /// The word used in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Warm => "warm",
            Self::After => "after",
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Time {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "initial" => Ok(Self::Initial),
            "warm" => Ok(Self::Warm),
            "after" => Ok(Self::After),
            _ => Err(Error::Records(format!(
                "time `{text}` is not one of initial, warm, after"
            ))),
        }
    }
}

/// One row of the `scores` table.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRow {
    /// Name of the model.
    pub model: String,
    /// Training arm.
    pub arm: String,
    /// Trial, from 0.
    pub trial: u32,
    /// When the weights were scored. Scores that arms share are repeated for each.
    pub time: Time,
    /// The document's level in this trial; 0 is control.
    pub epochs: u32,
    /// The score.
    pub score: Score,
}

/// What is written beside each estimate of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Name, as in the scores.
    pub model: String,
    /// All parameters.
    pub parameters: u64,
    /// Family of models that it belongs to.
    pub family: String,
    /// Name or hash of its tokenizer.
    pub tokenizer: String,
    /// Number format of the weights when scored.
    pub dtype: String,
}
