//! Shared runs of ids: a rolling hash finds them, a comparison of the ids confirms them.

use rayon::prelude::*;

use crate::random::mix;

/// Base of the polynomial hash, any odd number; a bad one would cost time, never a wrong answer.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The run that [`longest`] looks for first: nearly every text shares one with much other text,
/// and few places of that share it too.
pub(crate) const SEED: usize = 8;

/// All runs of one length of the texts added so far.
pub(crate) struct Runs {
    length: usize,
    texts: Vec<Vec<u32>>,
    /// (hash, text, start) of every run, in order once sealed.
    entries: Vec<(u64, u32, u32)>,
}

impl Runs {
    /// Runs of `length` ids, at least one.
    pub(crate) fn new(length: usize) -> Self {
        Self {
            length,
            texts: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Adds the ids of a text, without beginning of sequence. Texts are numbered from 0.
    pub(crate) fn add(&mut self, text: Vec<u32>) {
        let position = self.texts.len() as u32;
        let entries =
            hashes(&text, self.length).map(|(start, hash)| (hash, position, start as u32));
        self.entries.extend(entries);
        self.texts.push(text);
    }

    /// Sorts the runs for the search.
    pub(crate) fn seal(&mut self) {
        self.entries.sort_unstable();
    }

    /// The texts in the order they were added.
    pub(crate) fn texts(&self) -> &[Vec<u32>] {
        &self.texts
    }

    /// Where the run of `text` at `start`, of this hash, is in the added texts: (text, start), in
    /// order.
    fn places<'a>(
        &'a self,
        text: &'a [u32],
        (start, hash): (usize, u64),
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        let first = self.entries.partition_point(|entry| entry.0 < hash);
        let run = &text[start..start + self.length];
        self.entries[first..]
            .iter()
            .take_while(move |entry| entry.0 == hash)
            .map(|&(_, other, place)| (other as usize, place as usize))
            .filter(move |&(other, place)| self.texts[other][place..place + self.length] == *run)
    }

    /// For every run of `text`: where it starts, and its places in the added texts.
    pub(crate) fn shared<'a>(
        &'a self,
        text: &'a [u32],
    ) -> impl Iterator<Item = (usize, impl Iterator<Item = (usize, usize)> + 'a)> + 'a {
        hashes(text, self.length).map(move |run| (run.0, self.places(text, run)))
    }

    /// Where the first run of `text` that an added text has too starts, and that text.
    pub(crate) fn first_shared(&self, text: &[u32]) -> Option<(usize, usize)> {
        self.shared(text)
            .find_map(|(start, mut places)| Some((start, places.next()?.0)))
    }
}

/// A run that a text shares with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Ids of the run.
    pub length: usize,
    /// Where it starts in the text.
    pub start: usize,
    /// The other text.
    pub other: usize,
}

impl Shared {
    /// The longer one; of equals that with the earlier other text, then the earlier start.
    fn or_better(self, found: Option<Self>) -> Self {
        let key = |run: &Self| (std::cmp::Reverse(run.length), run.other, run.start);
        match found {
            Some(found) if key(&found) <= key(&self) => found,
            _ => self,
        }
    }
}

/// The longest run of ids that each of `texts` shares with any of `others`; `None` if no id is
/// shared. The answer does not depend on the number of threads.
///
/// Runs of [`SEED`] ids are looked up and grown to the right, each from its left end only; texts
/// that share none are searched again for shorter ones.
pub(crate) fn longest(texts: &[&[u32]], others: &[&[u32]]) -> Vec<Option<Shared>> {
    let mut best = vec![None; texts.len()];
    let mut open: Vec<usize> = (0..texts.len()).collect();
    for length in (1..=SEED).rev() {
        let mut index = Runs::new(length);
        for &text in &open {
            index.add(texts[text].to_vec());
        }
        index.seal();
        for (&text, found) in open.iter().zip(longest_from(&index, others)) {
            best[text] = found;
        }
        open.retain(|&text| best[text].is_none());
        if open.is_empty() {
            break;
        }
    }
    best
}

