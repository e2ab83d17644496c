//! Weights that a study or an audit starts from: a checkpoint of axmem, or a published model.
//!
//! Owns which of the two a folder is, and the tokenizer that belongs to a published model. A published model is not copied
//! into the store: its artefact says where the files are and what they were, and every rank reads its slices from them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_datasets::source::{ModelFiles, ModelOptions, ModelSource};
use axmem_datasets::tokenizer::{Tokenizer, Vocabulary};
use axmem_trainer::published::gguf::Metadata;
use axmem_trainer::{Llama, ModelConfig, Published, Rank, checkpoint};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::events::Events;
use crate::exit::Failure;

/// The checkpoint inside an artefact that holds weights.
pub const CHECKPOINT: &str = "checkpoint";
/// The sizes of the model, beside it.
pub const CONFIG: &str = "config.json";
/// Of a published model, where its files are; stands in for the checkpoint.
pub const REFERENCE: &str = "published.json";

/// Weights that any grid can load.
#[derive(Debug)]
pub enum Weights {
    /// A checkpoint of axmem.
    Checkpoint {
        /// Its folder.
        folder: PathBuf,
        /// Sizes of its model.
        config: ModelConfig,
    },
    /// A published model.
    Published(Box<Published>),
}

impl Weights {
    /// The weights of an artefact of the stages `weights`, `warmup` or `train`.
    ///
    /// # Errors
    /// A missing or damaged artefact, and published files that are no longer those that the study began with.
    pub fn of_artefact(folder: &Path) -> Result<Self> {
        let path = folder.join(REFERENCE);
        if path.exists() {
            let reference: Reference = serde_json::from_str(&files::read_to_string(&path)?)
                .with_context(|| format!("{} can't be read", path.display()))?;
            let published = Published::open(reference.check(folder)?)?;
            return Ok(Self::Published(Box::new(published)));
        }
        let path = folder.join(CONFIG);
        let config = serde_json::from_str(&files::read_to_string(&path)?)
            .with_context(|| format!("{} is no model config", path.display()))?;
        Ok(Self::Checkpoint {
            folder: folder.join(CHECKPOINT),
            config,
        })
    }

    /// Sizes and constants of the model.
    pub fn config(&self) -> &ModelConfig {
        match self {
            Self::Checkpoint { config, .. } => config,
            Self::Published(published) => published.config(),
        }
    }

    /// A rank's part of the model with its weights, f32. Collective.
    ///
    /// # Errors
    /// A grid that does not divide the model, and files that can't be read.
    pub fn llama(&self, rank: &Rank) -> Result<Llama> {
        match self {
            Self::Checkpoint { folder, config } => {
                let mut llama = Llama::zeros(config, rank)?;
                checkpoint::load_weights(rank, folder, config, llama.params_mut())?;
                Ok(llama)
            }
            Self::Published(published) => Ok(published.llama(rank)?),
        }
    }
}

/// Where the files of a published model are, and what they were when a study began with them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reference {
    /// The source, with its commit if it is from a hub.
    source: String,
    /// The folder, or the GGUF file.
    path: PathBuf,
    /// All files that are used.
    files: Vec<FileRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FileRecord {
    name: String,
    path: PathBuf,
    bytes: u64,
    modified: Option<u64>,
    sha256: Option<String>,
}

impl Reference {
    /// What is at hand now.
    pub fn new(found: &ModelFiles) -> Self {
        Self {
            source: found.label.clone(),
            path: std::path::absolute(&found.path).unwrap_or_else(|_| found.path.clone()),
            files: found
                .files
                .iter()
                .map(|file| FileRecord {
                    name: file.name.clone(),
                    path: std::path::absolute(&file.path).unwrap_or_else(|_| file.path.clone()),
                    bytes: file.bytes,
                    modified: modified(&file.path),
                    sha256: file.sha256.clone(),
                })
                .collect(),
        }
    }

