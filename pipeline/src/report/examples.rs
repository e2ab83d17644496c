//! Examples: what the model was asked, what stands in the document, what it wrote.
//!
//! Owns: a fixed rule of choice (no one picks the pretty ones), the windows of text shown, and the
//! limit on quoted text: at most [`MOST_WORDS`] words of a document in each example.

use std::path::Path;

use anyhow::Result;
use axmem_datasets::tokenizer::Tokenizer;

use super::page::{Block, Table, Text};
use super::study::Study;
use super::tables::{self, Score};

const MOST_WORDS: usize = 25;
const PREFIX_WORDS: usize = 8;
const MOST_EXAMPLES: usize = 5;
/// Ids kept before the first difference when the window has to move there.
const LEAD: usize = 8;

/// Scores of one document under each arm, in the order of the arms.
struct Example<'a> {
    exposures: u32,
    scores: Vec<(&'a str, &'a Score)>,
}

/// The blocks of the section.
pub(super) fn blocks(
    study: &Study,
    tokens: Option<&Path>,
    tokenizer: Option<&Path>,
) -> Result<Vec<Block>> {
    let Some(tokenizer) = tokenizer else {
        let text = if study.joined.is_empty() {
            "No tokenizer was given to the report, so ids cannot be printed as text."
        } else {
            "Not part of this joined report, since the studies have different tokenizers; see the report of each study."
        };
        return Ok(vec![Block::Paragraph(text.into())]);
    };
    let tokenizer = Tokenizer::from_file(tokenizer)?;
    let examples = choose(study);
    let mut blocks = vec![Block::Paragraph(
        format!(
            "What was generated for the longest suffix, the end of each document. Chosen by rule, \
             not by hand: in the order of document ids, the first two reproduced and the first not reproduced in the bucket of {} presentations, the first of the next \
             lower bucket, the first control. At most {MOST_WORDS} words of a document are quoted. The \
             first token that differs from the document is marked.",
            study.primary.exposures
        )
        .into(),
    )];
    if examples.is_empty() {
        blocks.push(Block::Paragraph("No generated text was recorded.".into()));
    }
    for example in &examples {
        blocks.push(Block::Table(render(study, tokens, &tokenizer, example)?));
    }
    Ok(blocks)
}

/// Whether the longest suffix was reproduced. Free decoding starts before that one, so what was
/// generated is the answer to it, whatever the primary suffix is.
fn exact(score: &Score) -> bool {
    (0..score.suffix.len())
        .max_by_key(|index| score.suffix[*index])
        .is_some_and(|index| score.exact.get(index) == Some(&true))
}

fn choose(study: &Study) -> Vec<Example<'_>> {
    let Some(model) = study.models.last() else {
        return Vec::new();
    };
    let mut scores: Vec<&Score> = study
        .scores
        .iter()
        .filter(|score| {
            score.model == *model
                && score.time == study.primary.to
                && score.prefix == study.primary.prefix
                && score.generated.is_some()
                && !score.target.is_empty()
        })
        .collect();
    scores.sort_by(|a, b| (a.trial, &a.document).cmp(&(b.trial, &b.document)));
    let Some(trial) = scores.first().map(|score| score.trial) else {
        return Vec::new();
    };
    scores.retain(|score| score.trial == trial);
    let reference = study
        .reference
        .as_deref()
        .or_else(|| study.arms.first().map(String::as_str))
        .unwrap_or_default();
    let of = |exposures: u32, wanted: Option<bool>| {
        scores
            .iter()
            .filter(move |score| {
                score.arm == reference
                    && score.epochs == exposures
                    && wanted.is_none_or(|wanted| exact(score) == wanted)
            })
            .copied()
            .collect::<Vec<&Score>>()
    };
    let highest = study.primary.exposures;
    let lower = study
        .levels
        .iter()
        .map(|(exposures, _)| *exposures)
        .filter(|exposures| *exposures < highest)
        .max();
    let mut chosen: Vec<&Score> = Vec::new();
    chosen.extend(of(highest, Some(true)).into_iter().take(2));
    chosen.extend(of(highest, Some(false)).into_iter().take(1));
    if let Some(lower) = lower.filter(|lower| *lower > 0) {
        chosen.extend(of(lower, None).into_iter().take(1));
    }
    chosen.extend(of(0, None).into_iter().take(1));
    chosen.truncate(MOST_EXAMPLES);
    chosen
        .into_iter()
        .map(|first| Example {
            exposures: first.epochs,
            scores: study
                .arms
                .iter()
                .filter_map(|arm| {
                    scores
                        .iter()
                        .find(|score| score.arm == *arm && score.document == first.document)
                        .map(|score| (arm.as_str(), *score))
                })
                .collect(),
        })
        .collect()
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The ids of the suffix to show: from its start, or from shortly before the first difference
/// where that lies further on, as many as fit into `most` words.
fn window(
    tokenizer: &Tokenizer,
    target: &[u32],
    difference: Option<usize>,
    most: usize,
) -> Result<(usize, usize)> {
    let fitting = |start: usize| -> Result<usize> {
        let mut end = target.len();
        while end > start + 1 && words(&tokenizer.decode(&target[start..end])?) > most {
            end -= 1;
        }
        Ok(end)
    };
    let end = fitting(0)?;
    match difference {
        Some(index) if index >= end => {
            let start = index.saturating_sub(LEAD);
            Ok((start, fitting(start)?))
        }
        _ => Ok((0, end)),
    }
}

