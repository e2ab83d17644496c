//! A tree as a source of serde values, whose errors name place and field.

use serde::Deserializer;
use serde::de::value::StringDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::{Node, Place, Problem, Value};

impl Node {
    /// Makes a typed value; the problem names the place and the field.
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
        let (node, path) = (self.node, self.path.clone());
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
        result.map_err(|problem: Problem| problem.at(node, &path))
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
    rest: std::slice::Iter<'a, (String, Place, Node)>,
    value: Option<(&'a str, &'a Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Problem> {
        let Some((key, place, node)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some((key, node));
        let name: StringDeserializer<Problem> = key.clone().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|mut problem| {
            if !problem.placed {
                problem.place = *place;
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
