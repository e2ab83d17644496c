//! The documents that a report shows with their texts.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_eval::{Prefix, Probe, Score, ScoreRow, extraction};
use unicode_segmentation::UnicodeSegmentation;

use super::Request;
use super::analysis::{longest, set_name};
use super::findings::Shown;
use super::texts::{CONTROL, Sets};

/// Words of true text that are shown of a document, unless `--show-text` asks for more.
pub(super) const WORDS: usize = 25;
/// Of these, words of the prefix.
const PREFIX_WORDS: usize = 8;
/// Characters for each word at most, for text that has no words, such as keys.
const CHARACTERS: usize = 10;
/// Ids of the documents of both sets whose longest suffix is reproduced after the first prefix, with their bucket.
pub(super) fn reproduced(rows: &[ScoreRow]) -> Vec<(&str, u32)> {
    let mut seen = BTreeSet::new();
    rows.iter()
        .filter(|row| seen.insert(row.score.document.as_str()))
        .filter(|row| longest(&row.score.suffix).is_some_and(|last| row.score.exact[last]))
        .map(|row| (row.score.document.as_str(), row.epochs))
        .collect()
}

/// Those of the documents, not of the control.
pub(super) fn of_documents(reproduced: &[(&str, u32)]) -> Vec<String> {
    reproduced
        .iter()
        .filter(|(_, level)| *level > 0)
        .map(|(document, _)| (*document).to_owned())
        .collect()
}

/// Documents to be shown, by id: those that are reproduced, the likeliest first, then the nearest misses. Of each the first
/// prefix counts.
pub(super) fn choose(scores: &[Score], most: usize) -> BTreeSet<String> {
    ranked(scores)
        .into_iter()
        .take(most)
        .map(|score| score.document.clone())
        .collect()
}

fn ranked<'a>(scores: impl IntoIterator<Item = &'a Score>) -> Vec<&'a Score> {
    let mut seen = BTreeSet::new();
    let mut first: Vec<&Score> = scores
        .into_iter()
        .filter(|score| seen.insert(score.document.as_str()))
        .collect();
    first.sort_by(|a, b| {
        let key = |score: &Score| {
            let last = longest(&score.suffix).unwrap_or(0);
            Reverse((score.exact[last], score.matched_prefix[last]))
        };
        let likelier = || {
            let last = longest(&a.suffix).unwrap_or(0);
            b.log_probability[last].total_cmp(&a.log_probability[last])
        };
        key(a)
            .cmp(&key(b))
            .then_with(likelier)
            .then_with(|| a.document.cmp(&b.document))
    });
    first
}

/// The chosen documents with their texts.
pub(super) fn shown(
    rows: &[ScoreRow],
    sets: &Sets,
    tokenizer: &Tokenizer,
    bos: Option<u32>,
    request: &Request,
) -> Result<Vec<Shown>> {
    let probes: HashMap<&str, &Probe> = sets
        .probes
        .iter()
        .map(|probe| (probe.document.as_str(), probe))
        .collect();
    let levels = sets.levels();
    ranked(rows.iter().map(|row| &row.score))
        .into_iter()
        .take(request.show)
        .filter_map(|score| Some((score, probes.get(&*score.document)?)))
        .map(|(score, probe)| {
            let is_control = levels.get(&*score.document) == Some(&0);
            let mut shown = show(
                score,
                &shown_prefix(probe, bos, request),
                tokenizer,
                is_control,
            )?;
            if !request.show_text {
                elide(&mut shown);
            }
            Ok(shown)
        })
        .collect()
}

/// The ids of text that the model has seen before the suffix, under the first prefix.
fn shown_prefix(probe: &Probe, bos: Option<u32>, request: &Request) -> Vec<u32> {
    let end = probe.ids.len() - request.longest_suffix();
    let head = usize::from(bos.is_some());
    let start = match request.prefix.first() {
        Some(Prefix::Tokens(tokens)) => end.saturating_sub(*tokens).max(head),
        _ => head,
    };
    probe.ids[start..end].to_vec()
}

