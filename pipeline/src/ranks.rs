//! The ranks of a run: threads of this process, or processes that a launcher has started.
//!
//! Owns who is asked and who waits: what one process does for all (locks, files, printing) and how
//! the others learn of it. Which stages need ranks is not decided here.

#[cfg(feature = "mpi")]
mod processes;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axmem_trainer::launch::{Launched, TIMEOUT, Threads, launched};
use axmem_trainer::{self as trainer, Grid, Rank};
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(feature = "mpi")]
use self::processes::Processes;
use crate::exit::Failure;
use crate::experiment::Layout;

/// Ranks that one process holds as threads, at most.
const MOST_THREADS: usize = 256;
/// How long the other processes leave a message to the first one.
const LEAVE: Duration = Duration::from_secs(1);

/// Where the ranks of a run are.
#[derive(Debug)]
pub enum Ranks {
    /// Threads of this process.
    Threads(Threads),
    /// Processes, of which this is one.
    #[cfg(feature = "mpi")]
    Processes(Processes),
}

/// The number of this process among those that a launcher has started, 0 without one.
pub fn process() -> usize {
    launched().map_or(0, |launched| launched.rank)
}

/// How many processes a launcher has started, 1 without one.
pub fn started() -> usize {
    launched().map_or(1, |launched| launched.ranks)
}

/// As [`process`], later in all but the first process, so that this one can say what all meet before a launcher ends it
/// for the end of another.
pub fn after_the_first() -> usize {
    let process = process();
    if process > 0 {
        std::thread::sleep(LEAVE);
    }
    process
}

/// Takes an error that came before the ranks were joined to the end of the command. One of several processes joins them
/// to print it, once for all that meet it, and to end all.
#[must_use]
pub fn refuse(error: anyhow::Error) -> anyhow::Error {
    #[cfg(feature = "mpi")]
    if launched().is_some()
        && let Ok(processes) = Processes::start(TIMEOUT, false)
    {
        processes.fail(&error)
    }
    error
}

