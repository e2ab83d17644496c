//! Probes: where a document is cut into the prefix that is shown and the suffix that is expected.
//!
//! The suffix is the last S ids of the cut document, sliced from the ids of the whole text and
//! never tokenised on its own.
//!
//! ```
//! use axmem_eval::{Prefix, Probe};
//! let (document, cluster) = ("12".to_owned(), "12".to_owned());
//! let probe = Probe { document, cluster, ids: vec![0, 5, 6, 7, 8] };
//! let cut = probe.cut(2, Prefix::Tokens(1), 1, Some(0))?;
//! assert_eq!((cut.prefix(), cut.suffix()), (&[0, 6][..], &[7, 8][..]));
//! # Ok::<(), axmem_eval::Error>(())
//! ```

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// One document to be probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The document's id.
    pub document: String,
    /// The cluster it belongs to, the unit of every statistic.
    pub cluster: String,
    /// The ids of the cut document, BOS included where the policy adds one.
    pub ids: Vec<u32>,
}

/// How much of the document before the suffix is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prefix {
    /// Everything before the suffix.
    All,
    /// The given number of ids directly before the suffix, after one BOS where the policy adds one.
    Tokens(usize),
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Tokens(tokens) => write!(f, "{tokens}"),
        }
    }
}

impl FromStr for Prefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "all" {
            return Ok(Self::All);
        }
        match text.parse() {
            Ok(tokens) if tokens > 0 => Ok(Self::Tokens(tokens)),
            _ => Err(Error::setting(
                "prefix",
                format!("expected `all` or a number of ids of at least 1, got `{text}`"),
            )),
        }
    }
}

/// A document cut for one pass: `ids[..prefix]` is shown, `ids[prefix..]` is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Prefix and suffix in order; positions count from 0.
    pub ids: Vec<u32>,
    /// Number of ids shown, BOS included.
    pub prefix: usize,
}

impl Cut {
    /// The ids that are shown.
    pub fn prefix(&self) -> &[u32] {
        &self.ids[..self.prefix]
    }

    /// The ids that are expected.
    pub fn suffix(&self) -> &[u32] {
        &self.ids[self.prefix..]
    }
}

impl Probe {
    /// Cuts the document for a suffix of `suffix` ids.
    ///
    /// Prefix `all` must leave at least `min_prefix` ids (BOS included) before the suffix; prefix P
    /// must find P ids of text before it. A BOS at the head of the document is not text, so a
    /// prefix never holds two.
    ///
    /// # Errors
    /// The document is too short: the message names it and the numbers.
    pub fn cut(
        &self,
        suffix: usize,
        prefix: Prefix,
        min_prefix: usize,
        bos: Option<u32>,
    ) -> Result<Cut> {
        let length = self.ids.len();
        let Some(before) = length.checked_sub(suffix) else {
            return Err(Error::document(
                &self.document,
                format!(
                    "a suffix of {suffix} ids does not fit in its {length} ids; shorten `score.suffix` or lengthen `documents.tokens`"
                ),
            ));
        };
        match prefix {
            Prefix::All => {
                // A prediction needs at least one id before it, whatever the setting.
                let needed = min_prefix.max(1);
                if before < needed {
                    return Err(Error::document(
                        &self.document,
                        format!(
                            "its {length} ids leave {before} before a suffix of {suffix}, and `score.min_prefix` asks for {needed}"
                        ),
                    ));
                }
                Ok(Cut {
                    ids: self.ids.clone(),
                    prefix: before,
                })
            }
            Prefix::Tokens(tokens) => {
                let head = usize::from(bos.is_some() && self.ids.first() == bos.as_ref());
                let text = before.saturating_sub(head);
                if tokens == 0 || text < tokens {
                    return Err(Error::document(
                        &self.document,
                        format!(
                            "a prefix of {tokens} ids was asked for, and {text} ids of text stand before its suffix of {suffix} (of {length} ids)"
                        ),
                    ));
                }
                let mut ids = Vec::with_capacity(1 + tokens + suffix);
                ids.extend(bos);
                ids.extend_from_slice(&self.ids[before - tokens..]);
                Ok(Cut {
                    prefix: ids.len() - suffix,
                    ids,
                })
            }
        }
    }
}
