//! Ranks as processes that speak MPI.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axmem_trainer::comm::Communicator;
use axmem_trainer::launch::{Mpi, MpiSettings};
use axmem_trainer::{self as trainer, Grid, Rank};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::digest::digest;
use crate::exit::{self, Failure};

/// Said by the first process: it is still at work.
const BUSY: u64 = 0;
/// Said by the first process: its result follows, in so many bytes.
const DONE: u64 = 1;

/// The processes of a launcher, seen from this one.
#[derive(Debug)]
pub struct Processes {
    mpi: Mpi,
    world: Box<dyn Communicator>,
    /// Pause between two signs of life of the first process; well below the time after which the others give up.
    pulse: Duration,
}

impl Processes {
    pub(super) fn start(timeout: Duration, check: bool) -> Result<Self> {
        let mpi = Mpi::start(MpiSettings {
            timeout,
            check,
            ..MpiSettings::default()
        })?;
        Ok(Self {
            world: mpi.world(),
            mpi,
            pulse: (timeout / 4).min(Duration::from_secs(10)),
        })
    }

    pub(super) fn is_first(&self) -> bool {
        self.mpi.index() == 0
    }

    pub(super) fn number(&self) -> usize {
        self.mpi.size()
    }

    pub(super) fn rank(&self, grid: &Grid) -> Result<Rank> {
        Ok(self.mpi.rank(grid)?)
    }

    pub(super) fn fail(&self, error: &anyhow::Error) -> ! {
        self.mpi
            .fail(&exit::sentence(error), exit::code(error).into())
    }

    pub(super) fn agree(&self, what: &Value) -> Result<()> {
        let all = self
            .world
            .all_gather_words(&packed(digest(what).as_bytes()))?;
        match all.iter().position(|words| *words != all[0]) {
            None => Ok(()),
            Some(rank) => Err(Failure::usage(format!(
                "rank {rank} was started with another experiment, command, store or version of axmem than rank 0; give \
                 every process the same program, file and options"
            ))),
        }
    }

    pub(super) fn lead<T: Serialize + DeserializeOwned>(
        &self,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.is_first() {
            let result = self.with_pulse(work)?;
            let text = serde_json::to_string(&result).context("a result for the other ranks")?;
            self.world.all_gather_words(&[DONE, text.len() as u64])?;
            self.world.all_gather_words(&packed(text.as_bytes()))?;
            return Ok(result);
        }
        loop {
            let said = self.world.all_gather_words(&[BUSY, 0])?;
            if said[0][0] == DONE {
                let bytes = said[0][1] as usize;
                let blank = vec![0; bytes.div_ceil(size_of::<u64>())];
                let words = self.world.all_gather_words(&blank)?;
                let text: Vec<u8> = words[0]
                    .iter()
                    .copied()
                    .flat_map(u64::to_le_bytes)
                    .collect();
                return serde_json::from_slice(&text[..bytes]).context("a result of rank 0");
            }
        }
    }

    /// Does `work` while another thread tells the other processes that it goes on.
    fn with_pulse<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            let pulse = scope.spawn(move || -> trainer::Result<()> {
                while stopped.recv_timeout(self.pulse) == Err(RecvTimeoutError::Timeout) {
                    self.world.all_gather_words(&[BUSY, 0])?;
                }
                Ok(())
            });
            let result = work();
            drop(stop);
            let pulse = pulse
                .join()
                .map_err(|_| anyhow!("the pulse of rank 0 has stopped"))?;
            let result = result?;
            pulse?;
            Ok(result)
        })
    }
}

/// Bytes as words, the last one filled up with zeros.
fn packed(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks(size_of::<u64>()).map(|chunk| {
        let mut word = [0; size_of::<u64>()];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.collect()
}
