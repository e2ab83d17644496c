//! Plain text: a file is one document, named by the file.

use std::path::Path;

use super::Output;
use crate::document::Document;
use crate::error::Result;
use crate::files;

/// Reads the one document of a UTF-8 text file; id and title are the name without its ending.
pub fn read(path: &Path, output: &mut Output<'_>) -> Result<()> {
    let text = files::read_to_string(path)?;
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    output.document(Document {
        id: name.clone(),
        title: name,
        text,
        ..Document::default()
    })
}
