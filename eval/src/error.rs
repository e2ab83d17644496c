//! What can go wrong while scoring and estimating, and which exit code it maps to.

/// The class of an error; the command line maps each to one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A setting is wrong (exit code 2).
    Usage,
    /// Documents, scores or a table are wrong (exit code 3).
    Data,
    /// Weights do not fit what is asked of them (exit code 4).
    Model,
    /// Disk or memory ran out (exit code 5).
    Resources,
    /// A number that must be finite or equal is not (exit code 6).
    Numerical,
    /// A rank or a collective failed (exit code 7).
    Rank,
}

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting cannot be used.
    #[error("{setting}: {problem}")]
    Setting {
        /// The setting as it is written in an experiment file.
        setting: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A document cannot be probed, or its records contradict each other.
    #[error("document `{document}`: {problem}")]
    Document {
        /// The document's id.
        document: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A document's numbers are not finite, or two ways of computing them disagree.
    #[error("document `{document}`: {problem}")]
    Numerical {
        /// The document's id, or what was decoded when no document is known.
        document: String,
        /// What was found.
        problem: String,
    },
    /// The model cannot do what it is asked, or returned the wrong shape.
    #[error("model: {0}")]
    Model(String),
    /// The trainer's model failed.
    #[error(transparent)]
    Trainer(#[from] axmem_trainer::Error),
    /// Records do not form the design that an estimate needs.
    #[error("scores: {0}")]
    Records(String),
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The class of this error.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Setting { .. } => Kind::Usage,
            Self::Document { .. } | Self::Records(_) => Kind::Data,
            Self::Numerical { .. } => Kind::Numerical,
            Self::Model(_) => Kind::Model,
            Self::Trainer(error) => match error.kind() {
                axmem_trainer::Kind::Usage => Kind::Usage,
                axmem_trainer::Kind::Data => Kind::Data,
                axmem_trainer::Kind::Model => Kind::Model,
                axmem_trainer::Kind::Resources => Kind::Resources,
                axmem_trainer::Kind::Numerical => Kind::Numerical,
                axmem_trainer::Kind::Rank => Kind::Rank,
            },
        }
    }

    pub(crate) fn document(document: &str, problem: impl Into<String>) -> Self {
        Self::Document {
            document: document.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn setting(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Setting {
            setting,
            problem: problem.into(),
        }
    }
}
