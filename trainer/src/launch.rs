//! Starts the ranks of a grid and hands each its communicators.

use crate::comm::World;
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::rank::Rank;

/// Runs `work` on every rank of `grid`, each a thread of this process, and gives the results in rank order.
///
/// The first error of a rank stops the others and is returned; errors that merely say "another rank failed" are not.
pub fn threads<T: Send>(grid: &Grid, work: impl Fn(&Rank) -> Result<T> + Sync) -> Result<Vec<T>> {
    grid.validate()?;
    if grid.ranks() == 1 {
        return Ok(vec![work(&Rank::single())?]);
    }
    let world = World::new(grid);
    let outcomes: Vec<Result<T>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..grid.ranks())
            .map(|index| {
                let (world, work) = (&world, &work);
                scope.spawn(move || {
                    let outcome = work(&Rank::join(grid, index, world));
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
