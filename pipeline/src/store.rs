//! The artefact store: one folder for each key, complete if and only if it has a manifest.
//!
//! ```text
//! STORE/corpus-v1/KEY/documents.parquet …    data
//! STORE/corpus-v1/KEY/manifest.json          written last, with the hash of every file
//! STORE/corpus-v1/KEY/stat.json              size, time and inode of every file on this machine
//! STORE/train-v1/KEY/partial/                work in progress that a stage goes on from
//! STORE/locks/KEY.lock                       held by the process that makes the artefact
//! STORE/cache/                               fetched sources
//! STORE/NAME/                                the report of experiment NAME
//! ```
//!
//! Owns the layout, locks and checks; knows nothing of what the files mean.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use axmem_datasets::{files, source};
use axmem_trainer::{Axis, Schedule};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::digest;
use crate::exit::Failure;

/// The record of an artefact, written last.
pub const MANIFEST: &str = "manifest.json";
const STAT: &str = "stat.json";
/// Folder inside an artefact for work in progress; never part of the artefact.
pub const PARTIAL: &str = "partial";

/// What is known of an artefact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Stage that made it.
    pub stage: String,
    /// Version of the stage.
    pub version: u32,
    /// Its key.
    pub key: String,
    /// Model, arm, trial and time it is about, as printed.
    pub subject: String,
    /// The hashed settings.
    pub settings: Value,
    /// Stage and key of the inputs.
    pub inputs: Vec<(String, String)>,
    /// The files, by path inside the folder.
    pub files: BTreeMap<String, FileRecord>,
    /// Version of the program.
    pub program: String,
    /// Seed of the experiment.
    pub seed: u64,
    /// Sizes of the grid (x, y, z, data).
    pub grid: [usize; 4],
    /// How the stage ran on that grid, if it runs on ranks; of several attempts the last. The table
    /// `timings` has the grid of every step.
    #[serde(default)]
    pub ranks: Option<RanksRecord>,
    /// Compute type.
    pub dtype: String,
    /// Machine.
    pub host: String,
    /// Wall-clock seconds, all attempts of this process.
    pub seconds: f64,
    /// Peak resident memory of the process until the artefact was complete.
    pub peak_memory_bytes: u64,
    /// What was promised before the results were known; not part of the key.
    pub sealed: Value,
}

/// How the ranks of a stage were laid out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RanksRecord {
    /// `thread` or `mpi`.
    pub back_end: String,
    /// Number of processes.
    pub processes: usize,
    /// Axes from innermost to outermost.
    pub order: [Axis; 4],
    /// How a step ran.
    pub schedule: Schedule,
}

/// One file of an artefact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Size.
    pub bytes: u64,
    /// Hash of the content.
    pub sha256: String,
}

/// What the file system says of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stat {
    bytes: u64,
    modified: i64,
    modified_nanoseconds: i64,
    inode: u64,
}

impl Stat {
    fn of(path: &Path) -> Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(meta) => Ok(Some(Self {
                bytes: meta.len(),
                modified: meta.mtime(),
                modified_nanoseconds: meta.mtime_nsec(),
                inode: meta.ino(),
            })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::data(format!(
                "cannot read {}: {error}",
                path.display()
            ))),
        }
    }
}

