//! The beginning of a safetensors file: 8 bytes with the length of the header, and the header in JSON.
//!
//! Values are streamed past it by those who read and write them, so the library of that name, which wants whole files in
//! memory, is not used.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::files;

/// Longest header that is believed, as in the safetensors library.
const HEADER_LIMIT: u64 = 100_000_000;

/// The header of a file to be written, which lists `entries`: its length and its text.
pub(crate) fn encode(entries: Map<String, Value>) -> Vec<u8> {
    let text = Value::Object(entries).to_string();
    let length = text.len().next_multiple_of(8);
    let mut bytes = (length as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(8 + length, b' ');
    bytes
}

/// The text of a file's header, and the place in the file where the values begin.
pub(crate) fn read(path: &Path) -> Result<(Vec<u8>, u64)> {
    let mut file = files::open(path)?;
    let size = files::size(path)?;
    let mut length = [0; 8];
    if size < 8 {
        return Err(Error::checkpoint(
            path,
            format!("has {size} bytes and no header; it is truncated or no safetensors file"),
        ));
    }
    file.read_exact(&mut length).map_err(Error::io(path))?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_LIMIT.min(size - 8) {
        return Err(Error::checkpoint(
            path,
            format!(
                "says that its header has {length} bytes, and has {size} bytes in all; it is truncated or no safetensors file"
            ),
        ));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(Error::io(path))?;
    Ok((header, 8 + length))
}

/// A tensor as a header describes it.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Entry {
    /// Such as `BF16`.
    pub(crate) dtype: String,
    /// Sizes from the slowest axis.
    pub(crate) shape: Vec<usize>,
    /// First byte and the one after the last, from the end of the header.
    pub(crate) data_offsets: [u64; 2],
}

/// All that a header says. A name that it gives twice is an error.
#[derive(Debug, Default)]
pub(crate) struct Header {
    /// Free text by key.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Tensors by name.
    pub(crate) tensors: BTreeMap<String, Entry>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                        continue;
                    }
                    let entry = map.next_value()?;
                    if header.tensors.insert(name.clone(), entry).is_some() {
                        return Err(de::Error::custom(format!("{name} is listed twice")));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
