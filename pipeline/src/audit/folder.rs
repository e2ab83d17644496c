//! The folder of an audit: its key, its lock while work is in progress, and its record.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::store::{self, PARTIAL};

/// The record of a finished audit, written last.
const MANIFEST: &str = "manifest.json";
/// The key of an audit that has begun, in the folder of work in progress.
const KEY: &str = "key";

/// Makes the folder ready for an audit that begins or goes on, and locks it; nothing if it holds this audit, finished.
pub(super) fn begin(out: &Path, key: &str) -> Result<Option<File>> {
    let partial = out.join(PARTIAL);
    let begun = partial.join(KEY);
    let is_other = match Manifest::read(out)? {
        Some(manifest) if manifest.key == key && manifest.is_whole(out) => return Ok(None),
        Some(manifest) => manifest.key != key,
        None if begun.exists() => files::read_to_string(&begun)? != key,
        // A folder that was made and no more is free.
        None if out.is_dir() => files::list(out)?
            .iter()
            .any(|path| *path != partial || !files::list(path).is_ok_and(|held| held.is_empty())),
        None => out.exists(),
    };
    if is_other {
        return Err(Failure::usage(format!(
            "{} holds something else, or an audit of other documents, models or settings; name another folder with --out",
            out.display()
        )));
    }
    files::create_dir_all(&partial)?;
    let lock = hold(&partial)?;
    files::write_atomic(&begun, key.as_bytes())?;
    Ok(Some(lock))
}

/// The lock of a folder of work in progress; the system's, so a killed process leaves none behind.
fn hold(partial: &Path) -> Result<File> {
    let path = partial.join("lock");
    let file = File::create(&path)
        .map_err(|error| Failure::resources(format!("cannot write {}: {error}", path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::usage(format!(
            "another audit is writing to {} now; wait for it, or name another folder with --out",
            partial.parent().unwrap_or(partial).display()
        ))),
        Err(TryLockError::Error(error)) => Err(Failure::resources(format!(
            "cannot lock {}: {error}",
            path.display()
        ))),
    }
}

/// The record of a finished audit.
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    key: String,
    /// Version of the program.
    pub(crate) program: String,
    host: String,
    /// Wall-clock seconds of scoring.
    pub(crate) seconds: f64,
    peak_memory_bytes: u64,
    /// The sentence of the rate that is above `--fail-above`, if one is.
    pub(crate) exceeded: Option<String>,
    /// SHA-256 of every file that was written.
    pub(crate) files: BTreeMap<String, String>,
}

impl Manifest {
    /// The record in a folder, if there is one.
    pub(crate) fn read(out: &Path) -> Result<Option<Self>> {
        let path = out.join(MANIFEST);
        if !path.exists() {
            return Ok(None);
        }
        let manifest = serde_json::from_str(&files::read_to_string(&path)?)
            .map_err(|error| Failure::data(format!("{} can't be read: {error}", path.display())))?;
        Ok(Some(manifest))
    }

    /// Whether all files are there as they were written.
    fn is_whole(&self, out: &Path) -> bool {
        self.files.iter().all(|(name, hash)| {
            files::sha256_file(out.join(name)).is_ok_and(|found| found == *hash)
        })
    }

    pub(super) fn write(
        out: &Path,
        key: &str,
        exceeded: Option<String>,
        seconds: f64,
    ) -> Result<()> {
        let mut hashes = BTreeMap::new();
        for path in files::list(out)? {
            if path.is_file()
                && let Some(name) = path.file_name()
            {
                hashes.insert(
                    name.to_string_lossy().into_owned(),
                    files::sha256_file(&path)?,
                );
            }
        }
        let manifest = Self {
            key: key.to_owned(),
            program: env!("AXMEM_VERSION").to_owned(),
            host: store::host(),
            seconds,
            peak_memory_bytes: store::peak_memory_bytes(),
            exceeded,
            files: hashes,
        };
        let text = serde_json::to_string_pretty(&manifest).context("the manifest")?;
        Ok(files::write_atomic(out.join(MANIFEST), text.as_bytes())?)
    }
}