/// A store on disk.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// The right to make one artefact; the system gives it back when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Store {
    /// A store in the folder `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of fetched sources.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The folder of an artefact.
    pub fn folder(&self, stage: &str, version: u32, key: &str) -> PathBuf {
        self.root.join(format!("{stage}-v{version}")).join(key)
    }

    /// The folder of the report of an experiment.
    pub fn published(&self, experiment: &str) -> PathBuf {
        self.root.join(experiment)
    }

    /// The hash of a local file's content, or of the names and contents of the files that are read
    /// of a folder (names count: ids of articles may come from them).
    /// Files whose size, time and inode are as at an earlier call are not read again.
    pub fn content(&self, path: &Path) -> Result<String> {
        let record = self.contents();
        let mut known: BTreeMap<String, (Stat, String)> = if record.exists() {
            serde_json::from_str(&files::read_to_string(&record)?).unwrap_or_default()
        } else {
            BTreeMap::new()
        };
        let is_folder = path.is_dir();
        let listed = if is_folder {
            source::readable_files(path)?
        } else {
            vec![path.to_path_buf()]
        };
        let mut new = false;
        let mut hashes = Vec::new();
        for file in &listed {
            let absolute = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            let name = absolute.display().to_string();
            let stat = Stat::of(file)?;
            let hash = match (stat, known.get(&name)) {
                (Some(stat), Some((same, hash))) if stat == *same => hash.clone(),
                _ => files::sha256_file(file)?,
            };
            if let Some(stat) = stat
                && known.insert(name, (stat, hash.clone())).as_ref() != Some(&(stat, hash.clone()))
            {
                new = true;
            }
            hashes.push((file.as_path(), hash));
        }
        // A store that can't be written yet is no obstacle to looking at a plan.
        if new && self.root.is_dir() {
            files::create_dir_all(self.cache())?;
            let text = serde_json::to_string(&known).context("hashes of local files")?;
            files::write_atomic(&record, text.as_bytes())?;
        }
        let hashes: Vec<_> = hashes.iter().map(|(path, hash)| (*path, &**hash)).collect();
        Ok(combined(is_folder, &hashes))
    }

    /// Forgets what [`Store::content`] has read, so that the next call reads again.
    pub fn forget_contents(&self) -> Result<()> {
        let record = self.contents();
        if record.exists() {
            remove_file(&record)?;
        }
        Ok(())
    }

    fn contents(&self) -> PathBuf {
        self.cache().join("contents.json")
    }

    /// Waits until no other process makes the artefact `key`; `waiting` is called once with the
    /// holder if there is one.
    pub fn lock(&self, key: &str, waiting: &mut dyn FnMut(&str)) -> Result<Lock> {
        let folder = self.root.join("locks");
        files::create_dir_all(&folder)?;
        let path = folder.join(format!("{key}.lock"));
        let failed = |error: std::io::Error| {
            Failure::resources(format!("cannot lock {}: {error}", path.display()))
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let mut told = false;
        // The lock is the system's, so a killed process never leaves one behind; the text in the
        // file only serves to name the holder.
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    if !told {
                        let mut holder = String::new();
                        file.rewind()
                            .and_then(|()| file.read_to_string(&mut holder))
                            .map_err(failed)?;
                        waiting(holder.trim());
                        told = true;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        let holder = format!("process {} on {}\n", std::process::id(), host());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder.as_bytes()))
            .map_err(failed)?;
        Ok(Lock { _file: file })
    }

    /// The manifest of a complete artefact. Compares size, time and inode of its files with those
    /// on record, and reads the content only of files for which these differ.
    ///
    /// # Errors
    /// A file that is missing or has another content (exit code 3).
    pub fn find(&self, folder: &Path) -> Result<Option<Manifest>> {
        let Some(manifest) = read_manifest(folder)? else {
            return Ok(None);
        };
        let known: BTreeMap<String, Stat> = read_stat(folder)?;
        let mut moved = false;
        for (name, record) in &manifest.files {
            let path = folder.join(name);
            let found = Stat::of(&path)?.ok_or_else(|| damaged(&path, "is missing"))?;
            if known.get(name) != Some(&found) {
                check(&path, record)?;
                moved = true;
            }
        }
        if moved {
            write_stat(folder, &manifest)?;
        }
        // Left over where a process was killed right after the manifest. It's in nobody's way, so
        // a store that can only be read is no error.
        let _ = remove_partial(folder);
        Ok(Some(manifest))
    }

    /// Reads every file of a complete artefact and compares its hash.
    ///
    /// # Errors
    /// As [`Store::find`].
    pub fn verify(&self, folder: &Path) -> Result<()> {
        let manifest =
            read_manifest(folder)?.ok_or_else(|| damaged(&folder.join(MANIFEST), "is missing"))?;
        for (name, record) in &manifest.files {
            check(&folder.join(name), record)?;
        }
        Ok(())
    }

    /// The manifest of an artefact, if it is there; no file is looked at.
    ///
    /// # Errors
    /// A manifest that can't be read (exit code 3).
    pub fn manifest(&self, folder: &Path) -> Result<Option<Manifest>> {
        read_manifest(folder)
    }

    /// The data files of an artefact as they are on disk, by path inside the folder.
    pub fn listed(&self, folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
        let paths = walk(folder)?.into_iter();
        Ok(paths.map(|path| (name_in(folder, &path), path)).collect())
    }

    /// The folders in which artefacts of a stage are, made by any version of it.
    pub fn artefacts(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for stage in files::list(&self.root)? {
            let name = stage.file_name().unwrap_or_default().to_string_lossy();
            let is_stage = name.rsplit_once("-v").is_some_and(|(_, version)| {
                !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
            });
            if is_stage && stage.is_dir() {
                found.extend(files::list(&stage)?);
            }
        }
        Ok(found)
    }

    /// Prepares the folder of an artefact that is about to be made: what an earlier attempt left
    /// is removed, save its work in progress.
    pub fn begin(&self, folder: &Path) -> Result<()> {
        files::create_dir_all(folder)?;
        for path in files::list(folder)? {
            if path.file_name().is_some_and(|name| name == PARTIAL) {
                continue;
            }
            if path.is_dir() {
                files::remove_dir_all(&path)?;
            } else {
                remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Declares the artefact complete: hashes its files, writes the manifest, and only then
    /// removes the work in progress.
    pub fn finish(&self, folder: &Path, mut manifest: Manifest) -> Result<Manifest> {
        manifest.files = BTreeMap::new();
        for path in walk(folder)? {
            let name = name_in(folder, &path);
            let record = FileRecord {
                bytes: files::size(&path)?,
                sha256: files::sha256_file(&path)?,
            };
            manifest.files.insert(name, record);
        }
        write_stat(folder, &manifest)?;
        let text = serde_json::to_string_pretty(&manifest).context("manifest")?;
        files::write_atomic(folder.join(MANIFEST), text.as_bytes())?;
        remove_partial(folder)?;
        Ok(manifest)
    }
}

/// What [`Store::content`] gives, from the hashes of the files: of the only file, or of the files
/// of a folder in the order of their names.
pub fn combined(is_folder: bool, hashes: &[(&Path, &str)]) -> String {
    match hashes {
        [(_, hash)] if !is_folder => (*hash).to_owned(),
        many => {
            let name = |path: &Path| path.file_name().map(|name| name.display().to_string());
            let named: Vec<_> = many.iter().map(|(path, hash)| (name(path), hash)).collect();
            digest(&serde_json::json!(named))
        }
    }
}

/// Removes the work in progress of a complete artefact; another process may do so at the same time.
fn remove_partial(folder: &Path) -> Result<()> {
    let partial = folder.join(PARTIAL);
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::resources(
            format!("cannot remove folder {}: {error}", partial.display()),
        )),
        _ => Ok(()),
    }
}

