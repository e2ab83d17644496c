//! A checkpoint in the layout of the Hugging Face hub: sharded safetensors, their index and `config.json`.
//!
//! Whole tensors are put together from the pieces of any grid, in their order, one chunk at a time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use half::bf16;
use serde_json::{Map, Value, json};

use super::data::{CHUNK, PartReader};
use super::index::{FILE, Index, Record};
use super::record::Piece;
use super::{Field, restore};
use crate::error::{Error, Result};
use crate::files;
use crate::published::{Tensor, config_json, tensors};
use crate::safetensors;

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
    pub(crate) fn name(self) -> &'static str {
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
            bytes += bytes_of(tensor, options.dtype);
            places.insert(tensor.name.clone(), name.clone().into());
        }
    }
    if shards.len() > 1 {
        let index = json!({ "metadata": { "total_size": bytes }, "weight_map": places });
        write_json(&out.join("model.safetensors.index.json"), &index)?;
    }
    let config = config_json(&index.description.model, options)?;
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

/// Bytes of the values of a tensor.
fn bytes_of(tensor: &Tensor, dtype: ExportDtype) -> u64 {
    tensor.len() as u64 * dtype.size()
}

/// Cuts the list of tensors into files.
fn split<'a>(tensors: &'a [Tensor], options: &Export) -> Vec<&'a [Tensor]> {
    let mut shards = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, tensor) in tensors.iter().enumerate() {
        let size = bytes_of(tensor, options.dtype);
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
        let end = offset + bytes_of(tensor, dtype);
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
        writer.write_all(&safetensors::encode(entries))?;
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

fn write_json(path: &Path, value: &Value) -> Result<()> {
    files::write_atomic(path, |writer| {
        serde_json::to_writer_pretty(&mut *writer, value)?;
        writer.write_all(b"\n")
    })
}