    /// Path, size and, where it was known, hash of every file.
    pub fn hashed(&self) -> impl Iterator<Item = (&Path, u64, Option<&str>)> {
        let files = self.files.iter();
        files.map(|file| (file.path.as_path(), file.bytes, file.sha256.as_deref()))
    }

    /// The path, if no file has changed since.
    fn check(&self, artefact: &Path) -> Result<&Path> {
        for file in &self.files {
            let same = files::size(&file.path).is_ok_and(|bytes| bytes == file.bytes)
                && modified(&file.path) == file.modified;
            if !same {
                return Err(Failure::model(format!(
                    "{} of {} is not what it was when the study began with it; bring it back, or remove {} to begin again",
                    file.path.display(),
                    self.source,
                    artefact.display()
                )));
            }
        }
        Ok(&self.path)
    }
}

/// Time of the last change of a file, in nanoseconds since 1970, where the system tells.
fn modified(path: &Path) -> Option<u64> {
    let time = std::fs::metadata(path).ok()?.modified().ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// The last part of a source, without revision and ending, as a name.
pub fn label(source: &str) -> String {
    let hub = source
        .strip_prefix("hf:")
        .and_then(|rest| rest.split_once('@'));
    let path = hub.map_or(source, |(repository, _)| repository);
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(source);
    name.strip_suffix(".gguf").unwrap_or(name).to_owned()
}

/// Brings a model onto this machine, telling of what is downloaded.
///
/// # Errors
/// What the source can't give.
pub fn fetch(
    source: &ModelSource,
    options: &ModelOptions<'_>,
    cache: &Path,
    events: &Events,
) -> Result<ModelFiles> {
    let told = std::cell::RefCell::new(String::new());
    let progress = |name: &str, done: u64, total: Option<u64>| {
        let mut told = told.borrow_mut();
        if *told != name {
            name.clone_into(&mut told);
            let size = total.map_or(String::new(), |total| {
                format!(" ({})", indicatif::DecimalBytes(total))
            });
            let fields =
                json!({ "source": source.to_string(), "file": name, "bytes": total, "done": done });
            events.tell(
                "download",
                fields,
                &format!("{source}: fetching {name}{size}"),
            );
        }
    };
    let options = ModelOptions {
        progress: Some(&progress),
        ..*options
    };
    let found = source.fetch(&options, cache);
    // Whatever is wrong with the files of a model is wrong with a model.
    found.map_err(|error| match error.kind() {
        axmem_datasets::Kind::Usage | axmem_datasets::Kind::Data => {
            Failure::model(error.to_string())
        }
        _ => error.into(),
    })
}

/// The tokenizer of a published model: that of its folder, or the one inside its GGUF file.
///
/// # Errors
/// No tokenizer, or one that can't be read.
pub fn tokenizer(path: &Path, published: &Published) -> Result<Tokenizer> {
    match published.metadata() {
        Some(metadata) => Ok(Tokenizer::from_vocabulary(
            &path.display().to_string(),
            &vocabulary(metadata)?,
        )?),
        None => Ok(Tokenizer::from_folder(path)?),
    }
}

/// The tokenizer's part of a GGUF file.
fn vocabulary(metadata: &Metadata) -> Result<Vocabulary> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let id = |name: &str| -> Result<Option<u32>> {
        let id = metadata.unsigned(&key(name))?;
        Ok(id.and_then(|id| u32::try_from(id).ok()))
    };
    let types = metadata.integers(&key("token_type"))?;
    Ok(Vocabulary {
        model: metadata.text(&key("model"))?.unwrap_or_default().to_owned(),
        pre: metadata.text(&key("pre"))?.map(str::to_owned),
        tokens: metadata.texts(&key("tokens"))?.to_vec(),
        types: types.iter().map(|&kind| kind as u32).collect(),
        scores: metadata.numbers(&key("scores"))?.to_vec(),
        merges: metadata.texts(&key("merges"))?.to_vec(),
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        unknown: id("unknown_token_id")?,
        add_bos: metadata.flag(&key("add_bos_token"))?,
        add_space_prefix: metadata.flag(&key("add_space_prefix"))?,
    })
}
