//! Shared runs of ids: a rolling hash finds them, a comparison of the ids confirms them.

use crate::random::mix;

/// The length in ids of a run that two documents may not share.
pub const RUN: usize = 50;

/// Base of the polynomial hash, any odd number; a bad one would cost time, never a wrong answer.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// All runs of the documents added so far.
#[derive(Default)]
pub(super) struct Runs {
    documents: Vec<(String, Vec<u32>)>,
    /// (hash, document, start) of every run, in order once sealed.
    entries: Vec<(u64, u32, u32)>,
}

impl Runs {
    /// Adds the ids of a text, without beginning of sequence.
    pub(super) fn add(&mut self, document: String, text: Vec<u32>) {
        let position = self.documents.len() as u32;
        let entries = hashes(&text).map(|(start, hash)| (hash, position, start as u32));
        self.entries.extend(entries);
        self.documents.push((document, text));
    }

    /// Sorts the runs for the search.
    pub(super) fn seal(&mut self) {
        self.entries.sort_unstable();
    }

    /// Where the first run of `text` that an added document has too starts, and that document.
    pub(super) fn first_shared(&self, text: &[u32]) -> Option<(usize, &str)> {
        hashes(text).find_map(|(start, hash)| {
            let first = self.entries.partition_point(|entry| entry.0 < hash);
            self.entries[first..]
                .iter()
                .take_while(|entry| entry.0 == hash)
                .find_map(|&(_, document, other)| {
                    let (name, ids) = &self.documents[document as usize];
                    let other = other as usize;
                    (ids[other..other + RUN] == text[start..start + RUN])
                        .then_some((start, name.as_str()))
                })
        })
    }
}

/// The hash of every run of a text, with its start: Σ mix(id at start + i) · BASE^(RUN - 1 - i)
/// modulo 2^64.
fn hashes(text: &[u32]) -> impl Iterator<Item = (usize, u64)> + '_ {
    let leading = BASE.wrapping_pow(RUN as u32 - 1);
    let mut hash = 0_u64;
    text.iter().enumerate().filter_map(move |(end, &id)| {
        if end >= RUN {
            let leaving = mix(u64::from(text[end - RUN])).wrapping_mul(leading);
            hash = hash.wrapping_sub(leaving);
        }
        hash = hash.wrapping_mul(BASE).wrapping_add(mix(u64::from(id)));
        (end + 1 >= RUN).then(|| (end + 1 - RUN, hash))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolled_hash_is_the_hash_of_the_run_alone() {
        let text: Vec<u32> = (0..200).map(|index| index * index % 17).collect();
        for (start, hash) in hashes(&text) {
            let alone: Vec<_> = hashes(&text[start..start + RUN]).collect();
            assert_eq!(alone, [(0, hash)]);
        }
        assert_eq!(hashes(&text).count(), 151);
        assert_eq!(hashes(&text[..RUN - 1]).count(), 0);
    }
}
