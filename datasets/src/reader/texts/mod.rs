//! Documents for an audit: an id, a text, and perhaps the cluster it belongs to.
//!
//! | input | form |
//! |---|---|
//! | `.jsonl`, `.ndjson`, `.json` | lines or an array of `{"id", "text", "cluster"?}`, or one object of titles |
//! | `.parquet` | string columns `id` and `text`, perhaps `cluster` |
//! | `.txt`, or a folder of them | one document a file, named by it |
//! | `.xml`, `.bz2` | a MediaWiki dump, read as [`super::dump`] does |
//!
//! An auditor's list is taken as it is or not at all: a missing field, an empty text or an id that
//! comes twice is an error with its place, where the readers of a corpus would count and go on.

mod rows;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::{Format, read_documents};
use crate::error::{Error, Result};
use crate::files;
use crate::source::SourceFile;

/// One document of an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Unique within the input.
    pub id: String,
    /// The text, UTF-8, as it was given.
    pub text: String,
    /// The name of the group within which documents depend on each other, if given.
    pub cluster: Option<String>,
}

/// The documents of an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// In the order of the input.
    pub documents: Vec<Text>,
    /// SHA-256, in hexadecimal, of the whole file; of a folder, that of the lines
    /// "hash, two spaces, name" of its text files in the order of their names.
    pub sha256: String,
    /// What a user should know, one sentence each.
    pub notes: Vec<String>,
}

/// Reads the documents at `path`, at most the first `limit`.
///
/// Fails with [`Error::Input`], which names file, place and id, for a missing or empty field, a
/// wrong type, text that is not UTF-8 and an id that comes twice, and with [`Error::Usage`] if
/// there is no document or `limit` is 0.
pub fn read_texts(path: &Path, limit: Option<usize>) -> Result<Texts> {
    if limit == Some(0) {
        return Err(Error::usage(
            "the limit of documents is 0; leave it out to read all",
        ));
    }
    let mut taker = Taker::new(path, limit.unwrap_or(usize::MAX));
    let sha256 = if path.is_dir() {
        folder(path, &mut taker)?
    } else {
        match Format::detect(path)? {
            Format::Json => values::read(path, &mut taker)?,
            Format::Parquet => rows::read(path, &mut taker)?,
            Format::Plain => plain(path, &mut taker)?,
            Format::Xml | Format::Bzip2 => dump(path, &mut taker)?,
        }
        files::sha256_file(path)?
    };
    taker.finish(sha256)
}

/// Takes documents one by one, until there are enough.
struct Taker {
    path: PathBuf,
    limit: usize,
    documents: Vec<Text>,
    /// By id: where it was seen.
    seen: HashMap<String, String>,
    /// By the name of a field that is not used: how many documents have it.
    unused: BTreeMap<String, u64>,
    notes: Vec<String>,
}

impl Taker {
    fn new(path: &Path, limit: usize) -> Self {
        Self {
            path: path.to_path_buf(),
            limit,
            documents: Vec::new(),
            seen: HashMap::new(),
            unused: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.documents.len() >= self.limit
    }

    fn error(&self, place: impl Into<String>, message: impl Into<String>) -> Error {
        Error::input(&self.path, place, message)
    }

    /// Takes a document that was found at `place`.
    fn take(
        &mut self,
        place: &str,
        id: String,
        text: String,
        cluster: Option<String>,
    ) -> Result<()> {
        if id.trim().is_empty() {
            return Err(self.error(place, "has an empty id; give each document its own"));
        }
        if text.trim().is_empty() {
            return Err(self.error(
                place,
                format!("document {id:?} has an empty text; remove it, or give its text"),
            ));
        }
        if let Some(first) = self.seen.insert(id.clone(), place.to_owned()) {
            return Err(self.error(
                place,
                format!("document {id:?} was already given at {first}; ids must be unique"),
            ));
        }
        self.documents.push(Text { id, text, cluster });
        Ok(())
    }

    fn finish(mut self, sha256: String) -> Result<Texts> {
        if self.documents.is_empty() {
            return Err(Error::data(format!(
                "{} holds no document; an audit needs at least one",
                self.path.display()
            )));
        }
        if !self.unused.is_empty() {
            let fields: Vec<_> = self
                .unused
                .iter()
                .map(|(name, count)| format!("{name:?} (in {count})"))
                .collect();
            self.notes.push(format!(
                "fields other than id, text and cluster are not used: {}",
                fields.join(", ")
            ));
        }
        Ok(Texts {
            documents: self.documents,
            sha256,
            notes: self.notes,
        })
    }
}

/// One file of plain text is one document.
fn plain(path: &Path, taker: &mut Taker) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let id = path.file_stem().unwrap_or_default().to_string_lossy();
    let text = files::read_to_string(path)?;
    taker.take(&format!("file {name}"), id.into_owned(), text, None)
}

/// The text files of a folder; gives the hash of all of them, also beyond the limit.
fn folder(path: &Path, taker: &mut Taker) -> Result<String> {
    let mut others = Vec::new();
    let mut hashes = Vec::new();
    for file in files::list(path)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !file.is_file() || Format::from_name(&file) != Some(Format::Plain) {
            others.push(name.into_owned());
            continue;
        }
        hashes.push(format!("{}  {name}\n", files::sha256_file(&file)?));
        if !taker.is_full() {
            plain(&file, taker)?;
        }
    }
    if hashes.is_empty() {
        return Err(Error::input(
            path,
            "",
            "holds no .txt file; give a folder of .txt files, or one .jsonl, .json, .parquet, \
             .xml or .bz2 file",
        ));
    }
    if !others.is_empty() {
        let first: Vec<_> = others
            .iter()
            .take(3)
            .map(|name| format!("{name:?}"))
            .collect();
        let more = if others.len() > first.len() {
            ", …"
        } else {
            ""
        };
        taker.notes.push(format!(
            "only .txt files of a folder are read; left out: {} ({}{more})",
            others.len(),
            first.join(", ")
        ));
    }
    Ok(files::sha256(hashes.concat().as_bytes()))
}

/// The articles of a MediaWiki dump.
fn dump(path: &Path, taker: &mut Taker) -> Result<()> {
    let file = SourceFile {
        path: path.to_path_buf(),
        label: path.display().to_string(),
        sha256: String::new(),
        bytes: 0,
    };
    let mut full = false;
    let mut pages = 0;
    let read = read_documents(&[file], &mut |document| {
        pages += 1;
        taker.take(
            &format!("article {pages} ({})", document.title),
            document.id,
            document.text,
            None,
        )?;
        full = taker.is_full();
        if full {
            // Ends the reading; the error itself goes no further.
            return Err(Error::data("enough"));
        }
        Ok(())
    });
    let report = match read {
        Err(_) if full => return Ok(()),
        read => read?,
    };
    let left_out = report.pages - report.articles;
    if left_out > 0 {
        taker.notes.push(format!(
            "of {} pages, {left_out} are not articles with text: {} redirects, {} \
             disambiguation pages, {} of other namespaces, {} empty",
            report.pages,
            report.redirects,
            report.disambiguation,
            report.other_namespaces,
            report.empty
        ));
    }
    if report.templates_removed > 0 {
        taker.notes.push(format!(
            "in {} articles inline templates were removed, so sentences may lack words",
            report.templates_removed
        ));
    }
    Ok(())
}
