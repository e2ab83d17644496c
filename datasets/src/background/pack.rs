//! Whole documents into rows: next fit, boundaries kept.

use crate::eligibility::without_bos;

/// The fewest ids of a piece that is worth a segment; shorter documents and remainders of long
/// documents are dropped.
pub const MIN_PIECE: usize = 16;

/// A training row made of several documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedRow {
    /// Its number among the rows of its kind, from 0.
    pub row: u32,
    /// Whether it is held out from training.
    pub held_out: bool,
    /// The ids of its segments, one after the other.
    pub ids: Vec<u32>,
    /// Lengths of the segments; their sum is the length of `ids`. Neither attention nor a loss
    /// mask may look across a boundary.
    pub segments: Vec<u32>,
    /// The document of each segment.
    pub documents: Vec<String>,
}

impl PackedRow {
    /// The segments with their documents, without beginning of sequence.
    pub(crate) fn pieces(&self, bos: Option<u32>) -> impl Iterator<Item = (&str, &[u32])> {
        let mut rest = self.ids.as_slice();
        let segments = self.segments.iter().zip(&self.documents);
        segments.map(move |(&length, document)| {
            let (piece, behind) = rest.split_at(length as usize);
            rest = behind;
            (document.as_str(), without_bos(piece, bos))
        })
    }
}

/// Fills rows in the order of the documents: a piece that does not fit closes the row.
pub(super) struct Packer {
    row_tokens: usize,
    bos: Option<u32>,
    limit: usize,
    rows: Vec<PackedRow>,
    /// The last row of `limit` was closed.
    full: bool,
}

impl Packer {
    /// At most `limit` rows of at most `row_tokens` ids each, `bos` before every piece.
    pub(super) fn new(row_tokens: usize, bos: Option<u32>, limit: usize) -> Self {
        Self {
            row_tokens,
            bos,
            limit,
            rows: Vec::new(),
            full: limit == 0,
        }
    }

    /// Adds a document, cut into pieces if it is longer than a row; false if nothing of it could
    /// be used.
    pub(super) fn push(&mut self, document: &str, text: &[u32]) -> bool {
        let room = self.row_tokens - self.bos.iter().len();
        let mut used = false;
        for piece in text.chunks(room) {
            let length = piece.len() + self.bos.iter().len();
            if length < MIN_PIECE {
                continue;
            }
            let fits = self
                .rows
                .last()
                .is_some_and(|row| row.ids.len() + length <= self.row_tokens);
            if !fits {
                if self.rows.len() == self.limit {
                    self.full = true;
                    return used;
                }
                self.rows.push(PackedRow::default());
            }
            let row = self.rows.last_mut().expect("a row was opened above");
            row.ids.extend(self.bos);
            row.ids.extend(piece);
            row.segments.push(length as u32);
            row.documents.push(document.to_owned());
            used = true;
        }
        used
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn finish(mut self, held_out: bool) -> Vec<PackedRow> {
        for (number, row) in self.rows.iter_mut().enumerate() {
            row.row = number as u32;
            row.held_out = held_out;
        }
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Cutting the rows at their segments gives back every piece of every document, in order.
        #[test]
        fn unpacking_gives_back_what_was_packed(
            lengths in prop::collection::vec(0_usize..150, 0..30),
            row_tokens in 20_usize..80,
            bos in prop::option::of(Just(9_u32)),
        ) {
            let extra = usize::from(bos.is_some());
            let mut packer = Packer::new(row_tokens, bos, usize::MAX);
            let mut expected = Vec::new();
            for (number, &length) in lengths.iter().enumerate() {
                let text: Vec<u32> = (0..length as u32).map(|id| 100 + id).collect();
                let pieces: Vec<Vec<u32>> = text
                    .chunks(row_tokens - extra)
                    .map(|piece| bos.into_iter().chain(piece.iter().copied()).collect())
                    .filter(|piece: &Vec<u32>| piece.len() >= MIN_PIECE)
                    .collect();
                let used = packer.push(&number.to_string(), &text);
                prop_assert_eq!(used, !pieces.is_empty());
                expected.extend(pieces.into_iter().map(|piece| (number.to_string(), piece)));
            }
            let mut unpacked = Vec::new();
            for row in packer.finish(false) {
                prop_assert!(row.ids.len() <= row_tokens);
                let mut rest = &row.ids[..];
                for (&length, document) in row.segments.iter().zip(&row.documents) {
                    let (piece, after) = rest.split_at(length as usize);
                    unpacked.push((document.clone(), piece.to_vec()));
                    rest = after;
                }
                prop_assert!(rest.is_empty());
            }
            prop_assert_eq!(unpacked, expected);
        }
    }

    #[test]
    fn packing_stops_at_the_limit() {
        let mut packer = Packer::new(20, None, 2);
        let text: Vec<u32> = (0..20).collect();
        for name in ["a", "b"] {
            assert!(packer.push(name, &text));
            assert!(!packer.is_full());
        }
        assert!(!packer.push("c", &text));
        assert!(packer.is_full());
        assert_eq!(packer.finish(true).len(), 2);
    }
}
