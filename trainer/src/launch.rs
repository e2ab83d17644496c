//! Starts the ranks of a grid and hands each its communicators.

mod environment;
#[cfg(feature = "mpi")]
mod mpi;

use std::time::Duration;

use crate::comm::{Links, World};
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::rank::Rank;

pub use environment::{Launched, Launcher, launched};
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, MpiSettings, Reduce};

/// How long a rank waits for the others before it names them, unless set otherwise.
pub const TIMEOUT: Duration = Duration::from_mins(10);

/// How ranks that are threads of this process are started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threads {
    /// How long a rank waits for the others before it names them.
    pub timeout: Duration,
    /// Networks to imitate.
    pub links: Links,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT,
            links: Links::default(),
        }
    }
}

impl Threads {
    /// Runs `work` on every rank of `grid`, each a thread of this process, and gives the results in rank order.
    ///
    /// The ranks share the cores equally; each runs its kernels on its share of threads, and at least on its own.
    /// The first error of a rank stops the others and is returned; errors that merely say "another rank failed" are not.
    pub fn run<T: Send>(
        &self,
        grid: &Grid,
        work: impl Fn(&Rank) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        grid.validate()?;
        if grid.ranks() == 1 {
            // On a thread of the pool: a kernel called from outside would wake it and wait for every product.
            return Ok(vec![rayon::scope(|_| work(&Rank::single()))?]);
        }
        let world = World::new(self.links, self.timeout);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = (cores / grid.ranks()).max(1);
        let outcomes: Vec<Result<T>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..grid.ranks())
                .map(|index| {
                    let (world, work) = (&world, &work);
                    scope.spawn(move || {
                        let _panicking = FailsOnPanic { world, rank: index };
                        let outcome = own_kernel_threads(index, share)
                            .and_then(|_kernels| work(&Rank::on_threads(grid, index, world)));
                        if outcome.is_err() {
                            world.fail(index);
                        }
                        outcome
                    })
                })
                .collect();
            handles
                .into_iter()
                .enumerate()
                .map(|(rank, handle)| {
                    handle.join().unwrap_or_else(|_| {
                        Err(Error::Rank {
                            rank,
                            message: "panicked; this is a bug in axmem, please report it".into(),
                        })
                    })
                })
                .collect()
        });
        first_cause(outcomes, world.failed())
    }
}

/// Runs `work` on every rank of `grid` with the usual settings; see [`Threads::run`].
pub fn threads<T: Send>(grid: &Grid, work: impl Fn(&Rank) -> Result<T> + Sync) -> Result<Vec<T>> {
    Threads::default().run(grid, work)
}

/// Gives the calling thread kernels of its own on `threads` threads, itself among them, as long as the result lives. Results
/// of kernels do not depend on the number.
fn own_kernel_threads(rank: usize, threads: usize) -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .use_current_thread()
        .build()
        .map_err(|error| Error::Rank {
            rank,
            message: format!("cannot start {threads} threads for kernels: {error}"),
        })
}

/// Says that a rank has failed when its thread unwinds, so that the others do not wait for it.
struct FailsOnPanic<'a> {
    world: &'a World,
    rank: usize,
}

impl Drop for FailsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.world.fail(self.rank);
        }
    }
}

/// All results, or the error that came first in cause: one that is not about another rank, if there is any; else that of
/// the rank that `failed` first.
fn first_cause<T>(outcomes: Vec<Result<T>>, failed: Option<usize>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(outcomes.len());
    let mut consequence = None;
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(result) => results.push(result),
            Err(error @ Error::Rank { .. }) => {
                if failed == Some(rank) {
                    consequence = Some(error);
                }
            }
            Err(cause) => return Err(cause),
        }
    }
    consequence.map_or(Ok(results), Err)
}
