//! How close two sequences are: edit distance, longest common run, ROUGE-L. Pure functions on ids or words.
//!
//! The ids of a suffix compare what a model was trained to give; [`words`] compares what people read.
//!
//! ```
//! use axmem_eval::similarity::{rouge_l, words};
//! let score = rouge_l(&words("the cat sat"), &words("the cat has sat"));
//! assert_eq!((score.precision, score.recall), (1.0, 0.75));
//! ```

use unicode_segmentation::UnicodeSegmentation as _;

/// The fewest insertions, deletions and replacements of single elements that make `a` into `b`.
///
/// The distance to an empty sequence is the length of the other. Takes |a|·|b| steps and memory for one row.
pub fn levenshtein<T: Eq>(a: &[T], b: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect(); // from a[..i] to every b[..j]
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(1 + diagonal.min(row[j]));
        }
    }
    row[b.len()]
}

/// `1 - distance / length of the longer one`, from 0 to 1; 1 for two empty sequences.
pub fn levenshtein_similarity<T: Eq>(a: &[T], b: &[T]) -> f64 {
    match a.len().max(b.len()) {
        0 => 1.0,
        longer => 1.0 - levenshtein(a, b) as f64 / longer as f64,
    }
}

/// Length of the longest run of neighbouring elements that both sequences hold.
pub fn longest_run<T: Eq>(a: &[T], b: &[T]) -> usize {
    let mut longest = 0;
    let mut row = vec![0; b.len() + 1]; // the common run that ends at a[i] and b[j - 1]
    for x in a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let run = if x == y { diagonal + 1 } else { 0 };
            diagonal = std::mem::replace(&mut row[j + 1], run);
            longest = longest.max(run);
        }
    }
    longest
}

/// ROUGE-L of one candidate and one reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rouge {
    /// Share of the candidate that is in the longest common subsequence; 0 if the candidate is empty.
    pub precision: f64,
    /// Share of the reference that is in it; 0 if the reference is empty.
    pub recall: f64,
    /// Harmonic mean of both; 0 if both are 0.
    pub f1: f64,
}

/// ROUGE-L: the longest common subsequence, gaps allowed, against the length of either sequence.
pub fn rouge_l<T: Eq>(candidate: &[T], reference: &[T]) -> Rouge {
    let common = longest_subsequence(candidate, reference) as f64;
    let share = |length: usize| {
        if length == 0 {
            0.0
        } else {
            common / length as f64
        }
    };
    let (precision, recall) = (share(candidate.len()), share(reference.len()));
    let f1 = if common > 0.0 {
        2.0 * precision * recall / (precision + recall)
    } else {
        0.0
    };
    Rouge {
        precision,
        recall,
        f1,
    }
}

/// Length of the longest common subsequence.
fn longest_subsequence<T: Eq>(a: &[T], b: &[T]) -> usize {
    let mut row = vec![0; b.len() + 1]; // of a[..i] and every b[..j]
    for x in a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x == y {
                diagonal + 1
            } else {
                above.max(row[j])
            };
            diagonal = above;
        }
    }
    row[b.len()]
}

/// The words of a text by the rules of Unicode (UAX #29), punctuation and spaces left out.
///
/// Case and accents are kept. Scripts without spaces fall into characters, so they are compared too.
pub fn words(text: &str) -> Vec<&str> {
    text.unicode_words().collect()
}
