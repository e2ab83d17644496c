//! What one rank holds besides weights: its place in the grid, its communicators, its buffers.

use crate::comm::{Communicator, World};
use crate::grid::{Axis, Coord, Grid};
use crate::pool::Pool;

/// The communicators of one rank, one per axis.
#[derive(Debug)]
pub struct Groups {
    /// Along [`Axis::X`].
    pub x: Box<dyn Communicator>,
    /// Along [`Axis::Y`].
    pub y: Box<dyn Communicator>,
    /// Along [`Axis::Z`].
    pub z: Box<dyn Communicator>,
    /// Along [`Axis::Data`].
    pub data: Box<dyn Communicator>,
}

/// One rank of a grid.
#[derive(Debug)]
pub struct Rank {
    /// The grid it is part of.
    pub grid: Grid,
    /// Its place on each axis.
    pub coord: Coord,
    /// Its number, from 0.
    pub index: usize,
    /// Its communicators.
    pub groups: Groups,
    /// Its buffers.
    pub pool: Pool,
}

impl Rank {
    /// The only rank of the grid of one.
    pub fn single() -> Self {
        let grid = Grid::single();
        let world = World::new(&grid);
        Self::join(&grid, 0, &world)
    }

    pub(crate) fn join(grid: &Grid, index: usize, world: &World) -> Self {
        let pool = Pool::default();
        let along = |axis| -> Box<dyn Communicator> {
            Box::new(world.communicator(grid, axis, index, &pool))
        };
        Self {
            grid: grid.clone(),
            coord: grid.coord(index),
            index,
            groups: Groups {
                x: along(Axis::X),
                y: along(Axis::Y),
                z: along(Axis::Z),
                data: along(Axis::Data),
            },
            pool,
        }
    }

    /// The communicator along an axis.
    pub fn group(&self, axis: Axis) -> &dyn Communicator {
        match axis {
            Axis::X => self.groups.x.as_ref(),
            Axis::Y => self.groups.y.as_ref(),
            Axis::Z => self.groups.z.as_ref(),
            Axis::Data => self.groups.data.as_ref(),
        }
    }

    /// Whether this rank speaks for the grid (prints, writes tables).
    pub fn is_first(&self) -> bool {
        self.index == 0
    }
}
