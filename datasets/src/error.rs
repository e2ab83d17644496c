//! The errors of this crate: each says what is wrong, where, and what to do about it.
//!
//! Every module of the crate returns [`Result`]; nothing here prints or exits. [`Error::kind`]
//! names the family of the error, from which the command line takes its exit code.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand for a result whose error is this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The family of an error; the command line maps each to a documented exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A wrong command line or setting (exit code 2).
    Usage,
    /// Input data that cannot be read, fetched or used (exit code 3).
    Data,
    /// A tokenizer or checkpoint that cannot be used (exit code 4).
    Model,
    /// Disk, memory or another resource is exhausted (exit code 5).
    Resources,
    /// A number that is not finite or does not converge (exit code 6).
    Numerical,
    /// A rank or a collective failed (exit code 7).
    Rank,
}

/// What went wrong in reading, fetching or preparing text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that cannot be satisfied; the message names the setting and the remedy.
    #[error("{0}")]
    Usage(String),

    /// A fact about the data that no single place shows, such as too few clusters for the buckets.
    #[error("{0}")]
    Data(String),

    /// Bad input at a known place of a known file.
    #[error("{}{}: {message}", .path.display(), at(.place))]
    Input {
        /// The file.
        path: PathBuf,
        /// Where in the file (line, byte, page, column, row), empty for the file as a whole.
        place: String,
        /// What is wrong and what to do.
        message: String,
    },

    /// The operating system refused a read.
    #[error("cannot {action} {}: {source}", .path.display())]
    Read {
        /// What was tried, as a verb: "open", "read", "list".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// The operating system refused a write.
    #[error("cannot {action} {}: {source}{}", .path.display(), free_space(.source))]
    Write {
        /// What was tried, as a verb: "write", "create", "rename".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// A package index, a model hub or a tool that talks to them gave no file.
    #[error("cannot fetch {source_name}: {message}")]
    Fetch {
        /// The source as the experiment file spells it.
        source_name: String,
        /// What failed and how to get the file another way.
        message: String,
    },

    /// A file whose content is not the pinned one.
    #[error(
        "{file} has sha256 {found}, expected {expected}; delete a damaged copy and fetch again, \
         or correct the pinned hash if the new content is wanted"
    )]
    Hash {
        /// The file, as a path or as a source.
        file: String,
        /// The pinned hash, in hexadecimal.
        expected: String,
        /// The hash of what is there.
        found: String,
    },

    /// A tokenizer that cannot be loaded, trained or applied.
    #[error("tokenizer {name}: {message}")]
    Tokenizer {
        /// The tokenizer's file, or a description of one trained here.
        name: String,
        /// What is wrong and what to do.
        message: String,
    },

    /// Something is exhausted: disk, memory, or a limit that protects them.
    #[error("{0}")]
    Resources(String),
}

impl Error {
    /// A bad setting; `message` names it and the remedy.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Bad data without a single place.
    pub fn data(message: impl Into<String>) -> Self {
        Self::Data(message.into())
    }

    /// Bad input in `path` at `place` (empty for the whole file).
    pub fn input(path: &Path, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Input {
            path: path.to_path_buf(),
            place: place.into(),
            message: message.into(),
        }
    }

    /// A failed read of `path`; to be used with `map_err`.
    pub fn read(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Read {
            action,
            path,
            source,
        }
    }

    /// A failed write of `path`; to be used with `map_err`.
    pub fn write(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Write {
            action,
            path,
            source,
        }
    }

    /// The family of this error.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Usage(_) => Kind::Usage,
            Self::Data(_) | Self::Input { .. } | Self::Fetch { .. } | Self::Hash { .. } => {
                Kind::Data
            }
            Self::Read { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Kind::Resources
            }
            Self::Read { .. } => Kind::Data,
            Self::Write { .. } | Self::Resources(_) => Kind::Resources,
            Self::Tokenizer { .. } => Kind::Model,
        }
    }
}

fn at(place: &str) -> String {
    if place.is_empty() {
        String::new()
    } else {
        format!(" at {place}")
    }
}

fn free_space(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::StorageFull {
        "; free some space or choose another folder, then run again"
    } else {
        ""
    }
}
