//! One article as the readers give it: text with an identity, before any tokenizer.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Something about a document that a user of its text should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// The wikitext held inline templates (units, pronunciations, foreign words) that were
    /// removed, so that sentences may lack words.
    TemplatesRemoved,
}

impl Flag {
    /// The spelling used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::TemplatesRemoved => "templates_removed",
        }
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Flag {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "templates_removed" => Ok(Self::TemplatesRemoved),
            _ => Err(Error::data(format!("unknown document flag {name:?}"))),
        }
    }
}

/// One article: identity and plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Unique within a corpus, such as the page number of a dump.
    pub id: String,
    /// Title as the source spells it.
    pub title: String,
    /// Where the article can be read, empty if unknown.
    pub url: String,
    /// The text, UTF-8.
    pub text: String,
    /// What a user of the text should know.
    pub flags: Vec<Flag>,
}