/// Removes a file; an error names it.
pub fn remove_file(path: &Path) -> Result<()> {
    fs::remove_file(path)
        .map_err(|error| Failure::resources(format!("cannot remove {}: {error}", path.display())))
}

fn read_manifest(folder: &Path) -> Result<Option<Manifest>> {
    let path = folder.join(MANIFEST);
    if !path.exists() {
        return Ok(None);
    }
    let text = files::read_to_string(&path)?;
    let manifest = serde_json::from_str(&text)
        .map_err(|error| damaged(&path, &format!("can't be read ({error})")))?;
    Ok(Some(manifest))
}

/// An unreadable record of times is only a reason to read the contents.
fn read_stat(folder: &Path) -> Result<BTreeMap<String, Stat>> {
    let path = folder.join(STAT);
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    Ok(serde_json::from_str(&files::read_to_string(&path)?).unwrap_or_default())
}

fn write_stat(folder: &Path, manifest: &Manifest) -> Result<()> {
    let mut stats = BTreeMap::new();
    for name in manifest.files.keys() {
        if let Some(stat) = Stat::of(&folder.join(name))? {
            stats.insert(name, stat);
        }
    }
    let text = serde_json::to_string_pretty(&stats).context("file times")?;
    Ok(files::write_atomic(folder.join(STAT), text.as_bytes())?)
}

/// Reads a file of an artefact and compares it with what its manifest says.
///
/// # Errors
/// A file that is missing or has another content (exit code 3).
pub fn check(path: &Path, record: &FileRecord) -> Result<()> {
    let bytes = files::size(path).map_err(|_| damaged(path, "is missing"))?;
    if bytes != record.bytes {
        return Err(damaged(
            path,
            &format!("has {bytes} bytes instead of {}", record.bytes),
        ));
    }
    if files::sha256_file(path)? != record.sha256 {
        return Err(damaged(path, "has another content than when it was made"));
    }
    Ok(())
}

fn damaged(path: &Path, what: &str) -> anyhow::Error {
    let folder = path.parent().unwrap_or(path);
    Failure::data(format!(
        "{} {what}; remove the folder {} to make it again",
        path.display(),
        folder.display()
    ))
}

/// The name of a file in a manifest.
fn name_in(folder: &Path, path: &Path) -> String {
    let name = path.strip_prefix(folder).unwrap_or(path);
    name.display().to_string()
}

/// All files of an artefact, sorted.
fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in files::list(folder)? {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if [MANIFEST, STAT, PARTIAL].contains(&name) {
            continue;
        }
        if path.is_dir() {
            found.extend(walk(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// The name of this machine, "unknown" where the system doesn't say.
pub fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Peak resident memory of this process in bytes, 0 where the system doesn't say.
pub fn peak_memory_bytes() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim()
                .trim_end_matches(" kB")
                .trim()
                .parse::<u64>()
                .ok()
        })
        .map_or(0, |kilobytes| kilobytes * 1024)
}
