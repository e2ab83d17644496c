//! `documents.near_duplicates`.

use std::fmt;

use axmem_datasets::near_duplicates::NearSettings;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

/// What near-copies are; they share a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NearDuplicates {
    /// Ids of a shingle.
    pub shingle: usize,
    /// Share of the shingles of a window or of an article that makes it a near-copy.
    pub overlap: f64,
}

impl Default for NearDuplicates {
    fn default() -> Self {
        Self {
            shingle: 8,
            overlap: 0.5,
        }
    }
}

impl From<NearDuplicates> for NearSettings {
    fn from(near: NearDuplicates) -> Self {
        Self {
            shingle: near.shingle,
            overlap: near.overlap,
        }
    }
}

/// What a file without the key has.
#[expect(clippy::unnecessary_wraps, reason = "the type of the field")]
pub(super) fn on() -> Option<NearDuplicates> {
    Some(NearDuplicates::default())
}

/// `off`, or a mapping; a record has null for `off`.
pub(super) fn near_or_off<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<NearDuplicates>, D::Error> {
    struct NearOrOff;
    impl<'de> Visitor<'de> for NearOrOff {
        type Value = Option<NearDuplicates>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("`off` or a mapping with the keys shingle and overlap")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            match text {
                "off" => Ok(None),
                _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
            }
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_bool<E: de::Error>(self, on: bool) -> Result<Self::Value, E> {
            Ok(on.then(NearDuplicates::default))
        }

        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            NearDuplicates::deserialize(de::value::MapAccessDeserializer::new(map)).map(Some)
        }
    }
    deserializer.deserialize_any(NearOrOff)
}
