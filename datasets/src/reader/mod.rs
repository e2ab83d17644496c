//! From files to documents, one reader a format, none of them holding a corpus in memory.
//!
//! | format | files | reader |
//! |---|---|---|
//! | Wikipedia Parquet | `.parquet` with string columns `id`, `url`, `title`, `text` | [`parquet`] |
//! | MediaWiki XML dump | `.xml`, `.bz2`, or anything that begins as one of them | [`dump`], [`wikitext`] |
//! | JSON | lines `{id, title, text}`, an array of those, or an object `{title: {text}}` | [`json`] |
//! | plain text | `.txt`, one document a file | [`plain`] |
//!
//! [`texts`] reads an auditor's own list of documents, more strictly.

pub mod dump;
pub mod json;
pub mod parquet;
pub mod plain;
mod templates;
pub mod texts;
pub mod wikitext;

pub use texts::{Text, Texts, read_texts};

use std::collections::HashMap;
use std::io::BufRead as _;
use std::path::Path;

use crate::document::{Document, Flag};
use crate::error::{Error, Result};
use crate::files;
use crate::source::SourceFile;

/// How the articles lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The Wikipedia Parquet schema.
    Parquet,
    /// A MediaWiki XML dump.
    Xml,
    /// A MediaWiki XML dump under bzip2.
    Bzip2,
    /// JSON lines, or one JSON object or array.
    Json,
    /// One document of plain text.
    Plain,
}

impl Format {
    /// What names a readable file may have, for messages.
    pub const NAMES: &'static str =
        "readable are .parquet, .xml, .bz2, .jsonl, .ndjson, .json and .txt";

    /// The format that the ending of a file's name says.
    pub fn from_name(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "parquet" => Some(Self::Parquet),
            "xml" => Some(Self::Xml),
            "bz2" => Some(Self::Bzip2),
            "jsonl" | "ndjson" | "json" => Some(Self::Json),
            "txt" => Some(Self::Plain),
            _ => None,
        }
    }

    /// The format by the name, or by the first bytes where the name says nothing (hub caches
    /// store files without an ending, dumps come as `….xml-p1p1000`).
    pub fn detect(path: &Path) -> Result<Self> {
        if let Some(format) = Self::from_name(path) {
            return Ok(format);
        }
        let mut file = files::open(path)?;
        let start = file.fill_buf().map_err(Error::read("read", path))?;
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            _ if start.starts_with(b"PAR1") => Ok(Self::Parquet),
            _ if start.starts_with(b"BZh") => Ok(Self::Bzip2),
            Some(b'<') => Ok(Self::Xml),
            Some(b'{' | b'[') => Ok(Self::Json),
            _ => Err(Error::input(
                path,
                "",
                format!("is in no format that can be read; {}", Self::NAMES),
            )),
        }
    }
}

/// What the readers saw; the counts of a dump add up: `pages` is `articles` + `redirects` +
/// `disambiguation` + `other_namespaces` + `empty`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Pages, rows, lines or files seen.
    pub pages: u64,
    /// Documents given on.
    pub articles: u64,
    /// Pages that only point to another page.
    pub redirects: u64,
    /// Pages that list the meanings of a title.
    pub disambiguation: u64,
    /// Pages outside the article namespace.
    pub other_namespaces: u64,
    /// Pages without text.
    pub empty: u64,
    /// Documents with [`Flag::TemplatesRemoved`].
    pub templates_removed: u64,
    /// The redirects, as (from, to) titles; [`read_pages`] hands them over instead.
    pub redirect_titles: Vec<(String, String)>,
}

/// A page of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// An article with text.
    Article(Document),
    /// A page that only points to another.
    Redirect {
        /// Its own id.
        id: String,
        /// Its title.
        title: String,
        /// The title that it points to.
        target: String,
    },
    /// The id of a page that is no article: of another namespace, a list of meanings, without text.
    Other(String),
}

impl Page {
    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Article(document) => &document.id,
            Self::Redirect { id, .. } | Self::Other(id) => id,
        }
    }
}

/// Reads every document of `files` in order into `sink`.
///
/// An error names file and place; an id that occurs twice is one. An error of `sink` ends the
/// reading and is returned.
pub fn read_documents(
    files: &[SourceFile],
    sink: &mut dyn FnMut(Document) -> Result<()>,
) -> Result<ReadReport> {
    let mut redirects = Vec::new();
    let report = read_pages(files, &mut |page| match page {
        Page::Article(document) => sink(document),
        Page::Redirect { title, target, .. } => {
            redirects.push((title, target));
            Ok(())
        }
        Page::Other(_) => Ok(()),
    })?;
    Ok(ReadReport {
        redirect_titles: redirects,
        ..report
    })
}

/// As [`read_documents`], with the pages that are no articles, and none of them kept.
///
/// # Errors
/// Those of [`read_documents`].
pub fn read_pages(
    files: &[SourceFile],
    sink: &mut dyn FnMut(Page) -> Result<()>,
) -> Result<ReadReport> {
    let mut output = Output {
        report: ReadReport::default(),
        seen: HashMap::new(),
        files,
        file: 0,
        sink,
    };
    for (index, file) in files.iter().enumerate() {
        output.file = index as u32;
        match Format::detect(&file.path)? {
            Format::Parquet => parquet::read(&file.path, &mut output)?,
            Format::Xml => dump::read(&file.path, false, &mut output)?,
            Format::Bzip2 => dump::read(&file.path, true, &mut output)?,
            Format::Json => json::read(&file.path, &mut output)?,
            Format::Plain => plain::read(&file.path, &mut output)?,
        }
    }
    Ok(output.report)
}

/// Where the readers put documents and counts.
pub struct Output<'a> {
    report: ReadReport,
    /// By the first half of an id's hash: the file and page where it was seen. Ids themselves
    /// would take several times the memory for millions of articles.
    seen: HashMap<u128, (u32, u64)>,
    files: &'a [SourceFile],
    file: u32,
    sink: &'a mut dyn FnMut(Page) -> Result<()>,
}

impl Output<'_> {
    /// Takes a document, or counts it as empty if it has no text.
    fn document(&mut self, document: Document) -> Result<()> {
        let report = &mut self.report;
        report.pages += 1;
        if document.text.trim().is_empty() {
            report.empty += 1;
            return (self.sink)(Page::Other(document.id));
        }
        report.articles += 1;
        report.templates_removed += u64::from(document.flags.contains(&Flag::TemplatesRemoved));
        let digest = crate::random::digest(0, "document id", &[document.id.as_bytes()]);
        let key = u128::from_le_bytes(digest[..16].try_into().expect("a digest has 32 bytes"));
        let place = (self.file, report.pages);
        if let Some(first) = self.seen.insert(key, place) {
            return Err(Error::data(format!(
                "two documents have the id {:?}: page {} of the source, in {}, and page {}, in \
                 {}; ids must be unique within a corpus",
                document.id,
                first.1,
                self.files[first.0 as usize].label,
                place.1,
                self.files[place.0 as usize].label,
            )));
        }
        (self.sink)(Page::Article(document))
    }
}