fn show(score: &Score, prefix: &[u32], tokenizer: &Tokenizer, is_control: bool) -> Result<Shown> {
    let last = longest(&score.suffix).unwrap_or(0);
    let name = |id: &str| {
        let own = if is_control {
            id.strip_prefix(CONTROL)
        } else {
            None
        };
        own.unwrap_or(id).to_owned()
    };
    let matched = match score.generated_matched {
        Some(matched) => matched,
        None => score.matched_prefix[last],
    } as usize;
    let (target_same, target_rest) = split(tokenizer, &score.target, matched)?;
    let generated = score.generated.as_deref().unwrap_or(&[]);
    let (generated_same, generated_rest) = split(tokenizer, generated, matched)?;
    Ok(Shown {
        set: set_name(u32::from(!is_control)),
        document: name(&score.document),
        cluster: name(&score.cluster),
        exact: score.exact[last],
        fragile: score.fragile[last],
        matched_prefix: score.matched_prefix[last],
        suffix: score.suffix[last],
        log_probability: score.log_probability[last],
        p_z: score.p_z[last],
        p_z_top_k: score.p_z_top_k[last],
        queries: extraction::queries(score.log_probability[last], 0.5),
        edit_distance: score.edit_distance,
        rouge_l_words: score.rouge_l_words,
        prefix_text: tokenizer.decode(prefix)?,
        prefix_elided: false,
        same_elided: false,
        target_same,
        target_rest,
        target_elided: false,
        generated_same,
        generated_rest,
        generated_elided: false,
    })
}

/// The text of ids before and from place `at`, cut where both halves are whole characters.
fn split(tokenizer: &Tokenizer, ids: &[u32], at: usize) -> Result<(String, String)> {
    let whole = tokenizer.decode(ids)?;
    let same = tokenizer.decode(&ids[..at.min(ids.len())])?;
    let shared = whole
        .char_indices()
        .zip(same.chars())
        .take_while(|((_, a), b)| a == b)
        .last()
        .map_or(0, |((start, c), _)| start + c.len_utf8());
    Ok((whole[..shared].to_owned(), whole[shared..].to_owned()))
}

/// Leaves [`WORDS`] words of true text in all in what is shown of a document, those around the first difference, and as many
/// of the generated text as of the suffix, since it may be true text too.
fn elide(shown: &mut Shown) {
    let most = WORDS - PREFIX_WORDS;
    let rest = first_words(&shown.target_rest, most / 2).len();
    shown.target_elided = rest < shown.target_rest.len();
    shown.target_rest.truncate(rest);
    let rest = first_words(&shown.generated_rest, most / 2).len();
    shown.generated_elided = rest < shown.generated_rest.len();
    shown.generated_rest.truncate(rest);
    // Both have these words in common; without a difference, their beginning is shown.
    if shown.target_rest.is_empty() && shown.generated_rest.is_empty() {
        let kept = first_words(&shown.target_same, most).len();
        shown.target_elided = kept < shown.target_same.len();
        shown.generated_elided = shown.target_elided && !shown.generated_same.is_empty();
        shown.target_same.truncate(kept);
        shown.generated_same.truncate(kept);
    } else {
        let left = most - shown.target_rest.unicode_words().count().min(most);
        let kept = last_words(&shown.target_same, left).len();
        shown.same_elided = kept < shown.target_same.len();
        for same in [&mut shown.target_same, &mut shown.generated_same] {
            let start = same.len().saturating_sub(kept);
            if same.is_char_boundary(start) {
                *same = same.split_off(start);
            }
        }
    }
    let end = last_words(&shown.prefix_text, PREFIX_WORDS).to_owned();
    shown.prefix_elided = end.len() < shown.prefix_text.len();
    shown.prefix_text = end;
}

/// The beginning of a text up to the end of its n-th word, and no longer than words usually are.
fn first_words(text: &str, n: usize) -> &str {
    let end = match text.unicode_word_indices().nth(n) {
        None => text.len(),
        Some((next, _)) => next,
    };
    let longest = text.char_indices().nth(n * CHARACTERS);
    &text[..longest.map_or(end, |(place, _)| place.min(end))]
}

