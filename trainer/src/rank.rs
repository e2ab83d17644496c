//! What one rank holds besides weights: its place in the grid, its communicators, its buffers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::comm::{Alone, Communicator, Ledger, Line, Recorded, World};
use crate::error::Result;
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
    /// Its record of what was communicated.
    pub ledger: Ledger,
    /// Runs of neighbours along X, by their length.
    replicas: Mutex<HashMap<usize, Arc<dyn Communicator>>>,
}

impl Rank {
    /// The only rank of the grid of one.
    pub fn single() -> Self {
        Self::join(&Grid::single(), 0, &Pool::default(), |_| {
            Ok(Box::new(Alone))
        })
        .expect("a group of one needs nothing")
    }

    pub(crate) fn on_threads(grid: &Grid, index: usize, world: &World) -> Self {
        let pool = Pool::default();
        Self::join(grid, index, &pool, |axis| {
            Ok(world.communicator(grid, axis, index, &pool))
        })
        .expect("threads are joined without a message")
    }

    /// A rank whose communicators come from `along` and take their results from `pool`.
    pub(crate) fn join(
        grid: &Grid,
        index: usize,
        pool: &Pool,
        along: impl Fn(Axis) -> Result<Box<dyn Communicator>>,
    ) -> Result<Self> {
        let ledger = Ledger::default();
        let recorded = |axis: Axis| {
            let inner = along(axis)?;
            Ok(record(inner, axis.into(), &ledger))
        };
        Ok(Self {
            grid: grid.clone(),
            coord: grid.coord(index),
            index,
            groups: Groups {
                x: recorded(Axis::X)?,
                y: recorded(Axis::Y)?,
                z: recorded(Axis::Z)?,
                data: recorded(Axis::Data)?,
            },
            pool: pool.clone(),
            ledger,
            replicas: Mutex::default(),
        })
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

    /// The run of `copies` neighbours along X that this rank is in, such as the holders of one key-value head.
    /// Collective at the first call.
    pub fn replicas(&self, copies: usize) -> Result<Arc<dyn Communicator>> {
        let mut known = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = known.get(&copies) {
            return Ok(Arc::clone(group));
        }
        let group = self.groups.x.split(copies)?;
        let group: Arc<dyn Communicator> = Arc::from(record(group, Line::Replicas, &self.ledger));
        known.insert(copies, Arc::clone(&group));
        Ok(group)
    }

    /// What the first rank says, on every rank. Collective.
    pub fn agree(&self, word: u64) -> Result<u64> {
        let mut word = word;
        for axis in Axis::DEFAULT_ORDER {
            word = self.group(axis).all_gather_words(&[word])?[0][0];
        }
        Ok(word)
    }

    /// Returns when every rank of the grid has called it.
    pub fn barrier(&self) -> Result<()> {
        self.agree(0).map(drop)
    }

    /// Whether this rank speaks for the grid (prints, writes tables).
    pub fn is_first(&self) -> bool {
        self.index == 0
    }
}

fn record(inner: Box<dyn Communicator>, line: Line, ledger: &Ledger) -> Box<dyn Communicator> {
    if inner.size() == 1 {
        return inner;
    }
    Box::new(Recorded {
        inner,
        line,
        ledger: ledger.clone(),
    })
}
