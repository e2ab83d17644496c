//! A collective on a tensor: its buffers, its calls, and what is computed between them.
//!
//! A sum is an all-to-all that brings every rank's part of this rank's share; they are added in rank order. An
//! all-reduce gathers the shares afterwards. Shares that are too long for one call go in chunks.
#![expect(
    unsafe_code,
    reason = "a tensor owns the buffers that MPI reads and writes until its request is complete"
)]

use std::time::Instant;

use super::job::Done;
use super::raw::{Comm, Operation, Request, Result};
use super::{MpiSettings, Reduce};
use crate::comm::Collective;
use crate::comm::agreement::Brought;
use crate::comm::sum::merge;
use crate::pool::{Buffer, Pool};

/// A collective on tensors and its buffers, all taken when it was started.
#[derive(Debug)]
pub(super) struct Tensor {
    collective: Collective,
    /// Whether the elements are added here, in rank order, rather than by the library.
    ordered: bool,
    size: usize,
    /// The input; the result of an all-reduce in rank order too.
    data: Buffer,
    /// The result of the others.
    output: Option<Buffer>,
    /// A chunk of every rank's share side by side, where it lies apart in `data` or the result.
    packed: Option<Buffer>,
    /// What an all-to-all brings.
    received: Option<Buffer>,
    /// Elements that each rank has of the tensor, the last of them padding where the ranks do not divide it.
    share: usize,
    /// The most elements of a share in one call.
    chunk: usize,
    /// Where in the share the current chunk begins.
    at: usize,
    waits_for: WaitsFor,
}

#[derive(Clone, Copy, Debug)]
enum WaitsFor {
    Nothing,
    /// The first call of a chunk.
    Exchange,
    /// The second, of an all-reduce in rank order.
    Gather,
}

impl Tensor {
    pub(super) fn new(
        collective: Collective,
        data: Buffer,
        size: usize,
        pool: &Pool,
        settings: &MpiSettings,
    ) -> Self {
        let (len, ordered) = (data.len(), settings.reduce == Reduce::Ordered);
        let share = match collective {
            Collective::AllReduceSum | Collective::AllReduceMax if ordered => len.div_ceil(size),
            Collective::ReduceScatterSum => {
                assert!(len.is_multiple_of(size), "padded shares");
                len / size
            }
            _ => len,
        };
        let chunk = share.min((settings.limit / size).max(1));
        let apart = chunk < share;
        let (output, packed, received) = match collective {
            Collective::AllReduceSum | Collective::AllReduceMax if ordered => {
                (None, apart || share * size != len, true)
            }
            Collective::AllReduceSum | Collective::AllReduceMax => (Some(len), false, false),
            Collective::AllGather => (Some(len * size), apart, false),
            Collective::ReduceScatterSum => (Some(share), apart, ordered),
        };
        let staging = |needed: bool| needed.then(|| pool.take(chunk * size));
        Self {
            collective,
            ordered,
            size,
            output: output.map(|len| pool.take(len)),
            packed: staging(packed),
            received: staging(received),
            data,
            share,
            chunk,
            at: 0,
            waits_for: WaitsFor::Nothing,
        }
    }

    pub(super) fn brought(&self) -> Brought {
        Brought::Tensor(self.collective, self.data.len())
    }

    /// The next call and whether it is the last one; nothing if the result is there.
    pub(super) fn advance(&mut self, comm: Comm) -> Result<Option<(Request, bool)>> {
        let len = self.chunk.min(self.share - self.at);
        let last = self.at + len == self.share;
        match self.waits_for {
            WaitsFor::Nothing => return self.exchange(comm).map(Some),
            WaitsFor::Exchange => {
                if self.exchanged(len) {
                    self.waits_for = WaitsFor::Gather;
                    let received = self.received.as_deref().unwrap_or_default();
                    let gathered = match &mut self.packed {
                        Some(packed) => &mut packed[..],
                        None => &mut self.data[..],
                    };
                    // SAFETY: a chunk of a share and a chunk of all shares, in buffers that live until the request
                    // is complete.
                    let request = unsafe {
                        comm.all_gather(
                            received[..len].as_ptr(),
                            gathered[..self.size * len].as_mut_ptr(),
                            len,
                        )
                    }?;
                    return Ok(Some((request, last)));
                }
            }
            WaitsFor::Gather => {
                if let Some(packed) = &self.packed {
                    let packed = &packed[..self.size * len];
                    unpack(packed, &mut self.data, self.share, self.at, len);
                }
            }
        }
        if last {
            return Ok(None);
        }
        self.at += len;
        self.exchange(comm).map(Some)
    }

