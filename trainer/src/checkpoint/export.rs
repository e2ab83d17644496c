//! A checkpoint in the layout of the Hugging Face hub: sharded safetensors, their index and `config.json`.
//!
//! Whole tensors are put together from the pieces of any grid, in their order, one chunk at a time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use half::bf16;
use serde_json::{Map, Value, json};

use super::data::{CHUNK, PartReader, header};
use super::index::{FILE, Index, Record};
use super::record::Piece;
use super::{Field, restore};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::files;

/// The type of the exported values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportDtype {
    /// As they are stored.
    F32,
    /// Rounded to the nearest, ties to even.
    Bf16,
}

impl ExportDtype {
    /// Bytes of a value.
    fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// The name in a safetensors header.
    fn code(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
        }
    }

    /// The name in `config.json`.
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
        }
    }
}

/// How a checkpoint is exported.
#[derive(Clone, Debug)]
pub struct Export {
    /// The type of the values.
    pub dtype: ExportDtype,
    /// Most bytes of values in one file; a tensor that is larger has a file of its own.
    pub shard_bytes: u64,
    /// The id that begins a sequence, for `config.json`.
    pub bos: Option<u32>,
    /// The id that ends a sequence, for `config.json`.
    pub eos: Option<u32>,
}

/// What an export has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Number of tensors.
    pub tensors: usize,
    /// Number of safetensors files.
    pub shards: usize,
    /// Bytes of all values.
    pub bytes: u64,
}

/// A tensor under its published name.
struct Tensor {
    name: String,
    /// `[1, n]` for a vector.
    shape: [usize; 2],
    vector: bool,
}

impl Tensor {
    fn matrix(name: impl Into<String>, shape: [usize; 2]) -> Self {
        Self {
            name: name.into(),
            shape,
            vector: false,
        }
    }

    fn vector(name: impl Into<String>, len: usize) -> Self {
        Self {
            name: name.into(),
            shape: [1, len],
            vector: true,
        }
    }

    fn bytes(&self, dtype: ExportDtype) -> u64 {
        (self.shape[0] * self.shape[1]) as u64 * dtype.size()
    }

    /// The shape in a safetensors header.
    fn published_shape(&self) -> &[usize] {
        &self.shape[usize::from(self.vector)..]
    }
}

/// Writes the weights of the checkpoint in `folder`, which any grid may have written, to the folder `out` in the layout of
/// the Hugging Face hub. `out` must be new or empty; `config.json` is written last, so a folder without it is incomplete.
pub fn export(folder: &Path, out: &Path, options: &Export) -> Result<Exported> {
    if options.shard_bytes == 0 {
        return Err(Error::setting(
            "shard_bytes",
            "is 0; a file must hold at least 1 byte",
        ));
    }
    restore(folder)?;
    let index = Index::read(folder)?;
    let tensors = checked_tensors(folder, &index)?;
    let shards = split(&tensors, options);
    prepare(out)?;
    let bytes = write_files(folder, &index, out, &shards, options).inspect_err(|_| clear(out))?;
    Ok(Exported {
        tensors: tensors.len(),
        shards: shards.len(),
        bytes,
    })
}

/// Writes all files of an export; gives back the bytes of all values.
fn write_files(
    folder: &Path,
    index: &Index,
    out: &Path,
    shards: &[&[Tensor]],
    options: &Export,
) -> Result<u64> {
    let mut bytes = 0;
    let mut places = Map::new();
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        write_shard(folder, index, &out.join(&name), shard, options.dtype)?;
        for tensor in *shard {
            bytes += tensor.bytes(options.dtype);
            places.insert(tensor.name.clone(), name.clone().into());
        }
    }
    if shards.len() > 1 {
        let index = json!({ "metadata": { "total_size": bytes }, "weight_map": places });
        write_json(&out.join("model.safetensors.index.json"), &index)?;
    }
    let config = config_json(&index.description.model, options);
    write_json(&out.join("config.json"), &config)?;
    Ok(bytes)
}

