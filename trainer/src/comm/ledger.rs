//! What was communicated, by axis and kind: calls, bytes, seconds, and the wait that no computation hid.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Collective, Communicator, Pending};
use crate::error::Result;
use crate::grid::Axis;
use crate::pool::Buffer;

/// Which ranks a collective ran over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// Along [`Axis::X`].
    X,
    /// Along [`Axis::Y`].
    Y,
    /// Along [`Axis::Z`].
    Z,
    /// Along [`Axis::Data`].
    Data,
    /// The ranks of X that hold copies of one key-value head.
    Replicas,
}

impl From<Axis> for Line {
    fn from(axis: Axis) -> Self {
        match axis {
            Axis::X => Self::X,
            Axis::Y => Self::Y,
            Axis::Z => Self::Z,
            Axis::Data => Self::Data,
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::X => "X",
            Self::Y => "Y",
            Self::Z => "Z",
            Self::Data => "Data",
            Self::Replicas => "X (key-value copies)",
        })
    }
}

/// What was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Tensors, by a collective.
    Tensor(Collective),
    /// Counts and f64 sums, gathered as 8-byte words.
    Words,
}

/// The sum of the calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Number of calls.
    pub calls: u64,
    /// Bytes of the buffers handed over by this rank.
    pub buffer_bytes: u64,
    /// Bytes that a ring sends from each rank (see [`Collective::ring_bytes`]).
    pub ring_bytes: u64,
    /// Seconds between start and completion, summed over calls that may overlap each other.
    pub seconds: f64,
    /// Seconds that this rank waited: communication that no computation hid.
    pub exposed: f64,
}

/// A rank's record of its communication. Cloning gives another handle to the same record.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<(Line, Traffic), Entry>>>);

impl Ledger {
    /// Everything since the last call, which starts the record anew.
    pub fn take(&self) -> BTreeMap<(Line, Traffic), Entry> {
        std::mem::take(&mut self.entries())
    }

    /// Seconds waited along each line since the last [`Ledger::take`].
    pub fn exposed(&self) -> BTreeMap<Line, f64> {
        let mut exposed = BTreeMap::new();
        for ((line, _), entry) in self.entries().iter() {
            *exposed.entry(*line).or_insert(0.0) += entry.exposed;
        }
        exposed
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<(Line, Traffic), Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started(&self, line: Line, traffic: Traffic, size: usize, bytes: usize) {
        let (size, bytes) = (size as u64, bytes as u64);
        let ring_bytes = match traffic {
            Traffic::Tensor(collective) => collective.ring_bytes(bytes, size),
            Traffic::Words => (size - 1) * bytes,
        };
        let mut entries = self.entries();
        let entry = entries.entry((line, traffic)).or_default();
        entry.calls += 1;
        entry.buffer_bytes += bytes;
        entry.ring_bytes += ring_bytes;
    }

    fn completed(&self, line: Line, traffic: Traffic, in_flight: Duration, waited: Duration) {
        let mut entries = self.entries();
        let entry = entries.entry((line, traffic)).or_default();
        entry.seconds += in_flight.as_secs_f64();
        entry.exposed += waited.as_secs_f64();
    }
}

/// A communicator whose calls are entered in a ledger.
#[derive(Debug)]
pub(crate) struct Recorded<C> {
    pub(crate) inner: C,
    pub(crate) line: Line,
    pub(crate) ledger: Ledger,
}

impl<C: Communicator> Communicator for Recorded<C> {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn place(&self) -> usize {
        self.inner.place()
    }

    fn start(&self, collective: Collective, data: Buffer) -> Pending {
        let (ledger, line) = (self.ledger.clone(), self.line);
        let traffic = Traffic::Tensor(collective);
        ledger.started(line, traffic, self.size(), size_of_val(&data[..]));
        let started = Instant::now();
        let pending = self.inner.start(collective, data);
        Pending::new(move || {
            let waiting = Instant::now();
            let completed = pending.complete()?;
            let in_flight = completed.at.saturating_duration_since(started);
            ledger.completed(line, traffic, in_flight, waiting.elapsed());
            Ok(completed)
        })
    }

    fn all_gather_words(&self, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        self.ledger
            .started(self.line, Traffic::Words, self.size(), size_of_val(words));
        let started = Instant::now();
        let parts = self.inner.all_gather_words(words)?;
        let waited = started.elapsed();
        self.ledger
            .completed(self.line, Traffic::Words, waited, waited);
        Ok(parts)
    }

    fn split(&self, size: usize) -> Result<Box<dyn Communicator>> {
        self.inner.split(size)
    }
}

impl Communicator for Box<dyn Communicator> {
    fn size(&self) -> usize {
        self.as_ref().size()
    }

    fn place(&self) -> usize {
        self.as_ref().place()
    }

    fn start(&self, collective: Collective, data: Buffer) -> Pending {
        self.as_ref().start(collective, data)
    }

    fn all_gather_words(&self, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        self.as_ref().all_gather_words(words)
    }

    fn split(&self, size: usize) -> Result<Box<dyn Communicator>> {
        self.as_ref().split(size)
    }
}
