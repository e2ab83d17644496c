//! YAML as a tree that knows its lines, and serde types made from that tree.
//!
//! `serde_saphyr` parses the text (YAML 1.2: `1e-4` is a number, `yes` is text). Between the tree
//! and the types stands `--set`, which replaces branches; an error then still names file, line and
//! field. This file knows nothing of what the fields mean.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// A value and the line it stands on; line 0 is the command line.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: u64,
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
    /// Entries in the order of the file: key, line of the key, value.
    Map(Vec<(String, u64, Node)>),
}

/// What is wrong with a tree or a text, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// Line in the file, 0 if unknown or if the value came from `--set`.
    pub(crate) line: u64,
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
    pub(crate) fn new(line: u64, path: &str, message: &str) -> Self {
        Self {
            line,
            path: path.to_owned(),
            message: message.to_owned(),
            placed: true,
        }
    }

    fn at(mut self, node: &Node, path: &str) -> Self {
        if !self.placed {
            self.line = node.line;
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

/// Parses a YAML text.
pub(crate) fn parse(text: &str) -> Result<Node, Problem> {
    // YAML 1.2: only true and false are booleans.
    let options = serde_saphyr::options! { strict_booleans: true };
    let spanned: Spanned<Value> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| Problem {
            line: error.location().map_or(0, |location| location.line()),
            message: message_without_place(&error),
            path: String::new(),
            placed: true,
        })?;
    Ok(spanned.into())
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
            line: spanned.referenced.line(),
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
            let line = key.referenced.line();
            entries.push((key.value, line, value.into()));
        }
        Ok(Value::Map(entries))
    }
}

impl Value {
    fn describe(&self) -> String {
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
    /// Replaces or adds the branch at the dotted `path`; `.0` and so on are items of lists.
    pub(crate) fn set(&mut self, path: &str, value: Node) -> Result<(), String> {
        let (head, rest) = path
            .split_once('.')
            .map_or((path, None), |(a, b)| (a, Some(b)));
        if head.is_empty() {
            return Err("the key is empty".to_owned());
        }
        if matches!(self.value, Value::Null) {
            self.value = Value::Map(Vec::new());
        }
        let child = match &mut self.value {
            Value::Map(entries) => {
                let place = entries.iter().position(|(key, _, _)| key == head);
                let place = place.unwrap_or_else(|| {
                    let empty = Node {
                        line: 0,
                        value: Value::Null,
                    };
                    entries.push((head.to_owned(), 0, empty));
                    entries.len() - 1
                });
                &mut entries[place].2
            }
            Value::List(items) => {
                let length = items.len();
                head.parse()
                    .ok()
                    .and_then(|index: usize| items.get_mut(index))
                    .ok_or_else(|| format!("`{head}` is not an item of a list of {length}"))?
            }
            other => return Err(format!("there is no `{head}` in {}", other.describe())),
        };
        let Some(rest) = rest else {
            *child = value;
            return Ok(());
        };
        child.set(rest, value)
    }

    /// The line of the field at a dotted path, or of its nearest parent that is in the file.
    pub(crate) fn line_of(&self, path: &str) -> u64 {
        let (head, rest) = path.split_once('.').unwrap_or((path, ""));
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _, _)| key == head).map_or(
                self.line,
                |(_, line, node)| match rest {
                    "" => *line,
                    rest => node.line_of(rest),
                },
            ),
            Value::List(items) => head
                .parse()
                .ok()
                .and_then(|index: usize| items.get(index))
                .map_or(self.line, |node| node.line_of(rest)),
            _ => self.line,
        }
    }

    /// Marks the branch as coming from the command line.
    pub(crate) fn forget_lines(&mut self) {
        self.line = 0;
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(Self::forget_lines),
            Value::Map(entries) => {
                for (_, line, node) in entries {
                    *line = 0;
                    node.forget_lines();
                }
            }
            _ => {}
        }
    }

    /// Makes a typed value; the problem names the line and the field.
    pub(crate) fn typed<T: de::DeserializeOwned>(&self) -> Result<T, Problem> {
        T::deserialize(Typed {
            node: self,
            path: String::new(),
        })
    }
}

/// A node with its path, as a source of serde values.
struct Typed<'a> {
    node: &'a Node,
    path: String,
}

impl<'a> Typed<'a> {
    fn child(&self, name: &str, node: &'a Node) -> Typed<'a> {
        let path = if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        };
        Typed { node, path }
    }