/// The tensors of the checkpoint's model, each of which the index covers exactly once.
fn checked_tensors(folder: &Path, index: &Index) -> Result<Vec<Tensor>> {
    let model = &index.description.model;
    let refused = |message: String| Error::checkpoint(folder.join(FILE), message);
    model
        .validate()
        .map_err(|error| refused(error.to_string()))?;
    if model.layers > index.records.len() {
        return Err(refused(format!(
            "lists {} pieces, too few for a model of {} layers",
            index.records.len(),
            model.layers
        )));
    }
    let tensors = tensors(model);
    let named = tensors
        .iter()
        .map(|tensor| (tensor.name.as_str(), tensor.shape));
    index.check_tensors(folder, named)?;
    Ok(tensors)
}

/// All tensors of a model in the order of the forward pass; a tied head is not one.
fn tensors(config: &ModelConfig) -> Vec<Tensor> {
    let (hidden, ffn) = (config.hidden, config.ffn);
    let query = config.heads.saturating_mul(config.head_dim);
    let key = config.kv_heads.saturating_mul(config.head_dim);
    let vocabulary = [config.vocab, hidden];
    let mut tensors = vec![Tensor::matrix("model.embed_tokens.weight", vocabulary)];
    for layer in 0..config.layers {
        let at = |part: &str| format!("model.layers.{layer}.{part}");
        tensors.push(Tensor::vector(at("input_layernorm.weight"), hidden));
        for (part, shape) in [
            ("self_attn.q_proj", [query, hidden]),
            ("self_attn.k_proj", [key, hidden]),
            ("self_attn.v_proj", [key, hidden]),
            ("self_attn.o_proj", [hidden, query]),
        ] {
            tensors.push(Tensor::matrix(at(&format!("{part}.weight")), shape));
            if config.attention_bias {
                tensors.push(Tensor::vector(at(&format!("{part}.bias")), shape[0]));
            }
        }
        tensors.push(Tensor::vector(
            at("post_attention_layernorm.weight"),
            hidden,
        ));
        for (part, shape) in [
            ("mlp.gate_proj.weight", [ffn, hidden]),
            ("mlp.up_proj.weight", [ffn, hidden]),
            ("mlp.down_proj.weight", [hidden, ffn]),
        ] {
            tensors.push(Tensor::matrix(at(part), shape));
        }
    }
    tensors.push(Tensor::vector("model.norm.weight", hidden));
    if !config.tied {
        tensors.push(Tensor::matrix("lm_head.weight", vocabulary));
    }
    tensors
}

