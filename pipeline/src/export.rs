//! `axmem export`: the weights of a run, for other programs.
//!
//! A run is an artefact with a checkpoint (of the stages `weights`, `warmup` and `train`), or a checkpoint itself. The
//! tokenizer is looked for among the artefacts that it was made from.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use axmem_datasets::files;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_trainer::checkpoint::{self, ExportDtype};
use clap::ValueEnum;
use indicatif::DecimalBytes;
use serde_json::json;

use crate::events::Events;
use crate::exit::Failure;
use crate::plan::Stage;
use crate::store::{Manifest, Store};

/// What makes a folder a complete artefact.
const MANIFEST: &str = "manifest.json";
/// The folder of the weights in an artefact.
const CHECKPOINT: &str = "checkpoint";
/// What makes a folder a complete checkpoint.
const INDEX: &str = "index.json";
/// In an artefact of the stage `tokens`, and in an exported folder.
const TOKENIZER: &str = "tokenizer.json";

/// A layout of weights on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Hugging Face: config.json, safetensors, tokenizer.json
    #[default]
    Hf,
}

/// The type of the exported values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 32 bits, as trained
    #[default]
    F32,
    /// bfloat16, rounded to nearest
    Bf16,
}

/// What is to be exported.
#[derive(Debug)]
pub struct Request {
    /// The artefact or checkpoint.
    pub run: PathBuf,
    /// The layout.
    pub to: Layout,
    /// The new or empty folder that is written.
    pub folder: PathBuf,
    /// The type of the values.
    pub dtype: Dtype,
    /// Most bytes of values in one file.
    pub shard_bytes: u64,
}

/// Exports the weights of a run, with its tokenizer if that is found.
///
/// # Errors
/// A run without a complete checkpoint, a damaged checkpoint, or a folder that can't be written.
pub fn run(request: &Request, events: &Events) -> Result<()> {
    let run = Run::find(&request.run)?;
    let tokenizer = run.tokenizer()?;
    let Layout::Hf = request.to;
    let options = checkpoint::Export {
        dtype: match request.dtype {
            Dtype::F32 => ExportDtype::F32,
            Dtype::Bf16 => ExportDtype::Bf16,
        },
        shard_bytes: request.shard_bytes,
        bos: tokenizer.as_ref().and_then(Tokenizer::bos),
        eos: tokenizer.as_ref().and_then(Tokenizer::eos),
    };
    let exported = checkpoint::export(&run.checkpoint, &request.folder, &options)?;
    if let Some(tokenizer) = &tokenizer {
        save_tokenizer(tokenizer, &request.folder)?;
    }
    let fields = json!({
        "folder": request.folder, "tensors": exported.tensors, "files": exported.shards,
        "bytes": exported.bytes, "tokenizer": tokenizer.is_some(),
    });
    let sentence = format!(
        "{}: {} tensors, {}, {}",
        request.folder.display(),
        exported.tensors,
        DecimalBytes(exported.bytes),
        if tokenizer.is_some() {
            "with the tokenizer"
        } else {
            "without a tokenizer, as none was found among the inputs of the run"
        }
    );
    events.tell("exported", fields, &sentence);
    Ok(())
}

/// Writes a tokenizer beside the weights. Transformers takes the class of the tokenizer from the architecture if nothing
/// names one, and that of Llama adds ids which the model has no rows for.
fn save_tokenizer(tokenizer: &Tokenizer, folder: &Path) -> Result<()> {
    tokenizer.save(folder.join(TOKENIZER))?;
    let token = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id])).transpose();
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token(tokenizer.bos())?,
        "eos_token": token(tokenizer.eos())?,
        "clean_up_tokenization_spaces": false,
    });
    let path = folder.join("tokenizer_config.json");
    let text = format!("{config:#}\n");
    Ok(files::write_atomic(path, text.as_bytes())?)
}

/// Where the weights are.
struct Run {
    checkpoint: PathBuf,
    /// The complete artefact that holds the checkpoint, if it is in one.
    artefact: Option<(PathBuf, Manifest)>,
}

impl Run {
    fn find(path: &Path) -> Result<Self> {
        if path.is_file() {
            return Err(Failure::usage(format!(
                "{} is a file, and RUN is a folder; for an experiment file, `axmem train` prints the folder of \
                 each arm and trial",
                path.display()
            )));
        }
        // With all its parents, also if it is the folder that the command runs in.
        let folder = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        if folder.join(INDEX).is_file() {
            let artefact = match folder.parent() {
                Some(parent) if folder.ends_with(CHECKPOINT) => artefact(parent)?,
                _ => None,
            };
            return Ok(Self {
                checkpoint: folder,
                artefact,
            });
        }
        let checkpoint = folder.join(CHECKPOINT);
        let artefact = artefact(&folder)?;
        if !checkpoint.is_dir() {
            return Err(Failure::model(format!(
                "{} holds no checkpoint; name an artefact of the stages weights, warmup or train, such as \
                 runs/train-v1/KEY, or a checkpoint",
                path.display()
            )));
        }
        if artefact.is_none() {
            return Err(Failure::model(format!(
                "{} has no {MANIFEST}: the stage that makes it is not done; run it to its end, or name the \
                 checkpoint {} itself",
                path.display(),
                checkpoint.display()
            )));
        }
        Ok(Self {
            checkpoint,
            artefact,
        })
    }

    /// The tokenizer of the study, if the artefacts that the run was made from are still in its store.
    fn tokenizer(&self) -> Result<Option<Tokenizer>> {
        let Some((folder, manifest)) = &self.artefact else {
            return Ok(None);
        };
        let Some(root) = folder.parent().and_then(Path::parent) else {
            return Ok(None);
        };
        let store = Store::new(root);
        let mut seen = HashSet::new();
        let mut open = vec![manifest.clone()];
        while let Some(manifest) = open.pop() {
            for (name, key) in manifest.inputs {
                let Some(stage) = Stage::ALL.into_iter().find(|stage| stage.name() == name) else {
                    continue;
                };
                let folder = store.folder(&name, stage.version(), &key);
                if !seen.insert(folder.clone()) {
                    continue;
                }
                match artefact(&folder)? {
                    Some((folder, tokens)) if stage == Stage::Tokens => {
                        return checked_tokenizer(&folder, &tokens).map(Some);
                    }
                    Some((_, input)) => open.push(input),
                    None => {}
                }
            }
        }
        Ok(None)
    }
}

/// The tokenizer of an artefact of the stage `tokens`.
fn checked_tokenizer(folder: &Path, manifest: &Manifest) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    let tokenizer = Tokenizer::from_file(&path)?;
    let recorded = manifest.files.get(TOKENIZER);
    if recorded.is_none_or(|record| record.sha256 != tokenizer.hash()) {
        return Err(Failure::data(format!(
            "{} has another content than when it was made; remove the folder {} to make it again",
            path.display(),
            folder.display()
        )));
    }
    Ok(tokenizer)
}

/// A folder and its manifest, if it is a complete artefact.
fn artefact(folder: &Path) -> Result<Option<(PathBuf, Manifest)>> {
    let path = folder.join(MANIFEST);
    if !path.exists() {
        return Ok(None);
    }
    let manifest = serde_json::from_str(&files::read_to_string(&path)?)
        .map_err(|error| Failure::data(format!("{} can't be read: {error}", path.display())))?;
    Ok(Some((folder.to_path_buf(), manifest)))
}
