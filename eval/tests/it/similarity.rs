//! Distances of sequences, against definitions that are too slow to use.

use axmem_eval::similarity::{levenshtein, levenshtein_similarity, longest_run, rouge_l, words};
use proptest::prelude::*;

fn letters(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn is(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 1e-12
}

#[test]
fn m04_identical_texts_of_any_script_score_1() {
    for text in [
        "การจดจำข้อความ",
        "Ærøskøbing déjà vu, naïve façade",
        "記憶とは何か。模型会背诵吗？",
        "모델은 텍스트를 기억한다",
        "नमस्ते दुनिया",
    ] {
        let words = words(text);
        assert!(!words.is_empty(), "{text}");
        let score = rouge_l(&words, &words);
        assert!(is(score.f1, 1.0) && is(score.precision, 1.0) && is(score.recall, 1.0));
    }
    assert_eq!(words("The cat, the CAT."), ["The", "cat", "the", "CAT"]);
    assert!(
        is(rouge_l(&words("ja"), &words("Ja")).f1, 0.0),
        "case is kept"
    );
}

#[test]
fn m06_an_empty_completion_is_as_far_as_the_reference_is_long() {
    let reference: Vec<u32> = (0..50).collect();
    assert_eq!(levenshtein(&[], &reference), 50);
    assert_eq!(levenshtein(&reference, &[]), 50);
    assert!(is(levenshtein_similarity(&[], &reference), 0.0));
    assert!(is(levenshtein_similarity::<u32>(&[], &[]), 1.0));
}

#[test]
fn m07_the_longest_run_is_the_true_maximum() {
    let (a, b) = (letters("a b c d e f"), letters("a b c x b c d e f"));
    assert_eq!(longest_run(&a, &b), 5);
    assert_eq!(longest_run(&b, &a), 5);
    assert_eq!(longest_run::<u32>(&[], &[1]), 0);
}

#[test]
fn m09_one_rule_for_empty_sequences() {
    // Nothing in common with nothing: no run, no recall, no distance.
    for (a, b) in [(&[][..], &[][..]), (&[], &[1, 2]), (&[1, 2], &[])] {
        let score = rouge_l(a, b);
        assert!(is(score.precision, 0.0) && is(score.recall, 0.0) && is(score.f1, 0.0));
        assert_eq!(longest_run(a, b), 0);
    }
    // Nothing found of four is 0, not a share of something else.
    assert!(is(
        levenshtein_similarity(&[9, 9, 9, 9], &[1, 2, 3, 4]),
        0.0
    ));
    assert!(is(rouge_l(&[9, 9, 9, 9], &[1, 2, 3, 4]).f1, 0.0));
}

#[test]
fn small_examples() {
    assert_eq!(levenshtein(&[1, 2, 3, 4], &[1, 3, 4, 5]), 2);
    assert!(is(
        levenshtein_similarity(&[1, 2, 3, 4], &[1, 3, 4, 5]),
        0.5
    ));
    let (kitten, sitting) = (
        ["k", "i", "t", "t", "e", "n"],
        ["s", "i", "t", "t", "i", "n", "g"],
    );
    assert_eq!(levenshtein(&kitten, &sitting), 3);
    // The example of the ROUGE paper: police killed the gunman, police kill the gunman.
    let score = rouge_l(
        &words("police kill the gunman"),
        &words("police killed the gunman"),
    );
    assert!(is(score.f1, 0.75));
}

/// By trying all three edits at the first place.
fn slow_distance(a: &[u8], b: &[u8]) -> usize {
    match (a, b) {
        ([], rest) | (rest, []) => rest.len(),
        ([x, a_rest @ ..], [y, b_rest @ ..]) => {
            let replaced = slow_distance(a_rest, b_rest) + usize::from(x != y);
            let dropped = 1 + slow_distance(a_rest, b).min(slow_distance(a, b_rest));
            replaced.min(dropped)
        }
    }
}

/// The longest of all runs of `a` that stand in `b`.
fn slow_run(a: &[u8], b: &[u8]) -> usize {
    (0..a.len())
        .flat_map(|start| (start + 1..=a.len()).map(move |end| &a[start..end]))
        .filter(|run| b.windows(run.len()).any(|window| window == *run))
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0)
}

/// The longest of all selections of `a` that `b` holds in order.
fn slow_subsequence(a: &[u8], b: &[u8]) -> usize {
    (0..1_u32 << a.len())
        .filter(|selection| {
            let mut rest = b.iter();
            (0..a.len())
                .filter(|place| selection >> place & 1 == 1)
                .all(|place| rest.any(|element| *element == a[place]))
        })
        .map(u32::count_ones)
        .max()
        .unwrap_or(0) as usize
}

proptest! {
    #[test]
    fn distances_agree_with_their_definitions(
        a in prop::collection::vec(0_u8..4, 0..8),
        b in prop::collection::vec(0_u8..4, 0..8),
    ) {
        let distance = slow_distance(&a, &b);
        prop_assert_eq!(levenshtein(&a, &b), distance);
        prop_assert_eq!(longest_run(&a, &b), slow_run(&a, &b));
        let common = slow_subsequence(&a, &b) as f64;
        let score = rouge_l(&a, &b);
        let share = |length: usize| if length == 0 { 0.0 } else { common / length as f64 };
        prop_assert!(is(score.precision, share(a.len())));
        prop_assert!(is(score.recall, share(b.len())));
        let f1 = if common > 0.0 { 2.0 * common / (a.len() + b.len()) as f64 } else { 0.0 };
        prop_assert!(is(score.f1, f1));
    }
}
