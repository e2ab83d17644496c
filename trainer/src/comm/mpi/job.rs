//! One collective on its way through MPI: the ranks compare what they bring, then make one call after another.
#![expect(
    unsafe_code,
    reason = "a job owns the buffers that MPI reads and writes until its request is complete"
)]

use std::sync::mpsc::Sender;
use std::time::Instant;

use super::raw::{Comm, Fault, Request};
use super::tensor::Tensor;
use crate::comm::agreement::Brought;
use crate::comm::{Collective, Line};
use crate::error::Result;
use crate::pool::Buffer;

/// Words of a fingerprint: what is brought, its length, its number.
const FINGERPRINT: usize = 3;

/// A collective that this rank has started.
#[derive(Debug)]
pub(super) struct Job {
    /// First, so that it is dropped, and with it waited for, before the buffers.
    request: Option<Request>,
    pub(super) sequence: u64,
    check: Option<Check>,
    pub(super) load: Box<Load>,
    pub(super) done: Sender<Result<Done>>,
    /// Whether the next collective of the group may have begun.
    pub(super) leaves: bool,
}

/// What a collective works on.
#[derive(Debug)]
pub(super) enum Load {
    Tensor(Tensor),
    Words(Words),
    /// A communicator of the ranks of one colour, `ranks`, by key.
    Split {
        color: usize,
        key: usize,
        line: Option<Line>,
        ranks: Vec<usize>,
    },
}

/// The result of a collective.
#[derive(Debug)]
pub(super) enum Done {
    Tensor {
        output: Buffer,
        /// Held until somebody takes the output, so that what is live does not depend on who is faster.
        _held: [Option<Buffer>; 3],
        at: Instant,
    },
    Words(Vec<Vec<u64>>),
    /// The progress thread's number of the new communicator.
    Split(usize),
}

/// What a job does next.
#[derive(Debug)]
pub(super) enum Step {
    /// It waits for a call. After its last one, the next collective of the group may begin.
    Waits {
        last: bool,
    },
    /// Every rank is there; this one's communicator is to be split now.
    Splits,
    Complete,
}

/// Why a job cannot go on.
#[derive(Debug)]
pub(super) enum Trouble {
    Fault(Fault),
    /// What each rank brought, by place, where it is not the same.
    Mismatch(Vec<Brought>),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The fingerprints of all ranks.
#[derive(Debug)]
struct Check {
    own: Box<[u64]>,
    all: Box<[u64]>,
    started: bool,
}

impl Job {
    pub(super) fn new(
        load: Box<Load>,
        sequence: u64,
        size: usize,
        check: bool,
        done: Sender<Result<Done>>,
    ) -> Self {
        // The calls that split a communicator block, so they begin when every rank has come.
        let check = (check || matches!(*load, Load::Split { .. })).then(|| Check {
            own: fingerprint(load.brought(), sequence).into(),
            all: vec![0; FINGERPRINT * size].into(),
            started: false,
        });
        Self {
            request: None,
            sequence,
            check,
            load,
            done,
            leaves: false,
        }
    }

    /// Whether the call it waits for is complete.
    pub(super) fn test(&mut self) -> std::result::Result<bool, Fault> {
        self.request.as_mut().map_or(Ok(true), Request::test)
    }

    /// Goes on after the call it waited for, if any, is complete.
    pub(super) fn advance(&mut self, comm: Comm) -> std::result::Result<Step, Trouble> {
        self.request = None;
        if let Some(check) = &mut self.check {
            if !check.started {
                check.started = true;
                // SAFETY: the boxes are of these lengths, and kept until the request is complete.
                let request = unsafe {
                    comm.all_gather(check.own.as_ptr(), check.all.as_mut_ptr(), FINGERPRINT)
                }?;
                self.request = Some(request);
                return Ok(Step::Waits { last: false });
            }
            let brought: Vec<Brought> = check
                .all
                .chunks_exact(FINGERPRINT)
                .map(|print| brought_by(print[0], print[1]))
                .collect();
            if brought.iter().any(|other| *other != brought[0]) {
                return Err(Trouble::Mismatch(brought));
            }
            self.check = None;
        }
        let next = match &mut *self.load {
            Load::Tensor(tensor) => tensor.advance(comm)?,
            Load::Words(words) => words.advance(comm)?,
            Load::Split { .. } => return Ok(Step::Splits),
        };
        Ok(match next {
            Some((request, last)) => {
                self.request = Some(request);
                Step::Waits { last }
            }
            None => Step::Complete,
        })
    }
}

impl Load {
    /// What must be equal on all ranks of the group.
    pub(super) fn brought(&self) -> Brought {
        match self {
            Self::Tensor(tensor) => tensor.brought(),
            Self::Words(words) => Brought::Words(words.own.len()),
            Self::Split { ranks, .. } => Brought::Split(ranks.len()),
        }
    }

    /// The result of a complete job in a group of `size`.
    pub(super) fn result(self, size: usize) -> Done {
        match self {
            Self::Tensor(tensor) => tensor.result(),
            Self::Words(words) => words.result(size),
            Self::Split { .. } => unreachable!("the progress thread splits"),
        }
    }
}

fn fingerprint(brought: Brought, sequence: u64) -> [u64; FINGERPRINT] {
    let (kind, len) = match brought {
        Brought::Tensor(Collective::AllReduceSum, len) => (0, len),
        Brought::Tensor(Collective::AllReduceMax, len) => (1, len),
        Brought::Tensor(Collective::AllGather, len) => (2, len),
        Brought::Tensor(Collective::ReduceScatterSum, len) => (3, len),
        Brought::Words(len) => (4, len),
        Brought::Split(size) => (5, size),
    };
    [kind, len as u64, sequence]
}

fn brought_by(kind: u64, len: u64) -> Brought {
    let len = len as usize;
    match kind {
        0 => Brought::Tensor(Collective::AllReduceSum, len),
        1 => Brought::Tensor(Collective::AllReduceMax, len),
        2 => Brought::Tensor(Collective::AllGather, len),
        3 => Brought::Tensor(Collective::ReduceScatterSum, len),
        4 => Brought::Words(len),
        _ => Brought::Split(len),
    }
}

/// Words to gather from every rank.
#[derive(Debug)]
pub(super) struct Words {
    own: Box<[u64]>,
    all: Box<[u64]>,
    started: bool,
}

impl Words {
    pub(super) fn new(own: &[u64], size: usize) -> Self {
        Self {
            own: own.into(),
            all: vec![0; own.len() * size].into(),
            started: false,
        }
    }

    fn advance(&mut self, comm: Comm) -> std::result::Result<Option<(Request, bool)>, Fault> {
        if self.started {
            return Ok(None);
        }
        self.started = true;
        // SAFETY: the boxes are of these lengths, and kept until the request is complete.
        let request =
            unsafe { comm.all_gather(self.own.as_ptr(), self.all.as_mut_ptr(), self.own.len()) }?;
        Ok(Some((request, true)))
    }

    fn result(self, size: usize) -> Done {
        let own = self.own.len();
        Done::Words(
            (0..size)
                .map(|place| self.all[place * own..(place + 1) * own].to_vec())
                .collect(),
        )
    }
}
