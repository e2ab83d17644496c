//! Files that are already on this machine.

use std::path::{Path, PathBuf};

use super::SourceFile;
use crate::error::{Error, Result};
use crate::files;
use crate::reader::Format;

/// The file at `path`, or the readable files of the folder at `path`, in the order of their names.
pub(super) fn fetch(path: &Path) -> Result<Vec<SourceFile>> {
    let label = path.display().to_string();
    if !path.is_dir() {
        if !path.exists() && label.contains(':') {
            return Err(Error::usage(format!(
                "no file {label}; if a source elsewhere is meant, write hf:ORGANISATION/NAME, \
                 pypi:NAME==VERSION/PATH/INSIDE or grammar:articles=N,sentences=N,seed=N"
            )));
        }
        return Ok(vec![SourceFile::describe(path.to_path_buf(), label)?]);
    }
    readable_files(path)?
        .into_iter()
        .map(|file| {
            let label = file.display().to_string();
            SourceFile::describe(file, label)
        })
        .collect()
}

/// The files of a folder that are read when it is a source, in the order of their names.
///
/// Fails if there is none.
pub fn readable_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = files::list(folder)?;
    found.retain(|file| file.is_file() && Format::from_name(file).is_some());
    if found.is_empty() {
        return Err(Error::input(
            folder,
            "",
            format!("holds no readable file; {}", Format::NAMES),
        ));
    }
    Ok(found)
}
