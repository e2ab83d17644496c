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

/// Leaves [`WORDS`] words of true text in all in what is shown of a document, and as many of the generated text as of the
/// suffix, since it may be true text too.
fn elide(shown: &mut Shown) {
    let cut = |same: &mut String, rest: &mut String| {
        let whole = format!("{same}{rest}");
        let kept = first_words(&whole, WORDS - PREFIX_WORDS);
        let place = same.len().min(kept.len());
        kept[place..].clone_into(rest);
        same.truncate(place);
        (kept.len() < whole.len(), kept.unicode_words().count())
    };
    let (target_elided, words) = cut(&mut shown.target_same, &mut shown.target_rest);
    let (generated_elided, _) = cut(&mut shown.generated_same, &mut shown.generated_rest);
    let end = last_words(&shown.prefix_text, WORDS.saturating_sub(words)).to_owned();
    shown.prefix_elided = end.len() < shown.prefix_text.len();
    shown.prefix_text = end;
    shown.target_elided = target_elided;
    shown.generated_elided = generated_elided;
}

/// The beginning of a text up to the end of its n-th word.
fn first_words(text: &str, n: usize) -> &str {
    match text.unicode_word_indices().nth(n) {
        None => text,
        Some((next, _)) => &text[..next],
    }
}

/// The end of a text from the beginning of its n-th last word.
fn last_words(text: &str, n: usize) -> &str {
    let starts: Vec<usize> = text
        .unicode_word_indices()
        .map(|(start, _)| start)
        .collect();
    match starts.len().checked_sub(n) {
        None | Some(0) => text,
        Some(first) if first == starts.len() => "",
        Some(first) => &text[starts[first]..],
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

    #[test]
    fn at_most_25_words_of_a_text_are_shown() {
        let prefix = words(40, "p");
        let short = shown(
            &prefix,
            [&words(3, "t"), &words(7, "u")],
            [&words(3, "t"), "x y"],
        );
        assert_eq!(short.prefix_text.split_whitespace().count(), 15);
        assert!(short.prefix_elided && !short.target_elided && !short.generated_elided);
        // A text that is reproduced, and one that goes on as the document does after one word that differs.
        for (same, rest) in [(60, 0), (3, 57)] {
            let (same, rest) = (words(same, "t"), words(rest, "u"));
            let long = shown(&prefix, [&same, &rest], [&same, &rest]);
            for (same, rest) in [
                (&long.target_same, &long.target_rest),
                (&long.generated_same, &long.generated_rest),
            ] {
                assert_eq!(
                    format!("{same}{rest}").split_whitespace().count(),
                    WORDS - PREFIX_WORDS
                );
            }
            assert!(long.target_elided && long.generated_elided);
            assert_eq!(long.prefix_text.split_whitespace().count(), PREFIX_WORDS);
        }
    }

    #[test]
    fn a_difference_inside_a_character_elides_nothing() {
        let found = shown("a", ["caf", "é noir"], ["caf\u{fffd}", " noir"]);
        assert!(!found.target_elided && !found.generated_elided);
        assert_eq!(found.generated_rest, " noir");
    }
}
