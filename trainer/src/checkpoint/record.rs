//! Where a stored piece of a tensor belongs: the one description that saving, loading and resharding share.
//!
//! Integers only. A record is the flat range [a, b) of a block [r0, r1) x [c0, c1) of a matrix, row-major, without
//! padding. A record made on one grid is cut and joined into the pieces of any other.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::param::Block;

/// A piece of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Rows [r0, r1) of the block in the matrix.
    #[serde(with = "pair")]
    pub rows: Range<usize>,
    /// Columns [c0, c1) of the block in the matrix.
    #[serde(with = "pair")]
    pub columns: Range<usize>,
    /// The range [a, b) of the block's elements, row-major.
    #[serde(with = "pair")]
    pub flat: Range<usize>,
}

/// Elements that two pieces share and that lie side by side in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Place in the first piece, from its first element.
    pub from: usize,
    /// Place in the second piece, from its first element.
    pub to: usize,
    /// Number of elements.
    pub len: usize,
}

impl Piece {
    /// The piece that a rank's flat shard of `block` holds, without padding.
    pub fn of(block: &Block) -> Self {
        let width = block.shape[1];
        let (rows, columns) = (block.rows.len(), block.columns.len());
        // Real elements before a padded position: full rows, and the real part of the row it is in.
        let real = |position: usize| {
            let (row, column) = (position / width, position % width);
            if row < rows {
                row * columns + column.min(columns)
            } else {
                rows * columns
            }
        };
        Self {
            rows: block.rows.clone(),
            columns: block.columns.clone(),
            flat: real(block.flat.start)..real(block.flat.end),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.flat.len()
    }

    /// Whether the piece has no element.
    pub fn is_empty(&self) -> bool {
        self.flat.is_empty()
    }

    /// Elements of the whole block.
    pub fn block_len(&self) -> usize {
        self.rows.len().saturating_mul(self.columns.len())
    }

    /// Whether the ranges are in order and inside a matrix of `shape`.
    pub fn fits(&self, shape: [usize; 2]) -> bool {
        let ordered =
            |range: &Range<usize>, end: usize| range.start <= range.end && range.end <= end;
        ordered(&self.rows, shape[0])
            && ordered(&self.columns, shape[1])
            && ordered(&self.flat, self.block_len())
    }

    /// Whether the blocks of two pieces have an element in common.
    pub fn blocks_meet(&self, other: &Self) -> bool {
        let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
        meet(&self.rows, &other.rows) && meet(&self.columns, &other.columns)
    }

    /// The piece cut into pieces of at most `len` elements, in order.
    pub fn chunks(&self, len: usize) -> impl Iterator<Item = Self> {
        self.flat.clone().step_by(len).map(move |start| Self {
            flat: start..(start + len).min(self.flat.end),
            ..self.clone()
        })
    }

    /// The elements of `self` that are in `other`, as runs in the order of `self`; each lies in one row of the matrix.
    pub fn overlaps(&self, other: &Self) -> impl Iterator<Item = Overlap> {
        let rows = if self.blocks_meet(other) {
            let (own, theirs) = (self.touched_rows(), other.touched_rows());
            own.start.max(theirs.start)..own.end.min(theirs.end)
        } else {
            0..0
        };
        rows.filter_map(|row| {
            let (own, theirs) = (self.columns_at(row), other.columns_at(row));
            let columns = own.start.max(theirs.start)..own.end.min(theirs.end);
            (!columns.is_empty()).then(|| Overlap {
                from: self.place(row, columns.start),
                to: other.place(row, columns.start),
                len: columns.len(),
            })
        })
    }

    /// The matrix rows that the piece has elements of.
    fn touched_rows(&self) -> Range<usize> {
        if self.is_empty() {
            return 0..0;
        }
        self.row_of(self.flat.start)..self.row_of(self.flat.end - 1) + 1
    }

    /// The matrix row of a position in the block.
    fn row_of(&self, position: usize) -> usize {
        self.rows.start + position / self.columns.len()
    }

    /// The matrix columns of a matrix row that are in the piece.
    fn columns_at(&self, row: usize) -> Range<usize> {
        let start = (row - self.rows.start) * self.columns.len();
        let clip = |edge: usize| {
            self.columns.start + edge.clamp(start, start + self.columns.len()) - start
        };
        clip(self.flat.start)..clip(self.flat.end)
    }

    /// The place in the piece of an element of the matrix that is in it.
    fn place(&self, row: usize, column: usize) -> usize {
        (row - self.rows.start) * self.columns.len() + column - self.columns.start - self.flat.start
    }
}

/// The positions in a rank's shard that are not padding, as runs in order; together they are [`Piece::of`] the block.
pub fn real_runs(block: &Block) -> Vec<Range<usize>> {
    let width = block.shape[1];
    let columns = block.columns.len();
    let end = block.flat.end.min(block.rows.len() * width);
    if columns == width {
        let len = end.saturating_sub(block.flat.start);
        return (len > 0).then_some(0..len).into_iter().collect();
    }
    let mut runs = Vec::new();
    let mut position = block.flat.start;
    while position < end {
        let row_start = position - position % width;
        let stop = (row_start + columns).min(end);
        if position < stop {
            runs.push(position - block.flat.start..stop - block.flat.start);
        }
        position = row_start + width;
    }
    runs
}

/// The position in a rank's shard, padding counted, of an element that has place `place` in [`Piece::of`] the block.
pub(crate) fn padded(block: &Block, place: usize) -> usize {
    let columns = block.columns.len();
    let real = Piece::of(block).flat.start + place;
    real / columns * block.shape[1] + real % columns - block.flat.start
}

/// Says why pieces do not cover a matrix of `shape` exactly once, or nothing if they do.
///
/// Blocks must be equal or disjoint, as every grid makes them, and the flat ranges of equal blocks must join up.
pub fn covering_fault(shape: [usize; 2], pieces: &[Piece]) -> Option<String> {
    let mut sorted: Vec<&Piece> = pieces.iter().filter(|piece| !piece.is_empty()).collect();
    if let Some(piece) = sorted.iter().find(|piece| !piece.fits(shape)) {
        return Some(format!(
            "{} lies outside the matrix {shape:?}",
            describe(piece)
        ));
    }
    sorted.sort_by_key(|piece| {
        let key = |range: &Range<usize>| (range.start, range.end);
        (key(&piece.rows), key(&piece.columns), key(&piece.flat))
    });
    let mut covered = 0;
    let mut blocks: Vec<&Piece> = Vec::new();
    for group in sorted.chunk_by(|a, b| a.rows == b.rows && a.columns == b.columns) {
        let mut next = 0;
        for piece in group {
            if piece.flat.start != next {
                let what = if piece.flat.start > next {
                    "missing"
                } else {
                    "stored twice"
                };
                return Some(format!("elements before {} are {what}", describe(piece)));
            }
            next = piece.flat.end;
        }
        if next != group[0].block_len() {
            return Some(format!(
                "elements after {} are missing",
                describe(group[group.len() - 1])
            ));
        }
        covered += next;
        if let Some(other) = blocks.iter().find(|block| block.blocks_meet(group[0])) {
            return Some(format!(
                "{} and {} overlap",
                describe(other),
                describe(group[0])
            ));
        }
        blocks.push(group[0]);
    }
    (covered != shape[0] * shape[1])
        .then(|| format!("{covered} of {} elements are stored", shape[0] * shape[1]))
}

/// Ranges as `[start, end]` in files.
mod pair {
    use std::ops::Range;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(range: &Range<usize>, to: S) -> Result<S::Ok, S::Error> {
        [range.start, range.end].serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Range<usize>, D::Error> {
        <[usize; 2]>::deserialize(from).map(|[start, end]| start..end)
    }
}

/// A piece in the words of an error.
fn describe(piece: &Piece) -> String {
    format!(
        "rows {:?}, columns {:?}, elements {:?}",
        piece.rows, piece.columns, piece.flat
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::param::Placement;
    use proptest::prelude::*;

    const PLACEMENTS: [Placement; 4] = [
        Placement::NORMAL,
        Placement::TRANSPOSED,
        Placement::HIDDEN,
        Placement::FEATURES,
    ];

    /// Every stored shard of a matrix whose elements are 1, 2, 3, …: pieces with their real values.
    fn shards(shape: [usize; 2], placement: Placement, grid: &Grid) -> Vec<(Piece, Vec<f32>)> {
        (0..grid.ranks())
            .map(|rank| grid.coord(rank))
            .filter(|&coord| coord.data == 0 && placement.counts(coord))
            .map(|coord| {
                let block = placement.block(shape, grid, coord);
                let values = real_runs(&block)
                    .into_iter()
                    .flatten()
                    .filter_map(|at| block.element(block.flat.start + at))
                    .map(|(row, column)| (row * shape[1] + column + 1) as f32)
                    .collect();
                (Piece::of(&block), values)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn w12_any_grid_is_resharded_into_any_other(
            rows in 1usize..9, columns in 1usize..9, kind in 0usize..4,
            x in 1usize..4, y in 1usize..4, z in 1usize..4, p in 1usize..4, q in 1usize..4, s in 1usize..4,
        ) {
            let shape = if kind < 2 { [rows, columns] } else { [1, columns] };
            let from = shards(shape, PLACEMENTS[kind], &Grid::new(x, y, z, 2));
            let to = shards(shape, PLACEMENTS[kind], &Grid::new(p, q, s, 1));
            let pieces: Vec<Piece> = from.iter().map(|(piece, _)| piece.clone()).collect();
            prop_assert_eq!(covering_fault(shape, &pieces), None);
            for (target, expected) in &to {
                prop_assert_eq!(target.len(), expected.len());
                let mut values = vec![0.0; target.len()];
                let mut filled = 0;
                for (piece, stored) in &from {
                    prop_assert_eq!(piece.len(), stored.len());
                    for overlap in piece.overlaps(target) {
                        values[overlap.to..overlap.to + overlap.len]
                            .copy_from_slice(&stored[overlap.from..overlap.from + overlap.len]);
                        filled += overlap.len;
                    }
                }
                prop_assert_eq!(filled, target.len());
                prop_assert_eq!(&values, expected);
            }
        }
    }

    #[test]
    fn holes_and_repeats_are_named() {
        let piece = |rows, columns, flat| Piece {
            rows,
            columns,
            flat,
        };
        let halves = [piece(0..2, 0..4, 0..8), piece(2..4, 0..4, 0..8)];
        assert_eq!(covering_fault([4, 4], &halves), None);
        let fault = |pieces: &[Piece]| covering_fault([4, 4], pieces).unwrap();
        assert_eq!(fault(&halves[..1]), "8 of 16 elements are stored");
        assert!(fault(&[halves[0].clone(), halves[0].clone()]).contains("stored twice"));
        assert!(fault(&[piece(0..4, 0..4, 1..16)]).contains("before"));
        assert!(fault(&[piece(0..4, 0..4, 0..15)]).contains("after"));
        assert!(fault(&[halves[0].clone(), piece(1..4, 0..4, 0..12)]).contains("overlap"));
        assert!(fault(&[piece(0..5, 0..4, 0..20)]).contains("outside"));
    }
}
