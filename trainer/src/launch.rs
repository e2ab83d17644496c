//! Starts the ranks of a grid and hands each its communicators.

use std::time::Duration;

use crate::comm::{Links, World};
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::rank::Rank;

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
    /// The ranks share the cores: each has as many threads for its kernels as come to it, and at least its own.
    /// The first error of a rank stops the others and is returned; errors that merely say "another rank failed" are not.
    pub fn run<T: Send>(
        &self,
        grid: &Grid,
        work: impl Fn(&Rank) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        grid.validate()?;
        if grid.ranks() == 1 {
            return Ok(vec![work(&Rank::single())?]);
        }
        let world = World::new(self.links, self.timeout);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = (cores / grid.ranks()).max(1);
        let outcomes: Vec<Result<T>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..grid.ranks())
                .map(|index| {
                    let (world, work) = (&world, &work);
                    scope.spawn(move || {
                        let outcome = own_kernel_threads(share)
                            .and_then(|()| work(&Rank::on_threads(grid, index, world)));
                        if outcome.is_err() {
                            world.fail();
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
                        world.fail();
                        Err(Error::Rank {
                            rank,
                            message: "panicked; this is a bug in axmem, please report it".into(),
                        })
                    })
                })
                .collect()
        });
        first_cause(outcomes)
    }
}

/// Runs `work` on every rank of `grid` with the usual settings; see [`Threads::run`].
pub fn threads<T: Send>(grid: &Grid, work: impl Fn(&Rank) -> Result<T> + Sync) -> Result<Vec<T>> {
    Threads::default().run(grid, work)
}

/// Gives the calling thread kernels of its own on `threads` threads, itself among them. Results do not depend on the number.
fn own_kernel_threads(threads: usize) -> Result<()> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .use_current_thread()
        .build()
        .map(drop)
        .map_err(|error| Error::Rank {
            rank: 0,
            message: format!("cannot start {threads} threads for kernels: {error}"),
        })
}

/// All results, or the error that came first in cause: one that is not about another rank, if there is any.
fn first_cause<T>(outcomes: Vec<Result<T>>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(outcomes.len());
    let mut consequence = None;
    for outcome in outcomes {
        match outcome {
            Ok(result) => results.push(result),
            Err(error @ Error::Rank { .. }) => {
                consequence.get_or_insert(error);
            }
            Err(cause) => return Err(cause),
        }
    }
    consequence.map_or(Ok(results), Err)
}
