//! JSON in three forms: lines of `{id, title, text}`, one array of those, or one object that maps
//! titles to texts or to objects with a `text` or an `extract`.
//!
//! Arrays and objects are read entry by entry, never whole.

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::Output;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::files;

/// An entry as it may be written; unknown keys are of no interest.
#[derive(Deserialize)]
struct Entry {
    id: Option<Id>,
    title: Option<String>,
    url: Option<String>,
    text: Option<String>,
    extract: Option<String>,
}

/// Ids are text, though some files write them as numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(u64),
}

/// The value of a title: its text, or an entry.
#[derive(Deserialize)]
#[serde(untagged)]
enum Titled {
    Text(String),
    Entry(Entry),
}

impl Entry {
    /// The document, with `name` for a missing id; `None` if there is no text at all.
    fn document(self, name: impl FnOnce() -> String) -> Option<Document> {
        Some(Document {
            text: self.text.or(self.extract)?,
            id: match self.id {
                Some(Id::Text(id)) => id,
                Some(Id::Number(id)) => id.to_string(),
                None => name(),
            },
            title: self.title.unwrap_or_default(),
            url: self.url.unwrap_or_default(),
            flags: Vec::new(),
        })
    }
}

/// Reads every entry of a JSON file.
pub fn read(path: &Path, output: &mut Output<'_>) -> Result<()> {
    let mut file = files::open(path)?;
    if is_lines(&mut file, path)? {
        read_lines(file, path, output)
    } else {
        read_value(file, path, output)
    }
}

/// Whether the first line with content is a whole entry by itself.
fn is_lines(file: &mut BufReader<File>, path: &Path) -> Result<bool> {
    let named = path.extension().is_some_and(|ending| ending != "json");
    let mut line = String::new();
    while line.trim().is_empty() {
        line.clear();
        let count = file
            .read_line(&mut line)
            .map_err(Error::read("read", path))?;
        if count == 0 {
            break;
        }
    }
    file.rewind().map_err(Error::read("read", path))?;
    // A file named .jsonl whose first line is broken should be told so with its line number.
    Ok(match line.trim().as_bytes().first() {
        Some(b'[') => false,
        _ if named => true,
        _ => serde_json::from_str::<Entry>(&line).is_ok_and(|entry| entry.text.is_some()),
    })
}

fn read_lines(mut file: BufReader<File>, path: &Path, output: &mut Output<'_>) -> Result<()> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut line = String::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        let place = || format!("line {number}");
        let count = file
            .read_line(&mut line)
            .map_err(|error| Error::input(path, place(), error.to_string()))?;
        if count == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        let entry: Entry = serde_json::from_str(&line)
            .map_err(|error| Error::input(path, place(), message(&error)))?;
        let document = entry
            .document(|| format!("{stem}-{number}"))
            .ok_or_else(|| Error::input(path, place(), "has no \"text\""))?;
        output.document(document)?;
    }
}

fn read_value(file: BufReader<File>, path: &Path, output: &mut Output<'_>) -> Result<()> {
    let mut failure = None;
    let mut deserializer = serde_json::Deserializer::from_reader(file);
    let visitor = Entries {
        path,
        output,
        failure: &mut failure,
    };
    let result = deserializer
        .deserialize_any(visitor)
        .and_then(|()| deserializer.end());
    match (failure, result) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            Err(Error::input(path, place, message(&error)))
        }
        (None, Ok(())) => Ok(()),
    }
}

/// The reason alone: the place is told once, by the error that carries it.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    format!("is not a JSON document of the expected form: {reason}")
}

/// Hands the entries of an array or object on as they are parsed. `failure` keeps an error that is
/// not of the JSON syntax, since a visitor can return the parser's errors only.
struct Entries<'a, 'o> {
    path: &'a Path,
    output: &'a mut Output<'o>,
    failure: &'a mut Option<Error>,
}

impl Entries<'_, '_> {
    fn take<E: serde::de::Error>(
        &mut self,
        document: Option<Document>,
        place: impl FnOnce() -> String,
    ) -> std::result::Result<(), E> {
        let taken = match document {
            Some(document) => self.output.document(document),
            None => Err(Error::input(
                self.path,
                place(),
                "has neither \"text\" nor \"extract\"",
            )),
        };
        taken.map_err(|error| {
            *self.failure = Some(error);
            E::custom("stopped")
        })
    }
}

impl<'de> Visitor<'de> for Entries<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of documents or an object of titles")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let mut number = 0;
        while let Some(entry) = items.next_element::<Entry>()? {
            number += 1;
            let document = entry.document(|| format!("{stem}-{number}"));
            self.take::<A::Error>(document, || format!("entry {number}"))?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        while let Some(title) = items.next_key::<String>()? {
            let value = items
                .next_value::<Titled>()
                .map_err(|error| A::Error::custom(format!("{title:?}: {error}")))?;
            let document = match value {
                Titled::Text(text) => Some(Document {
                    id: title.clone(),
                    text,
                    ..Document::default()
                }),
                Titled::Entry(entry) => entry.document(|| title.clone()),
            };
            let document = document.map(|document| Document {
                title: title.clone(),
                ..document
            });
            self.take::<A::Error>(document, || format!("entry {title:?}"))?;
        }
        Ok(())
    }
}
