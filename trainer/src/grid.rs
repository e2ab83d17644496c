//! The grid of ranks and the names of its axes. Integers only: no tensors, no communication.
//!
//! This is the only place where the letters get their meaning. The released AxoNN code uses the letters the other
//! way round in one comment; what decides is the collective that runs over an axis.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// An axis of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Splits out-features of a normal layer, the heads and the vocabulary; dX is summed over it in the backward.
    X,
    /// Splits in-features of a normal layer and the residual stream; Y is summed over it in the forward.
    Y,
    /// Splits the rows of the batch and the flat weight (all-gather forward, reduce-scatter backward).
    Z,
    /// Replicates the weights; splits the rows of the batch.
    Data,
}

impl Axis {
    /// All axes in the default rank order, innermost first (as in the released code).
    pub const DEFAULT_ORDER: [Self; 4] = [Self::Y, Self::X, Self::Z, Self::Data];

    /// The name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::X => "x",
            Self::Y => "y",
            Self::Z => "z",
            Self::Data => "data",
        }
    }
}

/// Sizes of the four axes, and which of them is innermost in the numbering of ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Size of [`Axis::X`].
    pub x: usize,
    /// Size of [`Axis::Y`].
    pub y: usize,
    /// Size of [`Axis::Z`].
    pub z: usize,
    /// Size of [`Axis::Data`].
    pub data: usize,
    /// Axes from innermost (neighbouring ranks) to outermost.
    #[serde(default = "default_order")]
    pub order: [Axis; 4],
}

fn default_order() -> [Axis; 4] {
    Axis::DEFAULT_ORDER
}

/// A rank's place on each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coord {
    /// Place on [`Axis::X`].
    pub x: usize,
    /// Place on [`Axis::Y`].
    pub y: usize,
    /// Place on [`Axis::Z`].
    pub z: usize,
    /// Place on [`Axis::Data`].
    pub data: usize,
}

impl Coord {
    /// Place on one axis.
    pub fn on(&self, axis: Axis) -> usize {
        match axis {
            Axis::X => self.x,
            Axis::Y => self.y,
            Axis::Z => self.z,
            Axis::Data => self.data,
        }
    }
}

impl Grid {
    /// The grid of one rank.
    pub fn single() -> Self {
        Self::new(1, 1, 1, 1)
    }

    /// A grid in the default rank order.
    pub fn new(x: usize, y: usize, z: usize, data: usize) -> Self {
        Self {
            x,
            y,
            z,
            data,
            order: Axis::DEFAULT_ORDER,
        }
    }

    /// Size of one axis.
    pub fn size(&self, axis: Axis) -> usize {
        match axis {
            Axis::X => self.x,
            Axis::Y => self.y,
            Axis::Z => self.z,
            Axis::Data => self.data,
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.x * self.y * self.z * self.data
    }

    /// Refuses empty axes and a rank order that does not name each axis once.
    pub fn validate(&self) -> Result<()> {
        for axis in Axis::DEFAULT_ORDER {
            if self.size(axis) == 0 {
                return Err(Error::setting(
                    "grid",
                    format!("axis {axis:?} has size 0; every axis is at least 1"),
                ));
            }
            if !self.order.contains(&axis) {
                return Err(Error::setting(
                    "grid.order",
                    format!("axis {axis:?} is missing; name x, y, z and data once each"),
                ));
            }
        }
        Ok(())
    }

    /// Coordinates of a rank.
    pub fn coord(&self, rank: usize) -> Coord {
        let mut coord = Coord {
            x: 0,
            y: 0,
            z: 0,
            data: 0,
        };
        let mut rest = rank;
        for axis in self.order {
            let size = self.size(axis);
            let place = rest % size;
            rest /= size;
            match axis {
                Axis::X => coord.x = place,
                Axis::Y => coord.y = place,
                Axis::Z => coord.z = place,
                Axis::Data => coord.data = place,
            }
        }
        coord
    }

    /// The rank at given coordinates; inverse of [`Grid::coord`].
    pub fn rank(&self, coord: Coord) -> usize {
        self.order
            .iter()
            .rev()
            .fold(0, |rank, &axis| rank * self.size(axis) + coord.on(axis))
    }

    /// The ranks of the group of `rank` along `axis`, ordered by their place on it.
    pub fn group(&self, axis: Axis, rank: usize) -> Vec<usize> {
        let own = self.coord(rank);
        (0..self.size(axis))
            .map(|place| {
                let mut coord = own;
                match axis {
                    Axis::X => coord.x = place,
                    Axis::Y => coord.y = place,
                    Axis::Z => coord.z = place,
                    Axis::Data => coord.data = place,
                }
                self.rank(coord)
            })
            .collect()
    }
}

impl std::fmt::Display for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({}, {}, {}, {})", self.x, self.y, self.z, self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The 24 orders of the axes.
    fn orders() -> Vec<[Axis; 4]> {
        let mut orders = vec![vec![]];
        for axis in Axis::DEFAULT_ORDER {
            orders = orders
                .iter()
                .flat_map(|order: &Vec<Axis>| {
                    (0..=order.len()).map(|at| {
                        let mut order = order.clone();
                        order.insert(at, axis);
                        order
                    })
                })
                .collect();
        }
        let orders = orders.into_iter().map(TryInto::try_into);
        orders.map(|order| order.expect("four axes")).collect()
    }

    #[test]
    fn there_are_24_orders() {
        let mut orders = orders();
        orders.sort_by_key(|order| order.map(Axis::name));
        orders.dedup();
        assert_eq!(orders.len(), 24);
        for order in orders {
            let grid = Grid {
                order,
                ..Grid::new(2, 3, 4, 5)
            };
            grid.validate().unwrap();
            // The first axis is innermost.
            assert_eq!(grid.group(order[0], 0)[1], 1);
            assert_eq!(
                grid.group(order[3], 0)[1],
                grid.ranks() / grid.size(order[3])
            );
        }
    }

    proptest! {
        #[test]
        fn rank_and_coordinates_are_a_bijection(x in 1usize..4, y in 1usize..4, z in 1usize..4, data in 1usize..4) {
            for order in orders() {
                let grid = Grid { order, ..Grid::new(x, y, z, data) };
                for rank in 0..grid.ranks() {
                    let coord = grid.coord(rank);
                    prop_assert_eq!(grid.rank(coord), rank);
                    for axis in Axis::DEFAULT_ORDER {
                        prop_assert!(coord.on(axis) < grid.size(axis));
                        let group = grid.group(axis, rank);
                        prop_assert_eq!(group.len(), grid.size(axis));
                        prop_assert_eq!(group[coord.on(axis)], rank);
                        // The others of the group see the same one.
                        prop_assert_eq!(&grid.group(axis, group[0]), &group);
                    }
                }
            }
        }
    }

    #[test]
    fn default_order_puts_y_innermost() {
        let grid = Grid::new(2, 2, 2, 2);
        assert_eq!(grid.group(Axis::Y, 0), [0, 1]);
        assert_eq!(grid.group(Axis::X, 0), [0, 2]);
        assert_eq!(grid.group(Axis::Z, 0), [0, 4]);
        assert_eq!(grid.group(Axis::Data, 0), [0, 8]);
    }

    #[test]
    fn empty_axis_is_refused() {
        let error = Grid::new(1, 0, 1, 1).validate().unwrap_err();
        assert!(error.to_string().contains("axis Y has size 0"));
    }
}
