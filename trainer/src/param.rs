//! A parameter of the model and how it is cut over the grid.
//!
//! From one [`Placement`] follow: the block a rank cuts on load, its flat share of the block, whose squares count in
//! the norm, and its place in a checkpoint.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::grid::{Axis, Coord, Grid};
use crate::pool::Buffer;
use crate::rank::Rank;

/// How a matrix `[rows, columns]` is cut into blocks; every block is then cut flat over Z and copied over Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The axis that splits the rows (out-features, vocabulary).
    pub rows: Option<Axis>,
    /// The axis that splits the columns (in-features, hidden).
    pub columns: Option<Axis>,
    /// Number of neighbours along X that hold the same part of what X splits: key-value heads when there are more
    /// ranks than heads. 1 everywhere else.
    pub copies: usize,
}

impl Placement {
    /// A normal linear layer (q, k, v, gate, up, head) or the embedding: out over X, in over Y.
    pub const NORMAL: Self = Self {
        rows: Some(Axis::X),
        columns: Some(Axis::Y),
        copies: 1,
    };
    /// A transposed linear layer (attention output, down): out over Y, in over X.
    pub const TRANSPOSED: Self = Self {
        rows: Some(Axis::Y),
        columns: Some(Axis::X),
        copies: 1,
    };
    /// A gain or bias along the hidden size, `[1, H]`: columns over Y, copied over X.
    pub const HIDDEN: Self = Self {
        rows: None,
        columns: Some(Axis::Y),
        copies: 1,
    };
    /// A bias along the out-features of a normal layer, `[1, out]`: columns over X, copied over Y.
    pub const FEATURES: Self = Self {
        rows: None,
        columns: Some(Axis::X),
        copies: 1,
    };

    /// The same with `copies` neighbours along X that share a part.
    #[must_use]
    pub fn copied(self, copies: usize) -> Self {
        Self { copies, ..self }
    }

    /// Whether the rank at `coord` is, among those of its replica along Data, the one copy of its block that counts in
    /// norms and is written to checkpoints.
    pub fn counts(&self, coord: Coord) -> bool {
        let splits = |axis| self.rows == Some(axis) || self.columns == Some(axis);
        let first_along_x = if splits(Axis::X) {
            coord.x.is_multiple_of(self.copies)
        } else {
            coord.x == 0
        };
        first_along_x && (splits(Axis::Y) || coord.y == 0)
    }

    /// The block of a `[rows, columns]` matrix that belongs to the rank at `coord`.
    ///
    /// A size that its axis does not divide is cut into equal blocks of the rounded-up size; what lies beyond the matrix
    /// is padding.
    pub fn block(&self, shape: [usize; 2], grid: &Grid, coord: Coord) -> Block {
        let cut = |size: usize, axis: Option<Axis>| {
            let (parts, place) = axis.map_or((1, 0), |axis| (grid.size(axis), coord.on(axis)));
            let copies = if axis == Some(Axis::X) {
                self.copies
            } else {
                1
            };
            let (parts, place) = (parts / copies, place / copies);
            let width = size.div_ceil(parts);
            (
                place * width..((place + 1) * width).min(size).max(place * width),
                width,
            )
        };
        let (rows, block_rows) = cut(shape[0], self.rows);
        let (columns, block_columns) = cut(shape[1], self.columns);
        let flat = (block_rows * block_columns).div_ceil(grid.z);
        Block {
            rows,
            columns,
            shape: [block_rows, block_columns],
            flat: coord.z * flat..(coord.z + 1) * flat,
        }
    }
}

/// The part of a matrix that one rank holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Rows of the matrix in the block, without padding.
    pub rows: Range<usize>,
    /// Columns of the matrix in the block, without padding.
    pub columns: Range<usize>,
    /// Size of the block, padding included.
    pub shape: [usize; 2],
    /// The rank's range in the row-major block, zero-padded to a multiple of z; all ranges of a block have one length.
    pub flat: Range<usize>,
}

impl Block {
    /// The part `range` of this rank's flat shard, as a shard of its own.
    #[must_use]
    pub fn part(&self, range: &Range<usize>) -> Self {
        Self {
            flat: self.flat.start + range.start..self.flat.start + range.end,
            ..self.clone()
        }
    }

    /// The (row, column) in the whole matrix of a position in the flat block, or `None` for padding.
    pub fn element(&self, position: usize) -> Option<(usize, usize)> {
        let row = self.rows.start + position / self.shape[1];
        let column = self.columns.start + position % self.shape[1];
        (self.rows.contains(&row) && self.columns.contains(&column)).then_some((row, column))
    }
}

/// A named parameter: this rank's flat shard of weight and gradient, f32.
#[derive(Clone, Debug)]
pub struct Param {
    /// The published name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Shape of the whole matrix; vectors are `[1, n]`.
    pub shape: [usize; 2],
    /// How it is cut.
    pub placement: Placement,
    /// What this rank holds.
    pub block: Block,
    /// Weight shard, `[block.flat.len()]`.
    pub weight: Buffer,
    /// Gradient shard, `[block.flat.len()]`, summed over micro-batches; empty until a backward reaches it.
    pub gradient: Buffer,
    /// Whether weight decay applies by default (matrices yes, gains and biases no).
    pub decays: bool,
}

impl Param {
    /// A parameter whose elements are `value(row, column)`; padding is zero. No rank sees more than its own shard.
    pub fn new(
        name: impl Into<String>,
        shape: [usize; 2],
        placement: Placement,
        rank: &Rank,
        value: impl Fn(usize, usize) -> f32,
    ) -> Self {
        let block = placement.block(shape, &rank.grid, rank.coord);
        let values = block.flat.clone().map(|position| {
            block
                .element(position)
                .map_or(0.0, |(row, column)| value(row, column))
        });
        Self {
            name: name.into(),
            shape,
            placement,
            gradient: rank.pool.take(0),
            weight: rank.pool.collect(values),
            block,
            decays: placement.rows.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shards_cover_every_element_once_per_replica(
            rows in 1usize..9, columns in 1usize..9, x in 1usize..4, y in 1usize..4, z in 1usize..4, kind in 0usize..4, copies in 1usize..4,
            order in Just(Axis::DEFAULT_ORDER.to_vec()).prop_shuffle(),
        ) {
            let placement = [Placement::NORMAL, Placement::TRANSPOSED, Placement::HIDDEN, Placement::FEATURES][kind];
            let placement = placement.copied(if x % copies == 0 { copies } else { 1 });
            let shape = if kind < 2 { [rows, columns] } else { [1, columns] };
            let order = order.try_into().expect("four axes");
            let grid = Grid { order, ..Grid::new(x, y, z, 2) };
            let mut seen = vec![0; shape[0] * shape[1]];
            for rank in 0..grid.ranks() {
                let coord = grid.coord(rank);
                if coord.data > 0 || !placement.counts(coord) {
                    continue;
                }
                let block = placement.block(shape, &grid, coord);
                for position in block.flat.clone() {
                    if let Some((row, column)) = block.element(position) {
                        seen[row * shape[1] + column] += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1), "{:?}", seen);
        }
    }
}
