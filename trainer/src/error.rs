//! What can go wrong in the trainer, as a user should read it.

use std::path::{Path, PathBuf};

/// Result of the trainer's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Whose fault an error is; the command line turns it into an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A setting is wrong (grid, sizes, schedule).
    Usage,
    /// Input data are wrong (token ids, rows).
    Data,
    /// A model file or checkpoint is missing or damaged.
    Model,
    /// The machine ran out of something (disk, memory).
    Resources,
    /// The numbers broke down (a loss or norm that is not finite).
    Numerical,
    /// A rank failed or ranks disagree.
    Rank,
}

/// An error of the trainer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot work, with the field and what would work.
    #[error("{field}: {message}")]
    Setting {
        /// The setting's name.
        field: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// Token ids or rows that do not fit the model.
    #[error("{0}")]
    Data(String),
    /// A checkpoint or model file that cannot be used.
    #[error("{path}: {message}")]
    Checkpoint {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file that could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A loss or gradient norm that is not a number.
    #[error("step {step}: {what} is {value}; lower the learning rate or check the data")]
    NotFinite {
        /// The step, counted from 1.
        step: u64,
        /// `loss` or `gradient norm`.
        what: &'static str,
        /// The value seen.
        value: f64,
    },
    /// A rank failed; the others were stopped.
    #[error("rank {rank}: {message}")]
    Rank {
        /// The rank.
        rank: usize,
        /// Why it failed.
        message: String,
    },
}

impl Error {
    /// A [`Error::Setting`].
    pub fn setting(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Setting {
            field: field.into(),
            message: message.into(),
        }
    }

    /// A [`Error::Checkpoint`].
    pub fn checkpoint(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::Checkpoint {
            path: path.as_ref().to_path_buf(),
            message: message.into(),
        }
    }

    /// Adapter for `map_err`: names the path that could not be written.
    pub fn write(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Write { path, source }
    }

    /// Adapter for `map_err`: names the path that could not be read.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { path, source }
    }

    /// Whose fault it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Setting { .. } => Kind::Usage,
            Self::Data(_) => Kind::Data,
            Self::Checkpoint { .. } | Self::Io { .. } => Kind::Model,
            Self::Write { .. } => Kind::Resources,
            Self::NotFinite { .. } => Kind::Numerical,
            Self::Rank { .. } => Kind::Rank,
        }
    }
}