/// The last words of the text before the suffix.
fn prefix_tail(
    study: &Study,
    tokens: Option<&Path>,
    tokenizer: &Tokenizer,
    document: &str,
    target: &[u32],
) -> Result<String> {
    let row = study.tokens.iter().position(|row| row.document == document);
    let (Some(path), Some(row)) = (tokens, row) else {
        return Ok(String::new());
    };
    let ids = tables::token_ids(path, row)?;
    let Some(start) = (0..ids.len())
        .rev()
        .find(|start| ids[*start..].starts_with(target))
    else {
        return Ok(String::new());
    };
    // Eight ids a word are plenty, also for text the tokenizer does not know well.
    let from = start.saturating_sub(PREFIX_WORDS * 8);
    let text = tokenizer.decode(&ids[from..start])?;
    let parts: Vec<&str> = text.split_whitespace().collect();
    let tail = &parts[parts.len().saturating_sub(PREFIX_WORDS)..];
    let gap = if text.ends_with(char::is_whitespace) {
        " "
    } else {
        ""
    };
    Ok(format!("… {}{gap}", tail.join(" ")))
}

/// Ids `start..end` as text with the id at `difference` marked.
fn marked(
    tokenizer: &Tokenizer,
    mut text: Text,
    ids: &[u32],
    (start, end): (usize, usize),
    difference: Option<usize>,
) -> Result<Text> {
    let end = end.min(ids.len());
    if start >= end {
        return Ok(text);
    }
    if start > 0 {
        text = text.faint("… ");
    }
    text = match difference.filter(|index| (start..end).contains(index)) {
        Some(index) => text
            .plain(tokenizer.decode(&ids[start..index])?)
            .mark(tokenizer.decode(&ids[index..=index])?)
            .plain(tokenizer.decode(&ids[index + 1..end])?),
        None => text.plain(tokenizer.decode(&ids[start..end])?),
    };
    Ok(if end < ids.len() {
        text.faint(" …")
    } else {
        text
    })
}

fn render(
    study: &Study,
    tokens: Option<&Path>,
    tokenizer: &Tokenizer,
    example: &Example<'_>,
) -> Result<Table> {
    let score = example.scores[0].1;
    // Both begin where the longest suffix does.
    let target = score.target.as_slice();
    let suffix = target.len();
    let generated = |score: &Score| {
        let ids = score.generated.clone().unwrap_or_default();
        ids[..ids.len().min(suffix)].to_vec()
    };
    let difference =
        |ids: &[u32]| (0..target.len()).find(|index| ids.get(*index) != target.get(*index));
    let first = example
        .scores
        .iter()
        .filter_map(|(_, score)| difference(&generated(score)))
        .min();
    let tail = prefix_tail(study, tokens, tokenizer, &score.document, target)?;
    let shown = window(
        tokenizer,
        target,
        first,
        MOST_WORDS - words(&tail).min(PREFIX_WORDS + 2),
    )?;

    let caption = Text::new()
        .strong(study.title(&score.document).to_owned())
        .plain(if example.exposures == 0 {
            " (control, never presented)".to_owned()
        } else {
            format!(" (presented {} times)", example.exposures)
        });
    let mut table = Table::new(caption, 3, &["", "Text", "First difference"]);
    table.rows.push(vec![
        "document".into(),
        marked(tokenizer, Text::new().faint(tail), target, shown, None)?,
        Text::new(),
    ]);
    for (arm, score) in &example.scores {
        let ids = generated(score);
        let index = difference(&ids);
        let note = match index {
            None => format!("none: all {suffix} tokens equal"),
            Some(index) => format!("token {} of {suffix}", index + 1),
        };
        table.rows.push(vec![
            Text::new().code(*arm),
            marked(tokenizer, Text::new(), &ids, shown, index)?,
            note.into(),
        ]);
    }
    Ok(table)
}
