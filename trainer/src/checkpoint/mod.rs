//! Checkpoints: written by every rank of one grid, read by every rank of any other.
//!
//! A checkpoint is a folder with one data file per rank that owns something, and `index.json`, written last. A stored
//! record is the flat range [a, b) of a block [r0, r1) x [c0, c1) of a tensor, with the fields weight, m and v in f32;
//! padding is never stored. The folder is made under a hidden name and renamed when it is complete and on disk, so a
//! checkpoint is whole or not there, and the one before it stays until then.

mod data;
mod export;
mod index;
mod record;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use export::{Export, ExportDtype, Exported, export};
pub use index::{Description, Index, Part, Record};
pub use record::{Overlap, Piece, covering_fault, real_runs};

use self::data::PartReader;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::files;
use crate::grid::Axis;
use crate::llama::Llama;
use crate::param::{Block, Param};
use crate::rank::Rank;

/// What is stored of every element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Field {
    /// The f32 master weight.
    #[serde(rename = "weight")]
    Weight,
    /// The optimizer's running mean of gradients.
    #[serde(rename = "m")]
    FirstMoment,
    /// The optimizer's running mean of squared gradients.
    #[serde(rename = "v")]
    SecondMoment,
}

impl Field {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::FirstMoment => "m",
            Self::SecondMoment => "v",
        }
    }
}

/// A rank's part of one tensor, to be saved.
#[derive(Clone, Debug)]
pub struct Shard<'a> {
    /// The tensor's published name.
    pub name: &'a str,
    /// Shape of the whole tensor.
    pub shape: [usize; 2],
    /// What this rank holds of it.
    pub block: &'a Block,
    /// Whether this rank is the one that stores it (see [`crate::Placement::counts`]).
    pub owned: bool,
    /// The values of each field, `[block.flat.len()]`.
    pub fields: Vec<&'a [f32]>,
}

/// A rank's part of one tensor, to be loaded.
#[derive(Debug)]
pub struct Target<'a> {
    /// The tensor's published name.
    pub name: &'a str,
    /// Shape of the whole tensor.
    pub shape: [usize; 2],
    /// What this rank holds of it.
    pub block: &'a Block,
    /// Where the values of each field go, `[block.flat.len()]`; padding becomes zero.
    pub fields: Vec<(Field, &'a mut [f32])>,
}

/// The folder of the checkpoint after `step` under `root`.
pub fn step_folder(root: &Path, step: u64) -> PathBuf {
    root.join(format!("step-{step:08}"))
}

/// The newest complete checkpoint under `root`, with its step. To be called by one rank, or before the ranks start.
pub fn latest(root: &Path) -> Result<Option<(u64, PathBuf)>> {
    Ok(complete(root)?.pop())
}

/// Removes all but the `keep` newest complete checkpoints under `root`, and what broken-off saves left behind. To be
/// called by one rank, after the newest is complete.
pub fn prune(root: &Path, keep: usize) -> Result<()> {
    let mut found = complete(root)?;
    found.truncate(found.len().saturating_sub(keep));
    for (_, folder) in found {
        files::remove_dir_all(&folder)?;
    }
    for name in files::names(root)? {
        if name.starts_with(".step-") {
            files::remove_dir_all(&root.join(name))?;
        }
    }
    Ok(())
}

/// Complete checkpoints under `root` by step, after undoing replacements that broke off.
fn complete(root: &Path) -> Result<Vec<(u64, PathBuf)>> {
    for name in files::names(root)? {
        let replaced = name
            .strip_prefix('.')
            .and_then(|name| name.strip_suffix(".previous"));
        if let Some(name) = replaced {
            restore(&root.join(name))?;
        }
    }
    let mut found: Vec<(u64, PathBuf)> = files::names(root)?
        .iter()
        .filter_map(|name| name.strip_prefix("step-")?.parse().ok())
        .map(|step| (step, step_folder(root, step)))
        .filter(|(_, folder)| folder.join(index::FILE).exists())
        .collect();
    found.sort();
    Ok(found)
}

