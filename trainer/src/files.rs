//! File access of the trainer: every error names its path, and what is written is either whole or not there.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::io(path))
}

/// Opens a file for reading.
pub(crate) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(Error::io(path))
}

/// Size of a file in bytes.
pub(crate) fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).map_err(Error::io(path))?.len())
}

/// Writes a file through `fill`: to a temporary file beside it, synchronised, then renamed over `path`.
pub(crate) fn write_atomic(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let temporary = beside(path, "partial");
    let mut writer = BufWriter::new(File::create(&temporary).map_err(Error::write(&temporary))?);
    fill(&mut writer)
        .and_then(|()| writer.flush())
        .and_then(|()| writer.get_ref().sync_all())
        .map_err(Error::write(&temporary))?;
    rename(&temporary, path)
}

/// Makes a folder and those above it.
pub(crate) fn create_dir_all(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::write(path))
}

/// Removes a folder and all in it; no error if it is not there.
pub(crate) fn remove_dir_all(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::write(path)(error))
        }
        _ => Ok(()),
    }
}

/// Renames a file or folder and makes the new name durable.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::write(to))?;
    sync_dir(parent(to))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(Error::write(path))
}

/// Names of the entries of a folder, sorted; none if there is no such folder.
pub(crate) fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io(path))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(Error::io(path))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The hidden sibling of `path` that carries `role`, such as `.step-10.partial`.
pub(crate) fn beside(path: &Path, role: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{role}"))
}

/// The folder that holds `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.json");
        write_atomic(&path, |file| file.write_all(b"old")).unwrap();
        let error = write_atomic(&path, |file| {
            file.write_all(b"ne")?;
            Err(std::io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(error.to_string().contains(".index.json.partial"));
        assert_eq!(error.kind(), crate::error::Kind::Resources);
        assert_eq!(read(&path).unwrap(), b"old");
    }
}
