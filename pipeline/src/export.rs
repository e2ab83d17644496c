//! `axmem export`: the weights of a run, for other programs.
//!
//! A run is an artefact with a checkpoint (of the stages `weights`, `warmup` and `train`), or a checkpoint itself. The
//! tokenizer is looked for among the artefacts that it was made from.

use std::path::{Path, PathBuf};

use anyhow::Result;
use axmem_datasets::files;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_trainer::checkpoint::{self, ExportDtype};
use clap::ValueEnum;
use indicatif::DecimalBytes;
use serde_json::json;

use crate::artefact::Run;
use crate::events::Events;
use crate::exit::Failure;

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
    if run.reference().is_some() {
        return Err(Failure::usage(format!(
            "the weights of {} are those of a published model, whose own files are the export",
            request.run.display()
        )));
    }
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