    fn wrong(&self, expected: &str) -> Problem {
        let mut message = format!("expected {expected}, found {}", self.node.value.describe());
        if expected == "text" && matches!(self.node.value, Value::Unsigned(_) | Value::Float(_)) {
            message.push_str("; put it in quotes");
        }
        <Problem as de::Error>::custom(message).at(self.node, &self.path)
    }

    fn number<'de, V: Visitor<'de>>(self, visitor: V, integer: bool) -> Result<V::Value, Problem> {
        let expected = if integer {
            "a whole number"
        } else {
            "a number"
        };
        let result = match self.node.value {
            Value::Unsigned(value) if integer => visitor.visit_u64(value),
            Value::Signed(value) if integer => visitor.visit_i64(value),
            Value::Unsigned(value) => visitor.visit_f64(value as f64),
            Value::Signed(value) => visitor.visit_f64(value as f64),
            Value::Float(value) if !integer && value.is_finite() => visitor.visit_f64(value),
            _ => return Err(self.wrong(expected)),
        };
        result.map_err(|problem: Problem| problem.at(self.node, &self.path))
    }
}

macro_rules! numbers {
    ($($method:ident $integer:literal),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
            self.number(visitor, $integer)
        }
    )*};
}

impl<'de> Deserializer<'de> for Typed<'_> {
    type Error = Problem;

    numbers!(
        deserialize_u8 true, deserialize_u16 true, deserialize_u32 true, deserialize_u64 true,
        deserialize_i8 true, deserialize_i16 true, deserialize_i32 true, deserialize_i64 true,
        deserialize_f32 false, deserialize_f64 false
    );

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items {
                parent: &self,
                items: items.iter().enumerate(),
            }),
            Value::Map(entries) => visitor.visit_map(Entries {
                parent: &self,
                rest: entries.iter(),
                value: None,
            }),
        };
        result.map_err(|problem: Problem| problem.at(self.node, &self.path))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.node.value {
            Value::Bool(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.node.value {
            Value::Text(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong("text")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.node.value {
            Value::List(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong("a list")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.node.value {
            Value::Map(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong(&format!("a mapping with the keys {}", fields.join(", ")))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let (line, path) = (self.node, self.path.clone());
        let result = match &self.node.value {
            Value::Text(text) => {
                let name: StringDeserializer<Problem> = text.clone().into_deserializer();
                visitor.visit_enum(name)
            }
            Value::Map(entries) if entries.len() == 1 => {
                let (name, _, node) = &entries[0];
                visitor.visit_enum(Choice {
                    name,
                    content: self.child(name, node),
                })
            }
            _ => return Err(self.wrong(&format!("one of {}", variants.join(", ")))),
        };
        result.map_err(|problem: Problem| problem.at(line, &path))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'p, 'a> {
    parent: &'p Typed<'a>,
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Problem> {
        self.items
            .next()
            .map(|(index, node)| seed.deserialize(self.parent.child(&index.to_string(), node)))
            .transpose()
    }
}

struct Entries<'p, 'a> {
    parent: &'p Typed<'a>,
    rest: std::slice::Iter<'a, (String, u64, Node)>,
    value: Option<(&'a str, &'a Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Problem> {
        let Some((key, line, node)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some((key, node));
        let name: StringDeserializer<Problem> = key.clone().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|mut problem| {
            if !problem.placed {
                problem.line = *line;
                self.parent.path.clone_into(&mut problem.path);
                problem.placed = true;
            }
            problem
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let (key, node) = self.value.take().expect("a value follows its key");
        seed.deserialize(self.parent.child(key, node))
    }
}

/// `{ name: content }` as an enum.
struct Choice<'a> {
    name: &'a str,
    content: Typed<'a>,
}

impl<'de> de::EnumAccess<'de> for Choice<'_> {
    type Error = Problem;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Problem> {
        let name: StringDeserializer<Problem> = self.name.to_owned().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Choice<'_> {
    type Error = Problem;

    fn unit_variant(self) -> Result<(), Problem> {
        let message = format!("`{}` takes no settings, write it as plain text", self.name);
        Err(<Problem as de::Error>::custom(message))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Problem> {
        seed.deserialize(self.content)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Problem> {
        self.content.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.content.deserialize_struct("", fields, visitor)
    }
}
