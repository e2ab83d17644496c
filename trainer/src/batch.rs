//! What a training step is given: rows of token ids, each made of whole documents.

/// One row (sequence) of a batch. Documents of a row do not see each other: attention, positions and Goldfish windows
/// restart at every segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Token ids, `[T]`.
    pub ids: Vec<u32>,
    /// Lengths of the documents in the row; they sum to `ids.len()`.
    pub segments: Vec<usize>,
    /// Whether Goldfish drops targets of this row.
    pub masked: bool,
}

impl Row {
    /// A row that is one document.
    pub fn document(ids: Vec<u32>, masked: bool) -> Self {
        let segments = vec![ids.len()];
        Self {
            ids,
            segments,
            masked,
        }
    }

    /// The ids of each document of the row.
    pub fn documents(&self) -> impl Iterator<Item = &[u32]> {
        let mut start = 0;
        self.segments.iter().map(move |&len| {
            start += len;
            &self.ids[start - len..start]
        })
    }
}
