//! YAML as a tree that knows its lines, and serde types made from that tree.
//!
//! `serde_saphyr` parses the text (YAML 1.2: `1e-4` is a number, `yes` is text). Between the tree
//! and the types stand base files, `--set` and sweeps, which replace branches; an error then still names file, line and
//! field. This file knows nothing of what the fields mean.

mod typed;

use std::fmt;

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// Where a value or a key stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the file among those that were read; 0 is the one that the user named.
    pub(crate) file: usize,
    /// Line in the file, 0 for the command line and for a file as a whole.
    pub(crate) line: u64,
}

impl Place {
    /// What was typed after `--set`.
    pub(crate) const COMMAND_LINE: Self = Self { file: 0, line: 0 };
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// One YAML value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Entries in the order of the file: key, place of the key, value.
    Map(Vec<(String, Place, Node)>),
}

/// What is wrong with a tree or a text, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// The file and the line in it.
    pub(crate) place: Place,
    /// Dotted path of the field, empty for the file as a whole.
    pub(crate) path: String,
    /// The sentence.
    pub(crate) message: String,
    placed: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Problem {
    /// A problem at a known place.
    pub(crate) fn new(place: Place, path: &str, message: impl Into<String>) -> Self {
        Self {
            place,
            path: path.to_owned(),
            message: message.into(),
            placed: true,
        }
    }

    fn at(mut self, node: &Node, path: &str) -> Self {
        if !self.placed {
            self.place = node.place;
            path.clone_into(&mut self.path);
            self.placed = true;
        }
        self
    }
}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            message: message.to_string(),
            ..Self::default()
        }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(unknown("key", field, expected))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(unknown("choice", variant, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("the key `{field}` is missing"))
    }
}

fn unknown(what: &str, found: &str, expected: &[&str]) -> String {
    let near = expected
        .iter()
        .map(|name| (distance(found, name), name))
        .min()
        .filter(|(distance, name)| *distance <= (name.len() / 2).clamp(1, 2))
        .map_or_else(String::new, |(_, name)| format!("; did you mean `{name}`?"));
    format!(
        "unknown {what} `{found}`, allowed: {}{near}",
        expected.join(", ")
    )
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Parses a YAML text; its places are those of file 0.
pub(crate) fn parse(text: &str) -> Result<Node, Problem> {
    // YAML 1.2: only true and false are booleans.
    let options = serde_saphyr::options! { strict_booleans: true };
    let spanned: Spanned<Value> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| Problem {
            place: line(error.location().map_or(0, |location| location.line())),
            message: message_without_place(&error),
            path: String::new(),
            placed: true,
        })?;
    Ok(spanned.into())
}

fn line(line: u64) -> Place {
    Place { file: 0, line }
}

/// The parser ends its messages with the place, which is printed before the message here.
fn message_without_place(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    let text = text
        .split(", set DuplicateKeyPolicy")
        .next()
        .unwrap_or(text);
    format!("not valid YAML: {text}")
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self {
            place: line(spanned.referenced.line()),
            value: spanned.value,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element::<Spanned<Value>>()? {
            items.push(item.into());
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = access.next_entry::<Spanned<String>, Spanned<Value>>()? {
            let place = line(key.referenced.line());
            entries.push((key.value, place, value.into()));
        }
        Ok(Value::Map(entries))
    }
}

impl Value {
    /// What it is, for a sentence.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => format!("{value}"),
            Self::Unsigned(value) => format!("the number {value}"),
            Self::Signed(value) => format!("the number {value}"),
            Self::Float(value) => format!("the number {value}"),
            Self::Text(text) => format!("the text \"{text}\""),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a mapping".to_owned(),
        }
    }
}

impl Node {
    /// Nothing, from the command line.
    pub(crate) fn nothing() -> Self {
        Self {
            place: Place::COMMAND_LINE,
            value: Value::Null,
        }
    }

    /// The value of a key of a mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        entries
            .iter()
            .find(|(name, _, _)| name == key)
            .map(|(_, _, node)| node)
    }

    /// The entry of a mapping, made if it is not there, or the item of a list with that number.
    pub(crate) fn child(&mut self, key: &str) -> Result<&mut Self, String> {
        if key.is_empty() {
            return Err("the key is empty".to_owned());
        }
        if matches!(self.value, Value::Null) {
            self.value = Value::Map(Vec::new());
        }
        match &mut self.value {
            Value::Map(entries) => {
                let known = entries.iter().position(|(name, _, _)| name == key);
                let index = known.unwrap_or_else(|| {
                    entries.push((key.to_owned(), Place::COMMAND_LINE, Self::nothing()));
                    entries.len() - 1
                });
                Ok(&mut entries[index].2)
            }
            Value::List(items) => {
                let length = items.len();
                key.parse()
                    .ok()
                    .and_then(|index: usize| items.get_mut(index))
                    .ok_or_else(|| format!("`{key}` is not an item of a list of {length}"))
            }
            other => Err(format!("there is no `{key}` in {}", other.describe())),
        }
    }

    /// Replaces or adds the child of that key.
    pub(crate) fn put(&mut self, key: &str, value: Self) -> Result<(), String> {
        let place = value.place;
        *self.child(key)? = value;
        if let Value::Map(entries) = &mut self.value {
            for entry in entries.iter_mut().filter(|entry| entry.0 == key) {
                entry.1 = place;
            }
        }
        Ok(())
    }

    /// Replaces or adds the branch at the dotted `path`; `.0` and so on are items of lists.
    pub(crate) fn set(&mut self, path: &str, value: Self) -> Result<(), String> {
        match path.split_once('.') {
            Some((head, rest)) => self.child(head)?.set(rest, value),
            None => self.put(path, value),
        }
    }

    /// The place of the field at a dotted path, or of its nearest parent that is in a file.
    pub(crate) fn place_of(&self, path: &str) -> Place {
        let (head, rest) = path.split_once('.').unwrap_or((path, ""));
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _, _)| key == head).map_or(
                self.place,
                |(_, place, node)| match rest {
                    "" => *place,
                    rest => node.place_of(rest),
                },
            ),
            Value::List(items) => head
                .parse()
                .ok()
                .and_then(|index: usize| items.get(index))
                .map_or(self.place, |node| node.place_of(rest)),
            _ => self.place,
        }
    }

    /// Changes the place of everything in the branch.
    pub(crate) fn put_at(&mut self, change: &impl Fn(&mut Place)) {
        change(&mut self.place);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.put_at(change)),
            Value::Map(entries) => {
                for (_, place, node) in entries {
                    change(place);
                    node.put_at(change);
                }
            }
            _ => {}
        }
    }

    /// Takes the entry of that key out of a mapping.
    pub(crate) fn take(&mut self, key: &str) -> Option<(Place, Self)> {
        let Value::Map(entries) = &mut self.value else {
            return None;
        };
        let index = entries.iter().position(|(name, _, _)| name == key)?;
        let (_, place, node) = entries.remove(index);
        Some((place, node))
    }
}
