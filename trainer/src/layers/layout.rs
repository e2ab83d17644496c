//! How the flattened rows of a pass fall into segments, and which of them a rank attends on.

use std::ops::Range;
use std::sync::Arc;

use crate::kernels::attention::Segment;
use crate::kernels::rotary::RotaryTable;
use crate::pool::{Buffer, Pool};

/// The rows of one pass.
#[derive(Debug)]
pub(crate) struct Layout {
    /// All rows.
    pub(crate) whole: Span,
    /// The shares of the ranks along Y, if each attends on its own.
    pub(crate) split: Option<Split>,
    /// Angles for at least the largest position.
    pub(crate) rotary: Arc<RotaryTable>,
}

/// A run of rows made of whole segments.
#[derive(Debug)]
pub(crate) struct Span {
    /// Segments in the order of the rows.
    pub(crate) segments: Vec<Segment>,
    /// Position of each row, from 0 in its segment.
    pub(crate) positions: Vec<u32>,
}

/// Rows of segments that attend to themselves, cut between segments into one share for each rank along Y.
#[derive(Debug)]
pub(crate) struct Split {
    /// Rows of each share.
    shares: Vec<Range<usize>>,
    /// s: rows of the longest share; all are padded to it, since a reduce-scatter has equal parts.
    pub(crate) padded: usize,
    /// This rank's place.
    place: usize,
    /// This rank's share, counted from its first row.
    pub(crate) own: Span,
}

impl Layout {
    /// The rows that this rank attends on.
    pub(crate) fn attended(&self) -> &Span {
        self.split.as_ref().map_or(&self.whole, |split| &split.own)
    }
}

impl Span {
    pub(crate) fn new(segments: Vec<Segment>) -> Self {
        let positions = segments
            .iter()
            .flat_map(|segment| segment.keys - segment.queries..segment.keys)
            .map(|position| position as u32)
            .collect();
        Self {
            segments,
            positions,
        }
    }

    /// Segments of the given lengths that attend to themselves.
    pub(crate) fn self_attending(lengths: &[usize]) -> Self {
        let mut start = 0;
        let segments = lengths
            .iter()
            .map(|&length| {
                start += length;
                Segment {
                    query_start: start - length,
                    queries: length,
                    key_start: start - length,
                    keys: length,
                }
            })
            .collect();
        Self::new(segments)
    }

    /// m: rows of the span.
    pub(crate) fn rows(&self) -> usize {
        self.positions.len()
    }
}

impl Split {
    /// Cuts segments of the given lengths into `parts` shares of as equal a number of rows as whole segments allow.
    pub(crate) fn new(lengths: &[usize], parts: usize, place: usize) -> Self {
        let rows: usize = lengths.iter().sum();
        let (mut shares, mut own) = (Vec::with_capacity(parts), 0..0);
        let (mut segment, mut row) = (0, 0);
        for part in 0..parts {
            let (first_segment, first_row) = (segment, row);
            // A segment belongs to the share in which its middle lies.
            while segment < lengths.len()
                && (2 * row + lengths[segment]) * parts <= 2 * rows * (part + 1)
            {
                row += lengths[segment];
                segment += 1;
            }
            if part + 1 == parts {
                (segment, row) = (lengths.len(), rows);
            }
            shares.push(first_row..row);
            if part == place {
                own = first_segment..segment;
            }
        }
        Self {
            padded: shares.iter().map(Range::len).max().unwrap_or(0),
            shares,
            place,
            own: Span::self_attending(&lengths[own]),
        }
    }

    /// Rows of this rank's share among all.
    pub(crate) fn own_rows(&self) -> Range<usize> {
        self.shares[self.place].clone()
    }

    fn is_even(&self) -> bool {
        self.shares.iter().all(|share| share.len() == self.padded)
    }

    /// `[m, width]` to `[y, s, width]`, shares padded with zeros.
    pub(crate) fn spread(&self, pool: &Pool, rows: Buffer, width: usize) -> Buffer {
        if self.is_even() {
            return rows;
        }
        let mut spread = pool.zeros(self.shares.len() * self.padded * width);
        for (share, slot) in self
            .shares
            .iter()
            .zip(spread.chunks_exact_mut((self.padded * width).max(1)))
        {
            slot[..share.len() * width]
                .copy_from_slice(&rows[share.start * width..share.end * width]);
        }
        spread
    }

    /// `[y, s, width]` to `[m, width]`, padding left out.
    pub(crate) fn join(&self, pool: &Pool, spread: Buffer, width: usize) -> Buffer {
        if self.is_even() {
            return spread;
        }
        let rows = self.shares.last().map_or(0, |share| share.end);
        let mut joined = pool.take(rows * width);
        for (share, slot) in self
            .shares
            .iter()
            .zip(spread.chunks_exact((self.padded * width).max(1)))
        {
            joined[share.start * width..share.end * width]
                .copy_from_slice(&slot[..share.len() * width]);
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_sequences_make_equal_shares() {
        let split = Split::new(&[5; 8], 4, 1);
        assert_eq!(split.shares, [0..10, 10..20, 20..30, 30..40]);
        assert_eq!(split.padded, 10);
        assert_eq!(split.own.segments.len(), 2);
        assert_eq!(split.own.segments[0].query_start, 0);
    }

    proptest! {
        #[test]
        fn shares_join_up_and_joining_undoes_spreading(lengths in prop::collection::vec(0usize..9, 0..7), parts in 1usize..5) {
            let rows: usize = lengths.iter().sum();
            let pool = Pool::default();
            let mut next = 0;
            let mut segments = 0;
            for place in 0..parts {
                let split = Split::new(&lengths, parts, place);
                prop_assert_eq!(split.own_rows().start, next);
                prop_assert_eq!(split.own_rows().len(), split.own.rows());
                next = split.own_rows().end;
                segments += split.own.segments.len();
                let data = pool.collect((0..2 * rows).map(|i| i as f32));
                let spread = split.spread(&pool, data.clone(), 2);
                prop_assert_eq!(spread.len(), parts * split.padded * 2);
                prop_assert!(split.join(&pool, spread, 2) == data);
            }
            prop_assert_eq!((next, segments), (rows, lengths.len()));
        }
    }
}