    /// The first call for the current chunk, and whether it is the last call.
    fn exchange(&mut self, comm: Comm) -> Result<(Request, bool)> {
        let (at, len, size) = (self.at, self.chunk.min(self.share - self.at), self.size);
        let last = at + len == self.share;
        self.waits_for = WaitsFor::Exchange;
        let output = self.output.as_deref_mut().unwrap_or_default();
        match self.collective {
            Collective::AllGather => {
                let gathered = self.packed.as_deref_mut().unwrap_or(output);
                // SAFETY: this chunk of the input, and as much of every rank, in buffers that live until the request
                // is complete; so too below.
                let request = unsafe {
                    comm.all_gather(
                        self.data[at..at + len].as_ptr(),
                        gathered[..size * len].as_mut_ptr(),
                        len,
                    )
                }?;
                Ok((request, last))
            }
            Collective::AllReduceSum | Collective::AllReduceMax if !self.ordered => {
                let operation = match self.collective {
                    Collective::AllReduceMax => Operation::Max,
                    _ => Operation::Sum,
                };
                // SAFETY: the same chunk of the input and of the output.
                let request = unsafe {
                    comm.all_reduce(
                        self.data[at..at + len].as_ptr(),
                        output[at..at + len].as_mut_ptr(),
                        len,
                        operation,
                    )
                }?;
                Ok((request, last))
            }
            _ => {
                let send = match &mut self.packed {
                    Some(packed) => {
                        let packed = &mut packed[..size * len];
                        pack(&self.data, packed, self.share, at, len);
                        &packed[..]
                    }
                    None => &self.data[..size * len],
                };
                if !self.ordered {
                    // SAFETY: this chunk of every share, and of this rank's.
                    let request = unsafe {
                        comm.reduce_scatter(send.as_ptr(), output[at..at + len].as_mut_ptr(), len)
                    }?;
                    return Ok((request, last));
                }
                let received = self.received.as_deref_mut().unwrap_or_default();
                // SAFETY: this chunk of every share, and every rank's part of it for this rank's.
                let request = unsafe {
                    comm.all_to_all(send.as_ptr(), received[..size * len].as_mut_ptr(), len)
                }?;
                let gathers = !matches!(self.collective, Collective::ReduceScatterSum);
                Ok((request, last && !gathers))
            }
        }
    }

    /// Uses what the first call for a chunk of `len` elements has brought; true if a second call follows.
    fn exchanged(&mut self, len: usize) -> bool {
        let (at, filled) = (self.at, self.size * len);
        match (&mut self.received, self.collective) {
            (Some(received), Collective::AllReduceMax | Collective::AllReduceSum) => {
                fold(self.collective, &mut received[..filled], len);
                true
            }
            (Some(received), _) => {
                fold(self.collective, &mut received[..filled], len);
                if let Some(output) = &mut self.output {
                    output[at..at + len].copy_from_slice(&received[..len]);
                }
                false
            }
            (None, Collective::AllGather) => {
                if let (Some(packed), Some(output)) = (&self.packed, &mut self.output) {
                    unpack(&packed[..filled], output, self.share, at, len);
                }
                false
            }
            (None, _) => false,
        }
    }

    pub(super) fn result(self) -> Done {
        let (output, input) = match self.output {
            Some(output) => (output, Some(self.data)),
            None => (self.data, None),
        };
        Done::Tensor {
            output,
            _held: [input, self.packed, self.received],
            at: Instant::now(),
        }
    }
}

/// Puts the elements `at..at + len` of every share side by side; zeros where the tensor ends before.
fn pack(data: &[f32], packed: &mut [f32], share: usize, at: usize, len: usize) {
    if len == 0 {
        return;
    }
    for (place, slot) in packed.chunks_exact_mut(len).enumerate() {
        let start = (place * share + at).min(data.len());
        let part = &data[start..(start + len).min(data.len())];
        slot[..part.len()].copy_from_slice(part);
        slot[part.len()..].fill(0.0);
    }
}

/// The inverse of [`pack`].
fn unpack(packed: &[f32], data: &mut [f32], share: usize, at: usize, len: usize) {
    if len == 0 {
        return;
    }
    for (place, slot) in packed.chunks_exact(len).enumerate() {
        let start = (place * share + at).min(data.len());
        let end = (start + len).min(data.len());
        data[start..end].copy_from_slice(&slot[..end - start]);
    }
}

/// Merges the parts of `len` elements into the first, in rank order.
fn fold(collective: Collective, parts: &mut [f32], len: usize) {
    let (first, others) = parts.split_at_mut(len);
    merge(collective, first, &others.chunks_exact(len.max(1)));
}
