//! A tensor inside a file, read by ranges of its elements.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;

use crate::checkpoint::real_runs;
use crate::error::{Error, Result};
use crate::files;
use crate::param::Block;

/// Elements that are read at a time.
const CHUNK: usize = 1 << 16;

/// Where a tensor is and how it is written.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Place of its file in the list of files.
    pub(super) file: usize,
    /// Its first byte in the file.
    pub(super) offset: u64,
    /// How its values are written.
    pub(super) dtype: GgmlDType,
    /// `[1, n]` for a vector.
    pub(super) shape: [usize; 2],
    /// The head size, if the rows of each head (the elements of a vector) alternate between its two halves, as GGUF files
    /// order q and k of a Llama: row 2i is component i, row 2i + 1 component i + D/2.
    pub(super) interleaved: Option<usize>,
}

impl Stored {
    /// Bytes of its values, if a whole number of blocks of values fills a row.
    pub(super) fn bytes(&self) -> Option<u64> {
        let (block, bytes) = (self.dtype.block_size(), self.dtype.type_size());
        if !self.shape[1].is_multiple_of(block) {
            return None;
        }
        let blocks = (self.shape[1] / block).checked_mul(self.shape[0])?;
        Some(blocks.checked_mul(bytes)? as u64)
    }

    /// The place in the file of row or element `index` of the published order.
    fn source(&self, index: usize) -> usize {
        let Some(dim) = self.interleaved else {
            return index;
        };
        let (head, component) = (index / dim, index % dim);
        let half = dim / 2;
        head * dim + 2 * (component % half) + component / half
    }
}

/// Reads one file's tensors.
pub(super) struct Reader<'a> {
    path: &'a Path,
    file: File,
    bytes: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        Ok(Self {
            path,
            file: files::open(path)?,
            bytes: Vec::new(),
        })
    }

    /// Fills a rank's shard of `block` from `stored`; padding becomes zero. No other part of the file is read.
    pub(super) fn fill(&mut self, stored: &Stored, block: &Block, shard: &mut [f32]) -> Result<()> {
        shard.fill(0.0);
        let [rows, columns] = stored.shape;
        let whole_rows = block.columns == (0..columns) && block.shape[1] == columns;
        for run in real_runs(block) {
            let mut at = run.start;
            while at < run.end {
                let Some((row, column)) = block.element(block.flat.start + at) else {
                    break;
                };
                let (source, len) = match stored.interleaved {
                    None if whole_rows => (row * columns + column, run.end - at),
                    // The elements of a vector are what is out of order.
                    Some(_) if rows == 1 => (stored.source(column), 1),
                    _ => (
                        stored.source(row) * columns + column,
                        (block.columns.end - column).min(run.end - at),
                    ),
                };
                self.elements(stored, source, &mut shard[at..at + len])?;
                at += len;
            }
        }
        Ok(())
    }

    /// Reads elements from `start` on, in the order of the file.
    pub(super) fn elements(
        &mut self,
        stored: &Stored,
        mut start: usize,
        mut out: &mut [f32],
    ) -> Result<()> {
        let size = stored.dtype.block_size();
        while !out.is_empty() {
            let first = start / size;
            let skipped = start - first * size;
            let count = out.len().min(CHUNK);
            let (now, rest) = out.split_at_mut(count);
            let blocks = (skipped + count).div_ceil(size);
            let bytes = stored.dtype.type_size();
            self.bytes.resize(blocks * bytes, 0);
            let place = stored.offset + (first * bytes) as u64;
            self.file
                .seek(SeekFrom::Start(place))
                .and_then(|_| self.file.read_exact(&mut self.bytes))
                .map_err(Error::io(self.path))?;
            decode(stored.dtype, &self.bytes, skipped, now)
                .map_err(|error| Error::checkpoint(self.path, error.to_string()))?;
            (start, out) = (start + count, rest);
        }
        Ok(())
    }
}

/// Values from their bytes, leaving out the first `skipped`.
fn decode(
    dtype: GgmlDType,
    bytes: &[u8],
    skipped: usize,
    out: &mut [f32],
) -> candle_core::Result<()> {
    match dtype {
        GgmlDType::F32 => {
            for (value, &bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *value = f32::from_le_bytes(bytes);
            }
        }
        GgmlDType::F16 => {
            for (value, &bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *value = half::f16::from_le_bytes(bytes).to_f32();
            }
        }
        GgmlDType::BF16 => {
            for (value, &bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *value = half::bf16::from_le_bytes(bytes).to_f32();
            }
        }
        quantised => {
            let count = bytes.len() / quantised.type_size() * quantised.block_size();
            let blocks = qtensor_from_ggml(quantised, bytes, vec![count], &Device::Cpu)?;
            let values: Vec<f32> = blocks.dequantize(&Device::Cpu)?.to_vec1()?;
            out.copy_from_slice(&values[skipped..skipped + out.len()]);
        }
    }
    Ok(())
}
