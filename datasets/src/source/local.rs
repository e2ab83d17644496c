//! Files that are already on this machine.

use std::path::Path;

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
    let mut found = Vec::new();
    for file in files::list(path)? {
        if file.is_file() && Format::from_name(&file).is_some() {
            let label = file.display().to_string();
            found.push(SourceFile::describe(file, label)?);
        }
    }
    if found.is_empty() {
        return Err(Error::input(
            path,
            "",
            format!("holds no readable file; {}", Format::NAMES),
        ));
    }
    Ok(found)
}
