//! A folder in the Hugging Face layout: which file holds which tensor, checked in both directions before a value is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use serde_json::Value;

use super::stored::Stored;
use crate::error::{Error, Result};
use crate::files;
use crate::safetensors::{self, Entry, Header};

/// The weights where they are in one file.
const SINGLE: &str = "model.safetensors";
/// Which file holds which tensor, where there are several.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The safetensors files of a folder.
pub(super) struct Weights {
    /// The files.
    pub(super) files: Vec<PathBuf>,
    /// All tensors by name.
    pub(super) tensors: BTreeMap<String, Stored>,
    /// Tensors that were left out since they are another one: the name of each, and of the other.
    pub(super) aliases: BTreeMap<String, String>,
}

/// Reads the headers of all weights in `folder`.
pub(super) fn open(folder: &Path) -> Result<Weights> {
    let single = folder.join(SINGLE);
    let index = folder.join(INDEX);
    if single.is_file() {
        let mut weights = Weights {
            files: vec![single],
            tensors: BTreeMap::new(),
            aliases: BTreeMap::new(),
        };
        weights.add(0)?;
        return Ok(weights);
    }
    if index.is_file() {
        return sharded(folder, &index);
    }
    let pickled = files::names(folder)?.into_iter().find(|name| {
        let ending = Path::new(name).extension();
        ending.is_some_and(|ending| ending == "bin" || ending == "pth")
    });
    Err(Error::checkpoint(
        folder,
        match pickled {
            Some(name) => format!(
                "holds its weights as {name}, which is not read since it can run code; convert it with Transformers: \
                 AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)"
            ),
            None => format!("holds neither {SINGLE} nor {INDEX}"),
        },
    ))
}

/// Reads the weights that an index lists.
fn sharded(folder: &Path, path: &Path) -> Result<Weights> {
    let refused = |message: String| Error::checkpoint(path, message);
    let index: Value = serde_json::from_slice(&files::read(path)?)
        .map_err(|error| refused(format!("is not JSON: {error}")))?;
    let places = index["weight_map"]
        .as_object()
        .ok_or_else(|| refused("has no list weight_map".into()))?;
    let mut names = BTreeSet::new();
    for (tensor, name) in places {
        let name = name
            .as_str()
            .ok_or_else(|| refused(format!("{tensor} has no file name")))?;
        let inside = name != ".." && name != "." && !name.contains(['/', '\\', '\0']);
        if !inside || name.is_empty() {
            return Err(refused(format!(
                "says that {tensor} is in `{name}`, which is not a file of its folder"
            )));
        }
        names.insert(name);
    }
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| !folder.join(name).is_file())
        .collect();
    if let Some(first) = missing.first() {
        return Err(refused(format!(
            "names {} files, of which {} are missing ({first} first); the download is incomplete or the index is stale",
            names.len(),
            missing.len()
        )));
    }
    let mut weights = Weights {
        files: names.iter().map(|name| folder.join(name)).collect(),
        tensors: BTreeMap::new(),
        aliases: BTreeMap::new(),
    };
    for file in 0..weights.files.len() {
        weights.add(file)?;
    }
    for (tensor, name) in places {
        match weights.tensors.get(tensor) {
            Some(stored)
                if name
                    .as_str()
                    .is_some_and(|name| weights.files[stored.file].ends_with(name)) => {}
            found => {
                let found = found.map_or("none has it".to_owned(), |stored| {
                    format!("{} has it", weights.files[stored.file].display())
                });
                return Err(refused(format!(
                    "says that {tensor} is in {name}, and {found}; the index is stale or a file was replaced"
                )));
            }
        }
    }
    if let Some(extra) = weights
        .tensors
        .keys()
        .find(|name| !places.contains_key(*name))
    {
        return Err(refused(format!(
            "does not list {extra}, which is in {}; the index is stale",
            weights.files[weights.tensors[extra].file].display()
        )));
    }
    Ok(weights)
}

impl Weights {
    /// Adds the tensors of one file.
    fn add(&mut self, file: usize) -> Result<()> {
        let path = self.files[file].clone();
        let (text, start) = safetensors::read(&path)?;
        let header: Header = serde_json::from_slice(&text)
            .map_err(|error| Error::checkpoint(&path, format!("bad header: {error}")))?;
        let bytes = files::size(&path)?.saturating_sub(start);
        check_ranges(&path, &header, bytes)?;
        for (name, entry) in header.tensors {
            let stored = stored(&path, &name, &entry, file, start)?;
            if let Some(other) = self.tensors.insert(name.clone(), stored) {
                return Err(Error::checkpoint(
                    &path,
                    format!(
                        "holds {name}, which is in {} too",
                        self.files[other.file].display()
                    ),
                ));
            }
        }
        self.aliases.extend(header.metadata);
        Ok(())
    }
}

/// The values of all tensors must fill the file, each byte once.
fn check_ranges(path: &Path, header: &Header, bytes: u64) -> Result<()> {
    let mut ranges: Vec<([u64; 2], &String)> = header
        .tensors
        .iter()
        .map(|(name, entry)| (entry.data_offsets, name))
        .collect();
    ranges.sort_unstable();
    let mut end = 0;
    for ([from, to], name) in ranges {
        let fault = if to > bytes {
            format!("ends at byte {to} of {bytes}; the file is truncated")
        } else if from < end || to < from {
            format!("has bytes {from} to {to}, which overlap those of another tensor")
        } else if from > end {
            format!("begins at byte {from}, and the tensor before it ends at {end}")
        } else {
            end = to;
            continue;
        };
        return Err(Error::checkpoint(path, format!("{name} {fault}")));
    }
    if end < bytes {
        return Err(Error::checkpoint(
            path,
            format!("has {} bytes after its last tensor", bytes - end),
        ));
    }
    Ok(())
}

fn stored(path: &Path, name: &str, entry: &Entry, file: usize, start: u64) -> Result<Stored> {
    let refused = |message: String| Err(Error::checkpoint(path, format!("{name} {message}")));
    let dtype = match entry.dtype.as_str() {
        "F32" => GgmlDType::F32,
        "F16" => GgmlDType::F16,
        "BF16" => GgmlDType::BF16,
        other => {
            return refused(format!(
                "is of type {other}; the types that axmem reads are F32, F16 and BF16"
            ));
        }
    };
    let shape = match entry.shape[..] {
        [len] => [1, len],
        [rows, columns] => [rows, columns],
        _ => {
            return refused(format!(
                "has shape {:?}; a model has vectors and matrices only",
                entry.shape
            ));
        }
    };
    if shape.contains(&0) {
        return refused(format!("has shape {:?}, which holds nothing", entry.shape));
    }
    let [from, to] = entry.data_offsets;
    let stored = Stored {
        file,
        offset: start + from,
        dtype,
        shape,
        interleaved: None,
    };
    if stored.bytes() != Some(to - from) {
        return refused(format!(
            "has shape {:?} in {} and {} bytes",
            entry.shape,
            entry.dtype,
            to - from
        ));
    }
    Ok(stored)
}
