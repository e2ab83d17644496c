//! Published models: folders in the Hugging Face layout and GGUF files.
//!
//! [`Published::open`] reads descriptions and headers only, and checks that the tensors are exactly those of the model, with
//! their shapes, before any memory is taken for weights. [`Published::load`] reads a rank's slices and nothing else. Files are
//! read by position and not mapped: pages of a mapped file would stand in memory beside the f32 weights made of them, and a
//! file that shrinks while it is mapped kills the process.

mod config;
mod folder;
pub mod gguf;
mod stored;
mod tensors;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) use self::config::config_json;
pub(crate) use self::tensors::{Tensor, tensors};

use self::stored::{Reader, Stored};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::files;
use crate::llama::Llama;
use crate::param::Param;
use crate::rank::Rank;

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// A published model whose files were found complete.
#[derive(Debug)]
pub struct Published {
    /// The folder or the GGUF file.
    path: PathBuf,
    config: ModelConfig,
    files: Vec<PathBuf>,
    tensors: BTreeMap<String, Stored>,
    vocabulary: Option<gguf::Metadata>,
    notes: Vec<String>,
}

impl Published {
    /// Opens a folder in the Hugging Face layout, or a GGUF file.
    ///
    /// # Errors
    /// A model that is not a Llama, and tensors that are missing, unknown, listed twice, cut off or of another shape: each is
    /// named with its file.
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            Self::open_folder(path)
        } else if path.exists() {
            Self::open_gguf(path)
        } else {
            Err(Error::checkpoint(
                path,
                "is not there; give a folder in the Hugging Face layout or a GGUF file",
            ))
        }
    }

    fn open_folder(path: &Path) -> Result<Self> {
        let file = path.join("config.json");
        if !file.is_file() {
            return Err(Error::checkpoint(
                path,
                "holds no config.json; a model in the Hugging Face layout has config.json, tokenizer.json and *.safetensors",
            ));
        }
        let described = config::describe(&file, &files::read(&file)?)?;
        let weights = folder::open(path)?;
        let mut published = Self {
            path: path.to_path_buf(),
            config: described.config,
            files: weights.files,
            tensors: weights.tensors,
            vocabulary: None,
            notes: described.notes,
        };
        // Buffers that old versions of Transformers saved.
        published
            .tensors
            .retain(|name, _| !name.ends_with(".rotary_emb.inv_freq"));
        published.join_aliases(&weights.aliases);
        published.tie(described.tied)?;
        published.check()?;
        Ok(published)
    }

    fn open_gguf(path: &Path) -> Result<Self> {
        let file = gguf::open(path)?;
        let mut published = Self {
            path: path.to_path_buf(),
            config: file.config,
            files: vec![path.to_path_buf()],
            tensors: file.tensors,
            vocabulary: Some(file.metadata),
            notes: file.notes,
        };
        // A head of its own is there or not; GGUF has no flag.
        published.config.tied = !published.tensors.contains_key(HEAD);
        published.check()?;
        Ok(published)
    }

    /// Gives a tensor that was left out, since it shares the memory of another, that one's place.
    fn join_aliases(&mut self, aliases: &BTreeMap<String, String>) {
        for (name, other) in aliases {
            if !self.tensors.contains_key(name)
                && let Some(stored) = self.tensors.get(other).cloned()
            {
                self.tensors.insert(name.clone(), stored);
            }
        }
    }

    /// Decides whether the head is the embedding, by the flag of the file and by what is there.
    fn tie(&mut self, flag: Option<bool>) -> Result<()> {
        let found = (self.tensors.get(EMBEDDING), self.tensors.get(HEAD));
        let tied = match (flag, found) {
            (Some(true), (Some(embedding), Some(head))) => {
                if !self.equal(embedding, head)? {
                    return Err(Error::checkpoint(
                        &self.path,
                        format!(
                            "tie_word_embeddings is true, and {EMBEDDING} and {HEAD} differ; set it to false in config.json if the \
                             head is its own"
                        ),
                    ));
                }
                true
            }
            (Some(true), (_, None)) | (None, (Some(_), None)) => true,
            // Which of the two names a tied matrix has is a matter of the writer.
            (Some(true), (None, Some(head))) => {
                let head = head.clone();
                self.tensors.insert(EMBEDDING.into(), head);
                true
            }
            _ => false,
        };
        if tied {
            self.tensors.remove(HEAD);
        }
        self.config.tied = tied;
        Ok(())
    }

    /// Whether two tensors hold the same values.
    fn equal(&self, one: &Stored, other: &Stored) -> Result<bool> {
        if one.shape != other.shape {
            return Ok(false);
        }
        let mut readers = [
            Reader::open(&self.files[one.file])?,
            Reader::open(&self.files[other.file])?,
        ];
        let [rows, columns] = one.shape;
        let (mut left, mut right) = (vec![0.0; columns], vec![0.0; columns]);
        for row in 0..rows {
            readers[0].elements(one, row * columns, &mut left)?;
            readers[1].elements(other, row * columns, &mut right)?;
            if left != right {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The tensors must be those of the model, no more and no less.
    fn check(&self) -> Result<()> {
        let refused = |message: String| Error::checkpoint(&self.path, message);
        self.config
            .validate()
            .map_err(|error| refused(error.to_string()))?;
        if self.config.layers > self.tensors.len() {
            return Err(refused(format!(
                "is described as having {} layers, and its files hold {} tensors; files are missing",
                self.config.layers,
                self.tensors.len()
            )));
        }
        let expected = tensors(&self.config);
        let missing: Vec<&Tensor> = expected
            .iter()
            .filter(|tensor| !self.tensors.contains_key(&tensor.name))
            .collect();
        if let Some(first) = missing.first() {
            return Err(refused(format!(
                "lacks {} of the {} tensors of its model: {} first; files are missing, or config.json is of another model",
                missing.len(),
                expected.len(),
                first.name
            )));
        }
        let known: BTreeSet<&str> = expected.iter().map(|tensor| &*tensor.name).collect();
        let extra: Vec<&String> = self
            .tensors
            .keys()
            .filter(|name| !known.contains(name.as_str()))
            .collect();
        if let Some(first) = extra.first() {
            return Err(refused(format!(
                "holds {} tensors that its model does not have: {first} first; config.json is of another model, or the model \
                 is no plain Llama",
                extra.len()
            )));
        }
        for tensor in &expected {
            let stored = &self.tensors[&tensor.name];
            if stored.shape != tensor.shape {
                return Err(Error::checkpoint(
                    &self.files[stored.file],
                    format!(
                        "{} has shape {:?}; the model needs {:?}",
                        tensor.name, stored.shape, tensor.shape
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Sizes and constants.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Of a GGUF file, its settings, the tokenizer among them.
    pub fn metadata(&self) -> Option<&gguf::Metadata> {
        self.vocabulary.as_ref()
    }

    /// What a user should know of how the files were read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The types of the stored values with the number of tensors of each, such as `bf16 (272)`.
    pub fn dtypes(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for stored in self.tensors.values() {
            *counts
                .entry(format!("{:?}", stored.dtype).to_lowercase())
                .or_default() += 1;
        }
        let parts: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{name} ({count})"))
            .collect();
        parts.join(", ")
    }

    /// This rank's part of the model with its weights, in f32.
    pub fn llama(&self, rank: &Rank) -> Result<Llama> {
        let mut llama = Llama::zeros(&self.config, rank)?;
        self.load(llama.params_mut())?;
        Ok(llama)
    }

    /// Reads a rank's slices of all weights, as f32. After an error they hold anything.
    pub fn load(&self, params: &mut [Param]) -> Result<()> {
        let mut readers: Vec<Option<Reader<'_>>> = self.files.iter().map(|_| None).collect();
        for param in params {
            let stored = self
                .tensors
                .get(&param.name)
                .ok_or_else(|| Error::checkpoint(&self.path, format!("lacks {}", param.name)))?;
            let reader = match &mut readers[stored.file] {
                Some(reader) => reader,
                closed => closed.insert(Reader::open(&self.files[stored.file])?),
            };
            reader.fill(stored, &param.block, &mut param.weight)?;
        }
        Ok(())
    }
}
