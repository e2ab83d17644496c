//! Collectives along one axis of the grid: started, then waited for.
//!
//! One object per axis and rank. Every call is non-blocking: [`Communicator::start`] hands the data over and returns
//! a [`Pending`] that must be waited on. A group of one rank is a real communicator that returns its input.
//!
//! Every back end adds in rank order and moves what a ring would move, so results do not depend on the back end; a
//! [`Ledger`] counts calls, bytes and the time that nobody computed meanwhile.

mod agreement;
mod alone;
mod ledger;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;
mod sum;
mod thread;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

pub(crate) use alone::Alone;
pub(crate) use ledger::Recorded;
pub use ledger::{Entry, Ledger, Line, Traffic};
pub(crate) use thread::World;
pub use thread::{Link, Links};

use crate::error::{Error, Result};
use crate::pool::Buffer;

/// What a collective does with the buffers of the group's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collective {
    /// Elementwise sum, added in rank order; every rank gets all of it.
    AllReduceSum,
    /// Elementwise maximum; every rank gets all of it.
    AllReduceMax,
    /// Concatenation in rank order; every rank gets all of it.
    AllGather,
    /// Elementwise sum, added in rank order; rank i gets the i-th of `size` equal parts.
    ReduceScatterSum,
}

impl Collective {
    /// Bytes that a ring of `size` ranks sends from each, of a buffer of `bytes` that is padded to a multiple of the group:
    /// 2n(p-1)/p for an all-reduce, n(p-1)/p for a reduce-scatter, n(p-1) for an all-gather.
    pub fn ring_bytes(self, bytes: u64, size: u64) -> u64 {
        let share = bytes
            .div_ceil(size)
            .next_multiple_of(size_of::<f32>() as u64);
        (size - 1)
            * match self {
                Self::AllReduceSum | Self::AllReduceMax => 2 * share,
                Self::ReduceScatterSum => share,
                Self::AllGather => bytes,
            }
    }
}

impl std::fmt::Display for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AllReduceSum => "all-reduce (sum)",
            Self::AllReduceMax => "all-reduce (maximum)",
            Self::AllGather => "all-gather",
            Self::ReduceScatterSum => "reduce-scatter",
        })
    }
}

/// The ranks along one axis, seen from one of them.
pub trait Communicator: Send + Sync + std::fmt::Debug {
    /// Number of ranks in the group.
    fn size(&self) -> usize;

    /// This rank's place in the group, from 0.
    fn place(&self) -> usize;

    /// Starts a collective; all ranks of the group start the same ones in the same order. The length of a
    /// reduce-scatter is a multiple of [`Communicator::size`].
    fn start(&self, collective: Collective, data: Buffer) -> Pending;

    /// Every rank's words, in rank order, on every rank. For counts and other small exact values; blocks.
    fn all_gather_words(&self, words: &[u64]) -> Result<Vec<Vec<u64>>>;

    /// The communicator of the run of `size` neighbouring places that this one is in; `size` divides the group.
    /// Collective, and costly: keep the result.
    fn split(&self, size: usize) -> Result<Box<dyn Communicator>>;

    /// Sum of a count over the group.
    fn sum_count(&self, count: u64) -> Result<u64> {
        let parts = self.all_gather_words(&[count])?;
        Ok(parts.iter().map(|words| words[0]).sum())
    }

    /// Sum of a value over the group in f64, added in rank order.
    fn sum_f64(&self, value: f64) -> Result<f64> {
        let parts = self.all_gather_words(&[value.to_bits()])?;
        Ok(parts.iter().map(|words| f64::from_bits(words[0])).sum())
    }
}

/// The result of a collective.
#[derive(Debug)]
pub struct Completed {
    /// What this rank gets.
    pub data: Buffer,
    /// When it was there, whether or not somebody waited for it.
    pub at: Instant,
}

/// A started collective.
#[must_use = "a started collective must be waited for"]
pub struct Pending(Box<dyn FnOnce() -> Result<Completed> + Send>);

impl Pending {
    /// A collective that is complete already.
    pub fn ready(data: Buffer) -> Self {
        let at = Instant::now();
        Self::new(move || Ok(Completed { data, at }))
    }

    /// A collective completed by `finish`.
    pub fn new(finish: impl FnOnce() -> Result<Completed> + Send + 'static) -> Self {
        Self(Box::new(finish))
    }

    /// Blocks until the result is there.
    pub fn wait(self) -> Result<Buffer> {
        self.complete().map(|completed| completed.data)
    }

    /// As [`Pending::wait`], with the time of completion.
    pub fn complete(self) -> Result<Completed> {
        (self.0)()
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// A collective that the ranks of a group do not agree on, or that some never reached.
fn disagreement(rank: usize, message: String) -> Error {
    Error::Rank { rank, message }
}

/// The data behind a mutex; they stay consistent even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