/// As [`longest`], for the texts of an index, of runs that are no shorter than its own.
pub(crate) fn longest_from(index: &Runs, others: &[&[u32]]) -> Vec<Option<Shared>> {
    let none = || vec![None; index.texts().len()];
    let look = |mut found: Vec<Option<Shared>>, (other, ids): (usize, &&[u32])| {
        grow(index, ids, other, &mut found);
        found
    };
    let join = |left: Vec<Option<Shared>>, right: Vec<Option<Shared>>| {
        let pairs = left.into_iter().zip(right);
        pairs
            .map(|(left, right)| right.map_or(left, |right| Some(right.or_better(left))))
            .collect()
    };
    let others = others.par_iter().enumerate();
    others.fold(none, look).reduce(none, join)
}

/// Notes the longest run of each text of the index with one other text.
fn grow(index: &Runs, ids: &[u32], other: usize, best: &mut [Option<Shared>]) {
    for (place, matches) in index.shared(ids) {
        for (text, start) in matches {
            let own = &index.texts()[text];
            if place > 0 && start > 0 && ids[place - 1] == own[start - 1] {
                continue;
            }
            let pairs = ids[place..].iter().zip(&own[start..]);
            let found = Shared {
                length: pairs.take_while(|(left, right)| left == right).count(),
                start,
                other,
            };
            best[text] = Some(found.or_better(best[text]));
        }
    }
}

/// The hash of every run of `length` ids of a text, with its start:
/// Σ mix(id at start + i) · BASE^(length - 1 - i) modulo 2^64.
pub(crate) fn hashes(text: &[u32], length: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
    let leading = BASE.wrapping_pow(length as u32 - 1);
    let mut hash = 0_u64;
    text.iter().enumerate().filter_map(move |(end, &id)| {
        if end >= length {
            let leaving = mix(u64::from(text[end - length])).wrapping_mul(leading);
            hash = hash.wrapping_sub(leaving);
        }
        hash = hash.wrapping_mul(BASE).wrapping_add(mix(u64::from(id)));
        (end + 1 >= length).then(|| (end + 1 - length, hash))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    #[test]
    fn a_rolled_hash_is_the_hash_of_the_run_alone() {
        let text: Vec<u32> = (0..200).map(|index| index * index % 17).collect();
        for (start, hash) in hashes(&text, 50) {
            let alone: Vec<_> = hashes(&text[start..start + 50], 50).collect();
            assert_eq!(alone, [(0, hash)]);
        }
        assert_eq!(hashes(&text, 50).count(), 151);
        assert_eq!(hashes(&text[..49], 50).count(), 0);
    }

    /// The longest run by looking at every pair of places.
    fn by_hand(text: &[u32], others: &[&[u32]]) -> Option<Shared> {
        let mut best: Option<Shared> = None;
        for (other, ids) in others.iter().enumerate() {
            for start in 0..text.len() {
                for place in 0..ids.len() {
                    let pairs = text[start..].iter().zip(&ids[place..]);
                    let length = pairs.take_while(|(left, right)| left == right).count();
                    if length > best.map_or(0, |best| best.length) {
                        best = Some(Shared {
                            length,
                            start,
                            other,
                        });
                    }
                }
            }
        }
        best
    }

    #[test]
    fn the_longest_run_is_that_of_looking_everywhere() {
        // From an alphabet of two letters long runs are shared, from one of 90 hardly a pair.
        for letters in [2, 5, 20, 90] {
            let text = |name: u32, length: u32| -> Vec<u32> {
                let draw = |place: u32| {
                    let name = [name.to_le_bytes(), place.to_le_bytes()].concat();
                    (random::uniform(3, "test", &[&name]) * f64::from(letters)) as u32
                };
                (0..length).map(draw).collect()
            };
            let texts: Vec<Vec<u32>> = (0..12).map(|name| text(name, 3 * name)).collect();
            let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
            let others: Vec<Vec<u32>> = (12..20).map(|name| text(name, 50)).collect();
            let others: Vec<&[u32]> = others.iter().map(Vec::as_slice).collect();
            for (text, found) in texts.iter().zip(longest(&texts, &others)) {
                assert_eq!(found, by_hand(text, &others), "{letters} letters");
            }
        }
    }
}
