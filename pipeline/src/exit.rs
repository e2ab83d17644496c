//! Exit codes, and the family of every error that can reach `main`.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a fault of the program itself |
//! | 2 | usage or configuration |
//! | 3 | input data, or a damaged artefact |
//! | 4 | model, tokenizer or checkpoint |
//! | 5 | disk, memory or another resource |
//! | 6 | a number that is not finite, or a grid that fails its certificate |
//! | 7 | a rank or a collective |
//! | 10 | an audit found a rate above `--fail-above` |
//! | 130 | interrupted |

use std::io;

/// The family of an error; its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A wrong command line or experiment file.
    Usage = 2,
    /// Input data that cannot be read or used, or an artefact that was changed.
    Data = 3,
    /// A model, tokenizer or checkpoint that is missing or does not fit.
    Model = 4,
    /// Disk, memory or another resource is exhausted or not writable.
    Resources = 5,
    /// A loss or gradient that is not finite, or scorers or grids that disagree.
    Numerical = 6,
    /// A rank or a collective failed.
    Rank = 7,
    /// An audit found a rate above `--fail-above`.
    Exceeded = 10,
}

/// An error of the pipeline itself, with its family.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    kind: Kind,
    message: String,
}

impl Failure {
    /// An error of the given family; `message` says what is wrong, where, and what to do.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A wrong command line or experiment file.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Self::new(Kind::Usage, message).into()
    }

    /// Bad input data or a damaged artefact.
    pub fn data(message: impl Into<String>) -> anyhow::Error {
        Self::new(Kind::Data, message).into()
    }

    /// A model that is missing or does not fit.
    pub fn model(message: impl Into<String>) -> anyhow::Error {
        Self::new(Kind::Model, message).into()
    }

    /// Something exhausted or not writable.
    pub fn resources(message: impl Into<String>) -> anyhow::Error {
        Self::new(Kind::Resources, message).into()
    }
}

/// The exit code of an error: that of the first link of its chain whose family is known, else 1.
pub fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(family).map_or(1, |kind| kind as u8)
}

/// The chain of an error as one sentence. A cause that the error above it has already quoted is not said twice.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !sentence.contains(&cause) {
            sentence.push_str(": ");
            sentence.push_str(&cause);
        }
    }
    sentence
}

fn family(error: &(dyn std::error::Error + 'static)) -> Option<Kind> {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return Some(failure.kind);
    }
    macro_rules! library {
        ($library:ident) => {
            if let Some(error) = error.downcast_ref::<$library::Error>() {
                return Some(match error.kind() {
                    $library::Kind::Usage => Kind::Usage,
                    $library::Kind::Data => Kind::Data,
                    $library::Kind::Model => Kind::Model,
                    $library::Kind::Resources => Kind::Resources,
                    $library::Kind::Numerical => Kind::Numerical,
                    $library::Kind::Rank => Kind::Rank,
                });
            }
        };
    }
    library!(axmem_datasets);
    library!(axmem_trainer);
    library!(axmem_eval);
    // What reaches `main` as a bare io error comes from writing results.
    error.downcast_ref::<io::Error>().map(|_| Kind::Resources)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_code_is_found_under_added_context() {
        let error = Err::<(), _>(Failure::model("no weights"))
            .context("stage weights")
            .expect_err("it is an error");
        assert_eq!(code(&error), 4);
        assert_eq!(sentence(&error), "stage weights: no weights");
        assert_eq!(code(&anyhow::anyhow!("a bug")), 1);

        let missing = anyhow::Error::from(
            axmem_datasets::files::read("/no/such/file").expect_err("it is missing"),
        );
        assert_eq!(sentence(&missing).matches("No such file").count(), 1);
    }
}
