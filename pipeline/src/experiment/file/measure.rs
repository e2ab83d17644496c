//! The keys below `score` and `analysis`: what is measured, and how it is analysed.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

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
    /// What is asked of a ladder.
    pub threshold: Option<ThresholdFile>,
}

impl Default for AnalysisFile {
    fn default() -> Self {
        Self {
            primary: PrimaryFile::default(),
            level: 0.95,
            margin: 0.05,
            resamples: 10_000,
            threshold: None,
        }
    }
}

/// `analysis.threshold`: from which size on is the rate reached at these exposures?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThresholdFile {
    /// Share of documents gained.
    pub rate: f64,
    /// Exposures.
    pub exposures: u32,
}

impl Default for ThresholdFile {
    fn default() -> Self {
        Self {
            rate: 0.05,
            exposures: 1,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The primary comparison.
    pub primary: Primary,
    /// Confidence level.
    pub level: f64,
    /// Margin of equivalence.
    pub margin: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// The question of a ladder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ThresholdFile>,
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