impl Ranks {
    /// The ranks that this process belongs to; fills what `layouts` leave to the launcher. All of them are run on, one after
    /// another, and the longest of their timeouts counts. Collective.
    ///
    /// # Errors
    /// A grid of another size than the number of processes, or several processes without MPI (exit code 2); an MPI
    /// library that doesn't fit the launcher (exit code 7).
    pub fn join<'a>(layouts: impl IntoIterator<Item = &'a mut Layout>) -> Result<Self> {
        let layouts: Vec<&mut Layout> = layouts.into_iter().collect();
        if let Some(launched) = launched() {
            return Self::of_processes(layouts, &launched);
        }
        let timeout = timeout(&layouts);
        for layout in layouts {
            layout.fill(1);
            let ranks = layout.grid.ranks();
            if ranks > MOST_THREADS {
                return Err(Failure::usage(format!(
                    "grid: {ranks} ranks are more than the {MOST_THREADS} that one process holds as threads; start each \
                     as a process, with `mpirun -n {ranks}`"
                )));
            }
        }
        Ok(Self::Threads(Threads {
            timeout,
            ..Threads::default()
        }))
    }

    #[cfg(feature = "mpi")]
    fn of_processes(layouts: Vec<&mut Layout>, launched: &Launched) -> Result<Self> {
        let check = layouts.iter().any(|layout| layout.check);
        let ranks = Self::Processes(Processes::start(timeout(&layouts), check)?);
        let processes = ranks.processes();
        let alone = if layouts.len() > 1 {
            "; models with grids of other sizes are run one by one, with --only model=NAME"
        } else {
            ""
        };
        for layout in layouts {
            layout.fill(processes);
            let grid = &layout.grid;
            if grid.ranks() != processes {
                return Err(ranks.fail(Failure::usage(format!(
                    "grid: {grid} has {} {}, but {} has started {processes} processes; make the two numbers equal, or \
                     set `grid: auto`{alone}",
                    grid.ranks(),
                    if grid.ranks() == 1 { "rank" } else { "ranks" },
                    launched.launcher
                ))));
            }
        }
        Ok(ranks)
    }

    #[cfg(not(feature = "mpi"))]
    fn of_processes(_: Vec<&mut Layout>, launched: &Launched) -> Result<Self> {
        Err(Failure::usage(format!(
            "{} has started {} processes, but this axmem is built without MPI; build it with `--features mpi`, or start \
             one process, whose threads are the ranks",
            launched.launcher, launched.ranks
        )))
    }

    /// Whether this process prints and writes.
    pub fn is_first(&self) -> bool {
        match self {
            Self::Threads(_) => true,
            #[cfg(feature = "mpi")]
            Self::Processes(processes) => processes.is_first(),
        }
    }

    /// Number of processes.
    pub fn processes(&self) -> usize {
        match self {
            Self::Threads(_) => 1,
            #[cfg(feature = "mpi")]
            Self::Processes(processes) => processes.number(),
        }
    }

    /// The name of the back end in records.
    pub fn back_end(&self) -> &'static str {
        match self {
            Self::Threads(_) => "thread",
            #[cfg(feature = "mpi")]
            Self::Processes(_) => "mpi",
        }
    }

    /// Refuses processes that were not all started for the same: `what` is everything that a result depends on. Collective.
    ///
    /// # Errors
    /// A process that brings something else (exit code 2).
    #[cfg_attr(
        not(feature = "mpi"),
        expect(unused_variables, reason = "threads are one process")
    )]
    pub fn agree(&self, what: &serde_json::Value) -> Result<()> {
        match self {
            Self::Threads(_) => Ok(()),
            #[cfg(feature = "mpi")]
            Self::Processes(processes) => processes.agree(what),
        }
    }

    /// Does `work` on the first process, while the others wait however long it takes; all get its result. Collective.
    ///
    /// # Errors
    /// Those of `work`, on the first process alone: [`Ranks::fail`] then ends the others.
    pub fn lead<T: Serialize + DeserializeOwned>(
        &self,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Threads(_) => work(),
            #[cfg(feature = "mpi")]
            Self::Processes(processes) => processes.lead(work),
        }
    }

    /// Runs `work` on every rank of `grid` and gives the result of the first of this process. An
    /// error of any rank stops all; of threads, the one that came first in cause is returned.
    /// Collective.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn run<T: Send>(&self, grid: &Grid, work: impl Fn(&Rank) -> Result<T> + Sync) -> Result<T> {
        match self {
            Self::Threads(threads) => on_threads(threads, grid, work),
            #[cfg(feature = "mpi")]
            Self::Processes(processes) => work(&processes.rank(grid)?),
        }
    }

    /// Takes an error to the end of the command. One of several processes prints it here and ends all of them.
    #[must_use]
    pub fn fail(&self, error: anyhow::Error) -> anyhow::Error {
        match self {
            Self::Threads(_) => error,
            #[cfg(feature = "mpi")]
            Self::Processes(processes) => processes.fail(&error),
        }
    }
}

/// How long ranks wait for each other: the longest that a layout allows.
fn timeout(layouts: &[&mut Layout]) -> Duration {
    let seconds = layouts.iter().map(|layout| layout.timeout).max();
    seconds.map_or(TIMEOUT, Duration::from_secs)
}

fn on_threads<T: Send>(
    threads: &Threads,
    grid: &Grid,
    work: impl Fn(&Rank) -> Result<T> + Sync,
) -> Result<T> {
    // The launcher knows errors of its own crate only; others wait here.
    let cause = Mutex::new(None);
    let outcome = threads.run(grid, |rank| {
        work(rank).map_err(|error| match error.downcast::<trainer::Error>() {
            Ok(error) => error,
            Err(error) => {
                let mut cause = cause.lock().unwrap_or_else(PoisonError::into_inner);
                cause.get_or_insert(error);
                trainer::Error::Data("stopped".to_owned())
            }
        })
    });
    if let Some(error) = cause.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    outcome?
        .into_iter()
        .next()
        .context("a grid has at least one rank")
}
