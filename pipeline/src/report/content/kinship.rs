//! What documents share: near-copies within the corpus, and the control with the text trained on.

use axmem_datasets::near_duplicates::{self, GIANT};
use serde_json::Value;

use super::MOST_LISTED;
use crate::report::Inputs;
use crate::report::format::{count, number, plural};
use crate::report::page::{Block, Table, Text};
use crate::report::study::Study;

/// The near-copies of the corpus.
pub(super) fn near_copies(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
    let setting = inputs.experiment.pointer("/documents/near_duplicates");
    if setting.is_none_or(Value::is_null) {
        blocks.push(Block::Paragraph(
            "Near-copies were not looked for: an article and its edited copy may be in different \
             buckets."
                .into(),
        ));
        return;
    }
    if inputs.near_duplicates.is_none() {
        return;
    }
    let sizes = near_duplicates::sizes(&study.near_duplicates);
    let Some(&(cluster, largest)) = sizes.first() else {
        blocks.push(Block::Paragraph(
            "No two articles of the corpus are near-copies of each other.".into(),
        ));
        return;
    };
    let articles: usize = sizes.iter().map(|(_, size)| size).sum();
    blocks.push(Block::Paragraph(
        format!(
            "{} are near-copies of another, in {} of up to {} articles; a cluster is never split over \
             buckets.",
            plural(articles as u64, "article"),
            plural(sizes.len() as u64, "cluster"),
            count(largest as u64),
        )
        .into(),
    ));
    if largest > GIANT {
        blocks.push(Block::Callout(
            Text::new()
                .strong("A very large cluster of near-copies: ")
                .plain(format!("{} articles with ", count(largest as u64)))
                .source(study.title(cluster))
                .plain(
                    ", which counts as one unit. Copies of one text, or pages of one template: \
                     the common text below tells.",
                ),
        ));
    }
    let mut rows: Vec<_> = study.near_duplicates.iter().collect();
    let rank = |cluster: &str| sizes.iter().position(|(name, _)| *name == cluster);
    rows.sort_by_key(|row| rank(&row.cluster));
    let mut table = Table::new(
        "Share: of the shingles of a window or of the whole text of one, those that are in the other's \
         text. Run: ids of the longest run that both have, with its first words.",
        3,
        &["Article", "Near-copy", "Common text", "Share", "Run"],
    );
    for row in rows.iter().take(MOST_LISTED) {
        table.rows.push(vec![
            Text::new().source(study.title(&row.first)),
            Text::new().source(study.title(&row.second)),
            Text::new().source(row.text.as_str()),
            number(row.share).into(),
            count(row.run.into()).into(),
        ]);
    }
    blocks.push(Block::Details(
        format!(
            "The near-copies, largest cluster first{}",
            listed(rows.len())
        ),
        vec![Block::Table(table)],
    ));
}

/// What the control documents share with anything trained on in their trial.
pub(super) fn contamination(study: &Study, blocks: &mut Vec<Block>) {
    let mut rows: Vec<_> = study.contamination.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.run));
    let Some(first) = rows.first() else {
        return;
    };
    let suffix = study.primary.suffix;
    let mut line = Text::from(format!(
        "Control checked against all text trained on in its trial: the longest run that one of {} \
         shares is {} ids",
        plural(rows.len() as u64, "control document"),
        count(first.run.into()),
    ));
    if let Some(other) = &first.other {
        line = line
            .plain(" (")
            .source(study.title(&first.document))
            .plain(" with ")
            .source(study.title(other))
            .plain(")");
    }
    blocks.push(Block::Paragraph(line.plain(format!(
        "; {} of {suffix} ids or more, the length of the suffix.",
        plural(at_least(study, suffix), "run"),
    ))));
    let mut table = Table::new(
        "",
        3,
        &[
            "Control document",
            "Text trained on",
            "Presentations",
            "Trial",
            "Run",
        ],
    );
    for row in rows.iter().take(MOST_LISTED) {
        table.rows.push(vec![
            Text::new().source(study.title(&row.document)),
            Text::new().source(row.other.as_deref().map_or("", |other| study.title(other))),
            row.epochs
                .map_or_else(|| "background".to_owned(), |epochs| count(epochs.into()))
                .into(),
            count(row.trial.into()).into(),
            count(row.run.into()).into(),
        ]);
    }
    blocks.push(Block::Details(
        format!(
            "What the control shares, longest run first{}",
            listed(rows.len())
        ),
        vec![Block::Table(table)],
    ));
}

/// A sentence for the summary, if the control is not clean.
pub(super) fn caveat(study: &Study) -> Option<Text> {
    let suffix = study.primary.suffix;
    let dirty = at_least(study, suffix);
    (dirty > 0).then(|| {
        Text::from(format!(
            "The control is not clean: {} with text trained on, {suffix} ids or more.",
            match dirty {
                1 => "one control document shares a run as long as the suffix".to_owned(),
                _ => format!(
                    "{} control documents share a run as long as the suffix",
                    count(dirty)
                ),
            }
        ))
    })
}

/// Control documents with a shared run of at least so many ids.
fn at_least(study: &Study, ids: u32) -> u64 {
    let rows = study.contamination.iter();
    rows.filter(|row| row.run >= ids).count() as u64
}

fn listed(rows: usize) -> String {
    if rows > MOST_LISTED {
        format!(" (the first {MOST_LISTED} of {})", count(rows as u64))
    } else {
        String::new()
    }
}
