//! One rank's data file: a safetensors file (8 bytes header length, JSON header, little-endian f32 data) streamed from
//! the shards, so that no second copy of the weights is made. The header's metadata carry the rank's records with their
//! hashes; rank 0 joins those of all files into the index.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::index::{Part, Record};
use super::record::{Piece, padded, real_runs};
use super::{Field, Shard};
use crate::error::{Error, Result};
use crate::files;
use crate::param::Block;
use crate::safetensors;

/// Values that are in memory at a time between a file and the shards.
pub(super) const CHUNK: usize = 1 << 16;

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
    files::write_atomic(path, |writer| {
        writer.write_all(&safetensors::encode(entries))?;
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
    let (header, start) = safetensors::read(path)?;
    let unusable =
        |error: serde_json::Error| Error::checkpoint(path, format!("bad header: {error}"));
    let header: Value = serde_json::from_slice(&header).map_err(unusable)?;
    let records = header["__metadata__"]["records"].as_str().unwrap_or("");
    let mut records: Vec<Record> = serde_json::from_str(records).map_err(unusable)?;
    for part in records.iter_mut().flat_map(|record| &mut record.parts) {
        part.offset += start;
    }
    Ok(records)
}

/// One field of a stored record, read in order and hashed as it passes.
pub(super) struct PartReader<'a, R = File> {
    record: &'a Record,
    part: &'a Part,
    path: PathBuf,
    reader: R,
    hash: Sha256,
}

impl<'a> PartReader<'a> {
    /// The reader of one field of a record of the checkpoint in `folder`.
    pub(super) fn open(folder: &Path, record: &'a Record, field: Field) -> Result<Self> {
        let path = folder.join(&record.file);
        let Some(part) = record.parts.iter().find(|part| part.field == field) else {
            return Err(Error::checkpoint(
                &path,
                format!(
                    "holds no field `{}`; it was written without optimizer state",
                    field.name()
                ),
            ));
        };
        let mut reader = files::open(&path)?;
        reader
            .seek(SeekFrom::Start(part.offset))
            .map_err(Error::io(&path))?;
        Ok(Self {
            record,
            part,
            path,
            reader,
            hash: Sha256::new(),
        })
    }
}

impl<R: Read> PartReader<'_, R> {
    /// The little-endian bytes of the next `count` values; `buffer` holds them.
    pub(super) fn next<'b>(
        &mut self,
        count: usize,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [[u8; 4]]> {
        buffer.resize(count * size_of::<f32>(), 0);
        self.reader
            .read_exact(buffer)
            .map_err(Error::io(&self.path))?;
        self.hash.update(&*buffer);
        Ok(buffer.as_chunks().0)
    }

    /// Reads the whole record in chunks and copies what `block` has of it into `shard`.
    pub(super) fn scatter(
        &mut self,
        block: &Block,
        shard: &mut [f32],
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let target = Piece::of(block);
        for chunk in self.record.piece.chunks(CHUNK) {
            let values = self.next(chunk.len(), buffer)?;
            for overlap in chunk.overlaps(&target) {
                let start = padded(block, overlap.to);
                let to = &mut shard[start..start + overlap.len];
                let from = &values[overlap.from..overlap.from + overlap.len];
                for (value, &bytes) in to.iter_mut().zip(from) {
                    *value = f32::from_le_bytes(bytes);
                }
            }
        }
        Ok(())
    }

    /// Checks the hash of all that was read, which must be the whole record.
    pub(super) fn finish(self) -> Result<()> {
        if hex(self.hash) == self.part.sha256 {
            return Ok(());
        }
        Err(Error::checkpoint(
            &self.path,
            format!(
                "field `{}` of {} does not have the hash in the index; the file is damaged, use another checkpoint",
                self.part.field.name(),
                self.record.tensor
            ),
        ))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::param::Placement;

    /// Gives the bytes of 1.0, 2.0, 3.0, …; keeps the size of the largest request.
    #[derive(Default)]
    struct Counting {
        values: u32,
        largest: usize,
    }

    impl Read for Counting {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            self.largest = self.largest.max(bytes.len());
            for value in bytes.as_chunks_mut().0 {
                self.values += 1;
                *value = (self.values as f32).to_le_bytes();
            }
            Ok(bytes.len())
        }
    }

    #[test]
    fn a_record_passes_through_one_chunk() {
        // Rows of 1001 values in blocks of 501: a record of the whole matrix, a shard with padding.
        let shape = [333, 1001];
        let whole = Placement::NORMAL.block(shape, &Grid::single(), Grid::single().coord(0));
        let part = Part {
            field: Field::Weight,
            offset: 0,
            sha256: String::new(),
        };
        let record = Record {
            tensor: "w".into(),
            shape,
            piece: Piece::of(&whole),
            file: String::new(),
            parts: vec![part.clone()],
        };
        assert!(record.piece.len() > 5 * CHUNK);
        let grid = Grid::new(2, 2, 3, 1);
        for rank in 0..grid.ranks() {
            let block = Placement::NORMAL.block(shape, &grid, grid.coord(rank));
            let mut shard = vec![0.0; block.flat.len()];
            let mut buffer = Vec::new();
            let mut reader = PartReader {
                record: &record,
                part: &part,
                path: PathBuf::new(),
                reader: Counting::default(),
                hash: Sha256::new(),
            };
            reader.scatter(&block, &mut shard, &mut buffer).unwrap();
            assert_eq!(reader.reader.largest, 4 * CHUNK);
            assert!(buffer.capacity() <= 4 * CHUNK);
            for (position, &value) in block.flat.clone().zip(&shard) {
                let element = block.element(position);
                let expected = element.map_or(0, |(row, column)| row * shape[1] + column + 1);
                assert_eq!(value as usize, expected);
            }
            assert!(reader.finish().unwrap_err().to_string().contains("hash"));
        }
    }
}
