//! Documents as JSON: lines, one array, or one object of titles; entry by entry, never whole.

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::path::Path;

use serde::de::{Deserializer as _, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Taker;
use crate::error::{Error, Result};
use crate::files;

/// Fields that are known and carry nothing an audit uses.
const PASSED_OVER: [&str; 2] = ["title", "url"];

pub(super) fn read(path: &Path, taker: &mut Taker) -> Result<()> {
    let mut file = files::open(path)?;
    if is_lines(&mut file, path)? {
        read_lines(file, path, taker)
    } else {
        read_whole(file, taker)
    }
}

/// Whether the file has one entry a line: by its name, or by a first line that is one.
fn is_lines(file: &mut BufReader<File>, path: &Path) -> Result<bool> {
    let named = path.extension().is_some_and(|ending| ending != "json");
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() {
        line.clear();
        let count = file
            .read_until(b'\n', &mut line)
            .map_err(Error::read("read", path))?;
        if count == 0 {
            break;
        }
    }
    file.rewind().map_err(Error::read("read", path))?;
    Ok(match line.trim_ascii().first() {
        Some(b'[') => false,
        _ if named => true,
        _ => serde_json::from_slice::<Map<String, Value>>(&line)
            .is_ok_and(|entry| entry.contains_key("id") || entry.contains_key("text")),
    })
}

fn read_lines(mut file: BufReader<File>, path: &Path, taker: &mut Taker) -> Result<()> {
    let mut line = Vec::new();
    let mut number = 0_u64;
    while !taker.is_full() {
        line.clear();
        number += 1;
        let count = file
            .read_until(b'\n', &mut line)
            .map_err(Error::read("read", path))?;
        if count == 0 {
            break;
        }
        let place = format!("line {number}");
        let text = std::str::from_utf8(&line).map_err(|error| {
            taker.error(
                &place,
                format!(
                    "byte {} of the line is not UTF-8; write the file as UTF-8",
                    error.valid_up_to() + 1
                ),
            )
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(text).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default();
            taker.error(
                &place,
                format!("is not JSON: {reason} at column {}", error.column()),
            )
        })?;
        entry(taker, &place, None, value)?;
    }
    Ok(())
}

fn read_whole(file: BufReader<File>, taker: &mut Taker) -> Result<()> {
    let mut ended = None;
    let mut deserializer = serde_json::Deserializer::from_reader(file);
    let result = deserializer
        .deserialize_any(Entries {
            taker,
            ended: &mut ended,
        })
        .and_then(|()| deserializer.end());
    match (ended, result) {
        (Some(End::Full), _) | (None, Ok(())) => Ok(()),
        (Some(End::Failed(error)), _) => Err(error),
        (None, Err(error)) => {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default();
            Err(taker.error(
                format!("line {}, column {}", error.line(), error.column()),
                format!("is not an array or object of documents: {reason}"),
            ))
        }
    }
}

/// Takes one entry; `title` is its name in an object of titles, which serves as its id.
fn entry(taker: &mut Taker, place: &str, title: Option<String>, value: Value) -> Result<()> {
    let mut fields = match value {
        Value::Object(fields) => fields,
        Value::String(text) => {
            if let Some(title) = title {
                return taker.take(place, title, text, None);
            }
            return Err(taker.error(place, wrong("document", &Value::String(text))));
        }
        other => return Err(taker.error(place, wrong("document", &other))),
    };
    let id = match fields.remove("id") {
        Some(Value::String(id)) => id,
        Some(Value::Number(id)) if !id.is_f64() => id.to_string(),
        Some(other) => {
            return Err(taker.error(place, wrong("\"id\"", &other)));
        }
        None => title.clone().ok_or_else(|| {
            taker.error(place, "has no \"id\"; give each document one of its own")
        })?,
    };
    let mut text = fields.remove("text");
    if text.is_none() && title.is_some() {
        text = fields.remove("extract");
    }
    let text = match text {
        Some(Value::String(text)) => text,
        Some(other) => {
            let message = format!("document {id:?}: {}", wrong("\"text\"", &other));
            return Err(taker.error(place, message));
        }
        None => {
            let message = format!("document {id:?} has no \"text\"; every document needs one");
            return Err(taker.error(place, message));
        }
    };
    let cluster = match fields.remove("cluster") {
        None | Some(Value::Null) => None,
        Some(Value::String(cluster)) => Some(cluster),
        Some(Value::Number(cluster)) if !cluster.is_f64() => Some(cluster.to_string()),
        Some(other) => {
            let message = format!("document {id:?}: {}", wrong("\"cluster\"", &other));
            return Err(taker.error(place, message));
        }
    };
    for name in fields.into_iter().map(|(name, _)| name) {
        if !PASSED_OVER.contains(&name.as_str()) {
            *taker.unused.entry(name).or_default() += 1;
        }
    }
    taker.take(place, id, text, cluster)
}

fn wrong(field: &str, value: &Value) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let needed = match field {
        "document" => "an object with \"id\" and \"text\"",
        "\"text\"" => "a text",
        _ => "a text or a whole number",
    };
    format!("{field} is {found}, but must be {needed}")
}

/// Why the walk over an array or object ended before the parser did.
enum End {
    Full,
    Failed(Error),
}

struct Entries<'a> {
    taker: &'a mut Taker,
    ended: &'a mut Option<End>,
}

impl Entries<'_> {
    /// A visitor can return the parser's errors only; the real reason is kept aside.
    fn take<E: serde::de::Error>(
        &mut self,
        place: &str,
        title: Option<String>,
        value: Value,
    ) -> std::result::Result<(), E> {
        if let Err(error) = entry(self.taker, place, title, value) {
            *self.ended = Some(End::Failed(error));
            return Err(E::custom("stopped"));
        }
        if self.taker.is_full() {
            *self.ended = Some(End::Full);
            return Err(E::custom("enough"));
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of documents or an object of titles")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        let mut number = 0_u64;
        while let Some(value) = items.next_element()? {
            number += 1;
            self.take::<A::Error>(&format!("entry {number}"), None, value)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        while let Some(title) = items.next_key::<String>()? {
            let value = items
                .next_value::<Value>()
                .map_err(|error| A::Error::custom(format!("{title:?}: {error}")))?;
            self.take::<A::Error>(&format!("entry {title:?}"), Some(title), value)?;
        }
        Ok(())
    }
}
