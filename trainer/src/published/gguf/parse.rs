//! The bytes of a GGUF file up to its values.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use candle_core::quantized::GgmlDType;

/// Where values begin, unless the file says otherwise.
const ALIGNMENT: u64 = 32;
/// Lists in lists are known to no key that is read; more than this is no file of anyone's.
const DEEPEST: usize = 4;

/// Result of parsing; an error is a sentence without the file's name.
type Parsed<T> = Result<T, String>;

/// A value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number of any width.
    Integer(i128),
    /// A float of any width.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// Text; bytes that are not UTF-8 became the replacement character.
    Text(String),
    /// A list of whole numbers.
    Integers(Vec<i64>),
    /// A list of floats.
    Numbers(Vec<f32>),
    /// A list of texts.
    Texts(Vec<String>),
    /// Something else, which was read over.
    Other,
}

/// A tensor as the file lists it.
#[derive(Debug)]
pub struct Listed {
    /// Its name in llama.cpp.
    pub name: String,
    /// Sizes from the slowest axis.
    pub shape: Vec<usize>,
    /// How its values are written.
    pub dtype: GgmlDType,
    /// Its first byte, from [`File::start`].
    pub offset: u64,
}

/// All that stands before the values.
#[derive(Debug)]
pub struct File {
    /// Settings by key.
    pub values: BTreeMap<String, Value>,
    /// Tensors in the order of the file; no name twice.
    pub tensors: Vec<Listed>,
    /// The byte from which offsets count.
    pub start: u64,
    /// Values begin at multiples of so many bytes.
    pub alignment: u64,
}

/// The part of the file that is still to be read.
struct Source<'a, R> {
    reader: &'a mut R,
    left: u64,
    size: u64,
}

impl<R: Read> Source<'_, R> {
    fn take<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let mut bytes = [0; N];
        self.left = self
            .left
            .checked_sub(N as u64)
            .ok_or("ends inside its header; the file is truncated")?;
        self.reader
            .read_exact(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Parsed<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Parsed<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A count of things of at least `bytes` bytes each, all of which must be in the file.
    fn count(&mut self, what: &str, bytes: u64) -> Parsed<usize> {
        let count = self.u64()?;
        match count.checked_mul(bytes) {
            Some(bytes) if bytes <= self.left => Ok(count as usize),
            _ => Err(format!(
                "says that it has {count} {what}, and {} bytes are left; the file is damaged",
                self.left
            )),
        }
    }

    fn text(&mut self) -> Parsed<String> {
        let length = self.count("bytes of a text", 1)?;
        let mut bytes = vec![0; length];
        self.left -= length as u64;
        self.reader
            .read_exact(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn value(&mut self, kind: u32, depth: usize) -> Parsed<Value> {
        Ok(match kind {
            0 => Value::Integer(u8::from_le_bytes(self.take()?).into()),
            1 => Value::Integer(i8::from_le_bytes(self.take()?).into()),
            2 => Value::Integer(u16::from_le_bytes(self.take()?).into()),
            3 => Value::Integer(i16::from_le_bytes(self.take()?).into()),
            4 => Value::Integer(self.u32()?.into()),
            5 => Value::Integer(i32::from_le_bytes(self.take()?).into()),
            6 => Value::Number(f32::from_le_bytes(self.take()?).into()),
            7 => Value::Flag(self.take::<1>()? != [0]),
            8 => Value::Text(self.text()?),
            9 => self.list(depth)?,
            10 => Value::Integer(self.u64()?.into()),
            11 => Value::Integer(i64::from_le_bytes(self.take()?).into()),
            12 => Value::Number(f64::from_le_bytes(self.take()?)),
            other => return Err(format!("has a setting of the unknown type {other}")),
        })
    }

    fn list(&mut self, depth: usize) -> Parsed<Value> {
        if depth == DEEPEST {
            return Err(format!("has lists in lists more than {DEEPEST} deep"));
        }
        let kind = self.u32()?;
        let count = self.count("elements of a list", smallest(kind))?;
        // No key that is read holds small integers, which would take many times the file's bytes.
        let is_kept = !matches!(kind, 0..=3 | 7 | 9);
        let mut lists = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            match self.value(kind, depth + 1)? {
                Value::Integer(value) if is_kept => lists.0.push(
                    i64::try_from(value)
                        .map_err(|_| format!("has {value} in a list, above 2^63"))?,
                ),
                Value::Number(value) => lists.1.push(value as f32),
                Value::Text(value) => lists.2.push(value),
                _ => {}
            }
        }
        Ok(match kind {
            6 | 12 => Value::Numbers(lists.1),
            _ if !is_kept => Value::Other,
            8 => Value::Texts(lists.2),
            _ => Value::Integers(lists.0),
        })
    }

    fn tensor(&mut self) -> Parsed<Listed> {
        let name = self.text()?;
        let axes = self.u32()?;
        if axes > 4 {
            return Err(format!("says that {name} has {axes} axes"));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            let size = self.u64()?;
            shape.push(
                usize::try_from(size).map_err(|_| format!("says that {name} has {size} rows"))?,
            );
        }
        shape.reverse();
        let code = self.u32()?;
        let dtype = super::dtype(code)
            .ok_or_else(|| format!("has {name} in type {code} of ggml, which is not read"))?;
        Ok(Listed {
            name,
            shape,
            dtype,
            offset: self.u64()?,
        })
    }
}

/// The fewest bytes of a value of a type.
fn smallest(kind: u32) -> u64 {
    match kind {
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        _ => 1,
    }
}

/// Reads settings and list of tensors from a file of `size` bytes.
///
/// # Errors
/// A sentence without the file's name: not GGUF, cut off, a count that the file has no room for, something listed twice.
pub fn parse<R: Read>(reader: &mut R, size: u64) -> Parsed<File> {
    let mut source = Source {
        reader,
        left: size,
        size,
    };
    if source.take()? != *b"GGUF" {
        return Err("is neither a folder nor a GGUF file".into());
    }
    let version = source.u32()?;
    if !(2..=3).contains(&version) {
        return Err(if version.swap_bytes() <= 3 {
            "is a GGUF file for big-endian machines, which is not read".into()
        } else {
            format!("is GGUF version {version}; versions 2 and 3 are read")
        });
    }
    // A tensor has at least a name's length, a number of axes, a type and an offset; a setting a key's length, a type and
    // a byte.
    let tensor_count = source.count("tensors", 24)?;
    let setting_count = source.count("settings", 13)?;
    let mut values = BTreeMap::new();
    for _ in 0..setting_count {
        let key = source.text()?;
        let kind = source.u32()?;
        let value = source
            .value(kind, 0)
            .map_err(|fault| format!("{fault} (in {key})"))?;
        if values.insert(key.clone(), value).is_some() {
            return Err(format!("has {key} twice"));
        }
    }
    let mut tensors = Vec::new();
    let mut names = BTreeSet::new();
    for _ in 0..tensor_count {
        let tensor = source.tensor()?;
        if !names.insert(tensor.name.clone()) {
            return Err(format!("lists {} twice", tensor.name));
        }
        tensors.push(tensor);
    }
    let alignment = match values.get("general.alignment") {
        None => ALIGNMENT,
        Some(&Value::Integer(value)) if value > 0 && value % 8 == 0 && value <= 1 << 20 => {
            value as u64
        }
        Some(_) => return Err("has an alignment that is no multiple of 8 above 0".into()),
    };
    let read = source.size - source.left;
    Ok(File {
        values,
        tensors,
        start: read.next_multiple_of(alignment),
        alignment,
    })
}