/// Cuts the list of tensors into files.
fn split<'a>(tensors: &'a [Tensor], options: &Export) -> Vec<&'a [Tensor]> {
    let mut shards = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, tensor) in tensors.iter().enumerate() {
        let size = tensor.bytes(options.dtype);
        if at > start && bytes + size > options.shard_bytes {
            shards.push(&tensors[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    shards.push(&tensors[start..]);
    shards
}

/// Makes the folder of an export, which must not hold anything yet.
fn prepare(out: &Path) -> Result<()> {
    let refused = |message: &str| Err(Error::setting(out.display().to_string(), message));
    if out.exists() && !out.is_dir() {
        return refused("is no folder; name a new or an empty folder");
    }
    if !files::names(out)?.is_empty() {
        return refused("is not empty; name a new or an empty folder");
    }
    files::create_dir_all(out)
}

/// Removes what an export has written before it failed; its error says more than one from here.
fn clear(out: &Path) {
    for name in files::names(out).unwrap_or_default() {
        let _ = std::fs::remove_file(out.join(name));
    }
}

/// Writes one safetensors file.
fn write_shard(
    folder: &Path,
    index: &Index,
    path: &Path,
    shard: &[Tensor],
    dtype: ExportDtype,
) -> Result<()> {
    let mut entries = Map::new();
    // Transformers refuses a file that does not say which library's layout its tensors have.
    entries.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut offset = 0;
    for tensor in shard {
        let end = offset + tensor.bytes(dtype);
        let entry = json!({
            "dtype": dtype.code(),
            "shape": tensor.published_shape(),
            "data_offsets": [offset, end],
        });
        entries.insert(tensor.name.clone(), entry);
        offset = end;
    }
    let records = index.by_tensor();
    let written = files::write_atomic(path, |writer| {
        writer.write_all(&header(entries))?;
        for tensor in shard {
            write_tensor(folder, &records[&*tensor.name], tensor, dtype, writer)?;
        }
        Ok(())
    });
    // What went wrong while reading has passed through the writer.
    written.map_err(|error| match error {
        Error::Write { path, source } => source
            .downcast()
            .unwrap_or_else(|source| Error::Write { path, source }),
        error => error,
    })
}

/// Writes the values of one tensor from its records. Each is read once, in its own order, and its hash is checked when its
/// last value has passed.
fn write_tensor(
    folder: &Path,
    records: &[&Record],
    tensor: &Tensor,
    dtype: ExportDtype,
    writer: &mut BufWriter<File>,
) -> std::io::Result<()> {
    let whole = Piece {
        rows: 0..tensor.shape[0],
        columns: 0..tensor.shape[1],
        flat: 0..tensor.shape[0] * tensor.shape[1],
    };
    let mut readers: Vec<Option<PartReader<'_>>> = records.iter().map(|_| None).collect();
    let (mut buffer, mut values, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for chunk in whole.chunks(CHUNK) {
        values.resize(chunk.len(), 0.0);
        for (record, reader) in records.iter().zip(&mut readers) {
            // The elements that a record has in a range of the matrix lie side by side in the record.
            let (mut first, mut end) = (usize::MAX, 0);
            for overlap in record.piece.overlaps(&chunk) {
                first = first.min(overlap.from);
                end = overlap.from + overlap.len;
            }
            if end == 0 {
                continue;
            }
            let mut open = match reader.take() {
                Some(open) => open,
                None => PartReader::open(folder, record, Field::Weight).map_err(through)?,
            };
            let read = open.next(end - first, &mut buffer).map_err(through)?;
            for overlap in record.piece.overlaps(&chunk) {
                let from = &read[overlap.from - first..][..overlap.len];
                let to = &mut values[overlap.to..][..overlap.len];
                for (value, &bytes) in to.iter_mut().zip(from) {
                    *value = f32::from_le_bytes(bytes);
                }
            }
            if end == record.piece.len() {
                open.finish().map_err(through)?;
            } else {
                *reader = Some(open);
            }
        }
        bytes.clear();
        match dtype {
            ExportDtype::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            ExportDtype::Bf16 => bytes.extend(
                values
                    .iter()
                    .flat_map(|&value| bf16::from_f32(value).to_le_bytes()),
            ),
        }
        writer.write_all(&bytes)?;
    }
    Ok(())
}

/// An error of reading on its way through a writer.
fn through(error: Error) -> std::io::Error {
    std::io::Error::other(error)
}

/// The `config.json` of a model: what Transformers 4 and 5 need to build it.
fn config_json(model: &ModelConfig, options: &Export) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": model.max_positions,
        "rms_norm_eps": model.norm_eps,
        // Version 4 reads the first, version 5 the second.
        "rope_theta": model.rope_theta,
        "rope_parameters": { "rope_type": "default", "rope_theta": model.rope_theta },
        "tie_word_embeddings": model.tied,
        "attention_bias": model.attention_bias,
        "mlp_bias": false,
        "use_cache": true,
        // Left out, they would be 1 and 2.
        "bos_token_id": options.bos,
        "eos_token_id": options.eos,
        // The older and the newer name of one setting.
        "torch_dtype": options.dtype.name(),
        "dtype": options.dtype.name(),
    })
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    files::write_atomic(path, |writer| {
        serde_json::to_writer_pretty(&mut *writer, value)?;
        writer.write_all(b"\n")
    })
}
