//! The figures that `axmem report DIR... --figure` draws, by the names of their files.

use clap::ValueEnum;

/// One figure of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Memorisation by number of parameters
    Threshold,
    /// Every arm beside its own baseline
    Goldfish,
    /// Documents kept, gained, lost and never reproduced
    Overlap,
    /// Memorisation by exposures
    Memorisation,
    /// Memorisation over training, and after the last presentation
    Dose,
    /// Memorisation by length of the prompt
    #[value(alias = "prompt-length")]
    Prompt,
    /// Loss by step of training
    Training,
}

impl Figure {
    /// Name of its files without their ends.
    pub(super) fn stem(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::Goldfish => "goldfish",
            Self::Overlap => "overlap",
            Self::Memorisation => "memorisation",
            Self::Dose => "dose",
            Self::Prompt => "prompt-length",
            Self::Training => "training",
        }
    }

    /// Whether a file of a report is this figure.
    pub(super) fn is(self, file: &str) -> bool {
        let ends = [".svg", ".png"];
        ends.iter()
            .any(|end| file.strip_suffix(end) == Some(self.stem()))
    }

    /// What studies without it do not have.
    pub(super) fn needs(self) -> &'static str {
        match self {
            Self::Threshold => "several models",
            Self::Goldfish => "an arm of the Goldfish loss",
            Self::Dose => {
                "scores on the way, which `train.probes` asks for (memorisation by exposures is --figure memorisation)"
            }
            Self::Prompt => "several prefixes, which `score.prefix` lists",
            Self::Overlap | Self::Memorisation | Self::Training => "a trained model",
        }
    }
}