/// The end of a text from the beginning of its n-th last word, and no longer than words usually are.
fn last_words(text: &str, n: usize) -> &str {
    let starts: Vec<usize> = text
        .unicode_word_indices()
        .map(|(start, _)| start)
        .collect();
    let start = match starts.len().checked_sub(n) {
        None | Some(0) => 0,
        Some(first) => starts.get(first).copied().unwrap_or(text.len()),
    };
    let longest = (n * CHARACTERS)
        .checked_sub(1)
        .and_then(|last| text.char_indices().nth_back(last));
    match (n, longest) {
        (0, _) => "",
        (_, Some((place, _))) => &text[start.max(place)..],
        (_, None) => &text[start..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(prefix: &str, target: [&str; 2], generated: [&str; 2]) -> Shown {
        let mut shown = Shown {
            set: "documents",
            document: "1".to_owned(),
            cluster: "1".to_owned(),
            exact: false,
            fragile: false,
            matched_prefix: 0,
            suffix: 50,
            log_probability: -1.0,
            p_z: 0.4,
            p_z_top_k: 0.4,
            queries: 2.0,
            edit_distance: None,
            rouge_l_words: None,
            prefix_text: prefix.to_owned(),
            prefix_elided: false,
            same_elided: false,
            target_same: target[0].to_owned(),
            target_rest: target[1].to_owned(),
            target_elided: false,
            generated_same: generated[0].to_owned(),
            generated_rest: generated[1].to_owned(),
            generated_elided: false,
        };
        elide(&mut shown);
        shown
    }

    fn words(count: usize, name: &str) -> String {
        let words: Vec<String> = (0..count).map(|word| format!("{name}{word}")).collect();
        words.iter().map(|word| [word, " "].concat()).collect()
    }

    fn count(texts: [&str; 2]) -> usize {
        texts.concat().split_whitespace().count()
    }

    #[test]
    fn at_most_25_words_of_a_text_are_shown() {
        let prefix = words(40, "p");
        // What is short is shown whole.
        let short = shown(
            &prefix,
            [&words(3, "t"), &words(7, "u")],
            [&words(3, "t"), "x y"],
        );
        assert_eq!(count([&short.prefix_text, ""]), PREFIX_WORDS);
        assert!(short.prefix_elided && !short.same_elided);
        assert!(!short.target_elided && !short.generated_elided);
        // A text that is reproduced.
        let same = words(60, "t");
        let whole = shown(&prefix, [&same, ""], [&same, ""]);
        assert_eq!(
            count([&whole.target_same, &whole.target_rest]),
            WORDS - PREFIX_WORDS
        );
        assert_eq!(whole.target_same, whole.generated_same);
        assert!(whole.target_elided && whole.generated_elided);
        // One that goes on as the document does, early and late; the difference is in what is shown.
        for (same, rest) in [(3, 57), (55, 5)] {
            let (same, rest) = (words(same, "t"), words(rest, "u"));
            let late = shown(&prefix, [&same, &rest], [&same, &rest]);
            assert!(count([&late.target_same, &late.target_rest]) <= WORDS - PREFIX_WORDS);
            assert!(late.target_same.ends_with(&same[same.len() - 3..]));
            assert!(late.target_rest.starts_with("u0"));
            assert_eq!(late.target_same, late.generated_same);
        }
        // No words at all.
        let key = "k".repeat(2000);
        let long = shown(&key, [&key, ""], [&key, ""]);
        assert!(long.target_same.len() + long.prefix_text.len() <= WORDS * CHARACTERS);
    }

    #[test]
    fn a_difference_inside_a_character_elides_nothing() {
        let found = shown("a", ["caf", "é noir"], ["caf\u{fffd}", " noir"]);
        assert!(!found.target_elided && !found.generated_elided);
        assert_eq!(found.generated_rest, " noir");
    }
}
