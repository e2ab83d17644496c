//! The index of a checkpoint: what is stored where, with hashes. Written last; what has no index does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Field;
use super::record::{Piece, covering_fault};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::files;
use crate::grid::Grid;
use crate::optim::Optimizer;

/// Name of the index in a checkpoint's folder.
pub(crate) const FILE: &str = "index.json";

/// What `format` says.
const FORMAT: &str = "axmem checkpoint 1";

/// What a checkpoint is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Steps made, those without any kept target included.
    pub step: u64,
    /// Updates made by the optimizer.
    pub updates: u64,
    /// The model.
    pub model: ModelConfig,
    /// The optimizer whose state is stored; none beside weights alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
    /// The grid that wrote it; it loads into any other.
    pub grid: Grid,
}

/// The contents of `index.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Format and version.
    format: String,
    /// What the checkpoint is of.
    #[serde(flatten)]
    pub description: Description,
    /// Fields stored of every tensor.
    pub fields: Vec<Field>,
    /// Data files and their sizes in bytes.
    pub files: BTreeMap<String, u64>,
    /// Every stored piece.
    pub records: Vec<Record>,
}

/// A stored piece of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The tensor's published name.
    pub tensor: String,
    /// Shape of the whole tensor; vectors are `[1, n]`.
    pub shape: [usize; 2],
    /// Which elements.
    #[serde(flatten)]
    pub piece: Piece,
    /// The data file.
    pub file: String,
    /// One per field of the index, in its order.
    pub parts: Vec<Part>,
}

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which field.
    pub field: Field,
    /// Where its f32 values begin in the file, in bytes.
    pub offset: u64,
    /// SHA-256 of those bytes.
    pub sha256: String,
}

impl Index {
    /// An index of the given pieces.
    pub(crate) fn new(
        description: Description,
        fields: Vec<Field>,
        files: BTreeMap<String, u64>,
        records: Vec<Record>,
    ) -> Self {
        Self {
            format: FORMAT.into(),
            description,
            fields,
            files,
            records,
        }
    }

    /// Reads the index of the checkpoint in `folder` and checks that its data files have the right sizes.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Err(Error::checkpoint(
                folder,
                format!("no {FILE}: not a checkpoint, or one that was never completed"),
            ));
        }
        let bytes = files::read(&path)?;
        let index: Self = serde_json::from_slice(&bytes)
            .map_err(|error| Error::checkpoint(&path, format!("cannot be read: {error}")))?;
        if index.format != FORMAT {
            return Err(Error::checkpoint(
                &path,
                format!("format `{}`; this program reads `{FORMAT}`", index.format),
            ));
        }
        for (name, &bytes) in &index.files {
            index.check_file(folder, name, bytes)?;
        }
        for record in &index.records {
            index.check_record(&path, record)?;
        }
        Ok(index)
    }

    fn check_file(&self, folder: &Path, name: &str, bytes: u64) -> Result<()> {
        let path = folder.join(name);
        if Path::new(name).components().count() != 1 || name == ".." {
            return Err(Error::checkpoint(
                folder.join(FILE),
                format!("names the file `{name}`, which is not in its folder"),
            ));
        }
        if !path.exists() {
            return Err(Error::checkpoint(
                &path,
                format!(
                    "missing; the index lists it among {} files, so it is incomplete or the index is stale",
                    self.files.len()
                ),
            ));
        }
        let found = files::size(&path)?;
        if found != bytes {
            return Err(Error::checkpoint(
                &path,
                format!(
                    "has {found} bytes where the index says {bytes}; it is truncated or from another checkpoint"
                ),
            ));
        }
        Ok(())
    }

    /// A record's file must be listed, and its values must lie inside: sizes are checked before memory is taken.
    fn check_record(&self, path: &Path, record: &Record) -> Result<()> {
        let bytes = self.files.get(&record.file).copied().unwrap_or(0);
        let fits = record.piece.fits(record.shape)
            && record
                .parts
                .iter()
                .map(|part| part.field)
                .eq(self.fields.iter().copied())
            && record.parts.iter().all(|part| {
                (record.piece.len() as u64)
                    .checked_mul(4)
                    .and_then(|len| len.checked_add(part.offset))
                    .is_some_and(|end| end <= bytes)
            });
        if fits {
            return Ok(());
        }
        Err(Error::checkpoint(
            path,
            format!(
                "the record of {} does not fit {}",
                record.tensor, record.file
            ),
        ))
    }

    /// The records of each tensor.
    pub(crate) fn by_tensor(&self) -> BTreeMap<&str, Vec<&Record>> {
        let mut records: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            records.entry(&record.tensor).or_default().push(record);
        }
        records
    }

    /// Checks that exactly the tensors `expected` (name and shape) are stored, each element once.
    pub fn check_tensors<'a>(
        &self,
        folder: &Path,
        expected: impl Iterator<Item = (&'a str, [usize; 2])>,
    ) -> Result<()> {
        let path = folder.join(FILE);
        let mut pieces: BTreeMap<&str, Vec<Piece>> = BTreeMap::new();
        for record in &self.records {
            pieces
                .entry(&record.tensor)
                .or_default()
                .push(record.piece.clone());
        }
        let mut known = BTreeSet::new();
        let mut missing = Vec::new();
        for (name, shape) in expected {
            if !known.insert(name) {
                continue;
            }
            let Some(pieces) = pieces.get(name) else {
                missing.push(name);
                continue;
            };
            if let Some(record) = self
                .records
                .iter()
                .find(|record| record.tensor == name && record.shape != shape)
            {
                return Err(Error::checkpoint(
                    &path,
                    format!(
                        "{name} has shape {:?}; the model needs {shape:?}",
                        record.shape
                    ),
                ));
            }
            if let Some(fault) = covering_fault(shape, pieces) {
                return Err(Error::checkpoint(&path, format!("{name}: {fault}")));
            }
        }
        let extra: Vec<&str> = pieces
            .keys()
            .copied()
            .filter(|name| !known.contains(name))
            .collect();
        for (names, what) in [
            (missing, "lacks tensors that the model needs"),
            (extra, "holds tensors that the model does not have"),
        ] {
            if let Some(first) = names.first() {
                return Err(Error::checkpoint(
                    &path,
                    format!("{what}: {first} ({} in all)", names.len()),
                ));
            }
        }
        Ok(())
    }
}
