//! A model that is audited: a published one, or the weights of a run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use axmem_datasets::files;
use axmem_datasets::source::{ModelOptions, ModelSource};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_trainer::{Grid, ModelConfig, Published, checkpoint};
use serde::{Deserialize, Serialize};

use super::findings::ModelFacts;
use crate::artefact::Run;
use crate::events::Events;
use crate::exit::Failure;
use crate::ranks::Ranks;
use crate::weights::{self, REFERENCE, Weights, label};

/// A model with what the report says of it.
pub(crate) struct Subject {
    pub(crate) weights: Weights,
    pub(crate) facts: ModelFacts,
    /// Where its tokenizer is.
    home: Home,
}

enum Home {
    Run(Box<Run>),
    Published(PathBuf),
}

/// Where the first process found a published model.
#[derive(Serialize, Deserialize)]
struct Found {
    path: PathBuf,
    label: String,
    revision: Option<String>,
    files: Vec<(String, String)>,
    notes: Vec<String>,
}

impl Subject {
    /// Finds a model, fetching it if it is elsewhere. Collective.
    pub(crate) fn find(source: &str, cache: &Path, ranks: &Ranks, events: &Events) -> Result<Self> {
        if ranks.lead(|| Ok(Run::is_at(Path::new(source))))? {
            return Self::of_run(source);
        }
        let parsed: ModelSource = source.parse()?;
        let found = ranks.lead(|| {
            let options = ModelOptions {
                hash: true,
                ..ModelOptions::default()
            };
            let found = weights::fetch(&parsed, &options, cache, events)?;
            Ok(Found {
                files: found
                    .files
                    .iter()
                    .map(|file| (file.name.clone(), file.sha256.clone().unwrap_or_default()))
                    .collect(),
                path: found.path,
                label: found.label,
                revision: found.revision,
                notes: found.notes,
            })
        })?;
        let published = Published::open(&found.path)?;
        let mut notes = found.notes;
        notes.extend_from_slice(published.notes());
        let config = published.config();
        Ok(Self {
            facts: ModelFacts {
                name: label(&found.label),
                source: found.label,
                revision: found.revision,
                parameters: config.parameters(),
                shape: shape(config),
                stored: published.dtypes(),
                files: found.files,
                notes,
                tolerance: 0.0,
            },
            weights: Weights::Published(Box::new(published)),
            home: Home::Published(found.path),
        })
    }

    fn of_run(source: &str) -> Result<Self> {
        let run = Run::find(Path::new(source))?;
        let (weights, record) = if let Some(folder) = run.reference() {
            (Weights::of_artefact(folder)?, folder.join(REFERENCE))
        } else {
            let index = checkpoint::Index::read(&run.checkpoint)?;
            let weights = Weights::Checkpoint {
                folder: run.checkpoint.clone(),
                config: index.description.model,
            };
            (weights, run.checkpoint.join("index.json"))
        };
        let name = record.file_name().unwrap_or_default().to_string_lossy();
        let config = weights.config();
        Ok(Self {
            facts: ModelFacts {
                name: run.name(),
                source: source.to_owned(),
                revision: None,
                parameters: config.parameters(),
                shape: shape(config),
                stored: match &weights {
                    Weights::Checkpoint { .. } => "f32".to_owned(),
                    Weights::Published(published) => published.dtypes(),
                },
                // It holds the hashes of all values, or of all files.
                files: vec![(name.into_owned(), files::sha256_file(&record)?)],
                notes: Vec::new(),
                tolerance: 0.0,
            },
            weights,
            home: Home::Run(Box::new(run)),
        })
    }

    /// Whether the study that the weights come from puts a beginning-of-sequence id before every document; `None` for a
    /// published model.
    pub(crate) fn trained_with_bos(&self) -> Result<Option<bool>> {
        match &self.home {
            Home::Run(run) => run.bos(),
            Home::Published(_) => Ok(None),
        }
    }

    /// The tokenizer that comes with the weights, if one does.
    pub(crate) fn tokenizer(&self) -> Result<Option<Tokenizer>> {
        match (&self.home, &self.weights) {
            (Home::Run(run), _) => run.tokenizer(),
            (Home::Published(path), Weights::Published(published)) => {
                if published.metadata().is_none() && !path.join("tokenizer.json").is_file() {
                    return Ok(None);
                }
                weights::tokenizer(path, published).map(Some)
            }
            (Home::Published(_), Weights::Checkpoint { .. }) => Ok(None),
        }
    }

    /// Refuses a tokenizer with ids that the model has no rows for, and a grid that doesn't divide the model.
    pub(crate) fn check(&self, tokenizer: &Tokenizer, grid: &Grid) -> Result<()> {
        let (ids, rows) = (tokenizer.vocab_size(), self.weights.config().vocab);
        if ids > rows {
            return Err(Failure::model(format!(
                "the tokenizer has {ids} ids, and {} has rows for {rows}; it is not the model's tokenizer",
                self.facts.source
            )));
        }
        self.weights
            .config()
            .check_grid(grid)
            .map_err(|error| Failure::usage(format!("--{error}")))
    }
}

fn shape(config: &ModelConfig) -> String {
    format!(
        "{} layers, hidden {}, {} heads ({} for keys and values) of {}, feed-forward {}, vocabulary {}, head {}",
        config.layers,
        config.hidden,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.ffn,
        config.vocab,
        if config.tied { "tied" } else { "untied" }
    )
}
