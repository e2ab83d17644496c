//! One rank's data file: a safetensors file (8 bytes header length, JSON header, little-endian f32 data) streamed from
//! the shards, so that no second copy of the weights is made. The header's metadata carry the rank's records with their
//! hashes; rank 0 joins those of all files into the index.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::index::{Part, Record};
use super::record::{Piece, real_runs};
use super::{Field, Shard};
use crate::error::{Error, Result};
use crate::files;

/// Values turned into bytes at a time.
const CHUNK: usize = 1 << 16;

/// Longest header that is believed, as in the safetensors library.
const HEADER_LIMIT: u64 = 100_000_000;

/// Writes the shards that this rank owns to `path`; gives back whether there were any.
pub(crate) fn write(path: &Path, fields: &[Field], shards: &[Shard<'_>]) -> Result<bool> {
    let owned: Vec<(&Shard<'_>, Piece)> = shards
        .iter()
        .filter(|shard| shard.owned)
        .map(|shard| (shard, Piece::of(shard.block)))
        .filter(|(_, piece)| !piece.is_empty())
        .collect();
    if owned.is_empty() {
        return Ok(false);
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let (mut entries, mut records) = (Map::new(), Vec::new());
    let mut offset = 0;
    for (shard, piece) in &owned {
        let bytes = (piece.len() * size_of::<f32>()) as u64;
        let mut parts = Vec::new();
        for (field, values) in fields.iter().zip(&shard.fields) {
            let mut hash = Sha256::new();
            for_bytes(shard, values, |bytes| {
                hash.update(bytes);
                Ok(())
            })
            .map_err(Error::write(path))?;
            parts.push(Part {
                field: *field,
                offset,
                sha256: hex(hash),
            });
            let entry = json!({
                "dtype": "F32",
                "shape": [piece.len()],
                "data_offsets": [offset, offset + bytes],
            });
            entries.insert(format!("{}/{}", field.name(), shard.name), entry);
            offset += bytes;
        }
        records.push(Record {
            tensor: shard.name.to_owned(),
            shape: shard.shape,
            piece: piece.clone(),
            file: file.to_string(),
            parts,
        });
    }
    let records = serde_json::to_string(&records).expect("records are plain data");
    entries.insert("__metadata__".into(), json!({ "records": records }));
    let mut header = Value::Object(entries).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    files::write_atomic(path, |writer| {
        writer.write_all(&(header.len() as u64).to_le_bytes())?;
        writer.write_all(&header)?;
        for (shard, _) in &owned {
            for values in &shard.fields {
                for_bytes(shard, values, |bytes| writer.write_all(bytes))?;
            }
        }
        Ok(())
    })?;
    Ok(true)
}

/// The records in a data file's header, with offsets from the beginning of the file.
pub(crate) fn records(path: &Path) -> Result<Vec<Record>> {
    let mut file = files::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(Error::io(path))?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_LIMIT.min(files::size(path)?) {
        return Err(Error::checkpoint(
            path,
            "the header is longer than the file",
        ));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(Error::io(path))?;
    let unusable =
        |error: serde_json::Error| Error::checkpoint(path, format!("bad header: {error}"));
    let header: Value = serde_json::from_slice(&header).map_err(unusable)?;
    let records = header["__metadata__"]["records"].as_str().unwrap_or("");
    let mut records: Vec<Record> = serde_json::from_str(records).map_err(unusable)?;
    for part in records.iter_mut().flat_map(|record| &mut record.parts) {
        part.offset += 8 + length;
    }
    Ok(records)
}

/// Reads `len` values at a byte offset and checks their hash. `what` names them in an error.
pub(crate) fn read(
    file: &mut File,
    path: &Path,
    part: &Part,
    len: usize,
    what: &str,
) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len * size_of::<f32>()];
    file.seek(SeekFrom::Start(part.offset))
        .and_then(|_| file.read_exact(&mut bytes))
        .map_err(Error::io(path))?;
    let mut hash = Sha256::new();
    hash.update(&bytes);
    if hex(hash) != part.sha256 {
        return Err(Error::checkpoint(
            path,
            format!(
                "{what} does not have the hash in the index; the file is damaged, use another checkpoint"
            ),
        ));
    }
    Ok(bytes)
}

/// Hands the little-endian bytes of a shard's values, padding left out, to `sink`.
fn for_bytes(
    shard: &Shard<'_>,
    values: &[f32],
    mut sink: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(CHUNK * size_of::<f32>());
    for run in real_runs(shard.block) {
        for chunk in values[run].chunks(CHUNK) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
            sink(&bytes)?;
        }
    }
    Ok(())
}

/// A finished hash in hexadecimal.
fn hex(hash: Sha256) -> String {
    use std::fmt::Write;
    hash.finalize()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes any text");
            text
        })
}