/// Saves a checkpoint as the folder `folder`, replacing one that is there only when the new one is complete. Collective:
/// every rank calls it with its shards of the same tensors.
pub fn save(
    rank: &Rank,
    folder: &Path,
    description: &Description,
    fields: &[Field],
    shards: &[Shard<'_>],
) -> Result<()> {
    let partial = files::beside(folder, "partial");
    on_first(rank, folder, || {
        if folder.is_file() {
            return Err(Error::write(folder)(ErrorKind::NotADirectory.into()));
        }
        restore(folder)?;
        files::remove_dir_all(&partial)?;
        files::create_dir_all(&partial)
    })?;
    let file = partial.join(format!("rank-{:05}.safetensors", rank.index));
    together(rank, folder, data::write(&file, fields, shards))?;
    on_first(rank, folder, || {
        write_index(&partial, description, fields)?;
        install(&partial, folder)
    })
}

/// What the first rank does to a checkpoint while the others wait. Collective.
fn on_first(rank: &Rank, folder: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let outcome = if rank.is_first() { work() } else { Ok(()) };
    together(rank, folder, outcome)
}

/// The outcome of this rank; if it is good but another's is not, an error that names the other. So all ranks go on, or none
/// does. Collective.
fn together<T>(rank: &Rank, folder: &Path, outcome: Result<T>) -> Result<T> {
    let mut failed = match outcome {
        Ok(_) => 0,
        Err(_) => 1 + rank.index as u64,
    };
    for axis in Axis::DEFAULT_ORDER {
        let all = rank.group(axis).all_gather_words(&[failed])?;
        failed = all.into_iter().flatten().max().unwrap_or(0);
    }
    let value = outcome?;
    match failed {
        0 => Ok(value),
        other => Err(Error::Rank {
            rank: other as usize - 1,
            message: format!("could not write its part of {}", folder.display()),
        }),
    }
}

/// Saves the weights of `llama` alone, as the start of trainings with any optimizer. Collective.
pub fn save_weights(rank: &Rank, folder: &Path, llama: &Llama) -> Result<()> {
    let shards: Vec<Shard<'_>> = llama
        .params()
        .iter()
        .map(|param| Shard {
            name: &param.name,
            shape: param.shape,
            block: &param.block,
            owned: param.placement.counts(rank.coord) && rank.coord.data == 0,
            fields: vec![&param.weight[..]],
        })
        .collect();
    let description = Description {
        step: 0,
        updates: 0,
        model: llama.config().clone(),
        optimizer: None,
        grid: rank.grid.clone(),
    };
    save(rank, folder, &description, &[Field::Weight], &shards)
}

/// Joins the records of all data files into the index.
fn write_index(folder: &Path, description: &Description, fields: &[Field]) -> Result<()> {
    let (mut sizes, mut records) = (BTreeMap::new(), Vec::new());
    for name in files::names(folder)? {
        let path = folder.join(&name);
        sizes.insert(name, files::size(&path)?);
        records.extend(data::records(&path)?);
    }
    let index = Index::new(description.clone(), fields.to_vec(), sizes, records);
    let path = folder.join(index::FILE);
    files::write_atomic(&path, |writer| {
        serde_json::to_writer(writer, &index).map_err(Into::into)
    })
}

/// Puts a complete folder in its place. The one it replaces is moved aside first; see [`restore`].
fn install(partial: &Path, folder: &Path) -> Result<()> {
    let previous = files::beside(folder, "previous");
    if folder.exists() {
        files::rename(folder, &previous)?;
    }
    files::rename(partial, folder)?;
    files::remove_dir_all(&previous)
}

/// Undoes a replacement that broke off between its two renames.
fn restore(folder: &Path) -> Result<()> {
    let previous = files::beside(folder, "previous");
    if !previous.exists() {
        return Ok(());
    }
    if folder.exists() {
        files::remove_dir_all(&previous)
    } else {
        files::rename(&previous, folder)
    }
}

/// Loads a checkpoint of `model`, written on any grid, into this rank's targets. Collective. Every tensor must be covered
/// exactly once, and every piece that is read must have the hash in the index. Pieces are streamed: beside the targets no more
/// than a chunk of them is in memory. After an error the targets hold anything.
pub fn load(
    rank: &Rank,
    folder: &Path,
    model: &ModelConfig,
    targets: &mut [Target<'_>],
) -> Result<Index> {
    if rank.is_first() {
        restore(folder)?;
    }
    rank.barrier()?;
    let index = Index::read(folder)?;
    let stored = &index.description.model;
    if stored != model {
        return Err(Error::checkpoint(
            folder,
            format!("is of another model: {stored:?}, expected {model:?}"),
        ));
    }
    index.check_tensors(
        folder,
        targets.iter().map(|target| (target.name, target.shape)),
    )?;
    let records = index.by_tensor();
    let mut buffer = Vec::new();
    for target in targets {
        fill(folder, target, &records[target.name], &mut buffer)?;
    }
    Ok(index)
}

/// Loads the weights alone, as for scoring or to start a training from them.
pub fn load_weights(
    rank: &Rank,
    folder: &Path,
    model: &ModelConfig,
    params: &mut [Param],
) -> Result<Index> {
    let mut targets: Vec<Target<'_>> = params
        .iter_mut()
        .map(|param| Target {
            name: &param.name,
            shape: param.shape,
            block: &param.block,
            fields: vec![(Field::Weight, &mut param.weight[..])],
        })
        .collect();
    load(rank, folder, model, &mut targets)
}

/// Fills one target from the records of its tensor.
fn fill(
    folder: &Path,
    target: &mut Target<'_>,
    records: &[&Record],
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let piece = Piece::of(target.block);
    for (field, values) in &mut target.fields {
        values.fill(0.0);
        for record in records {
            if record.piece.overlaps(&piece).next().is_none() {
                continue;
            }
            let mut reader = PartReader::open(folder, record, *field)?;
            reader.scatter(target.block, values, buffer)?;
            reader.finish()?;
        }
    }
    Ok(())
}
