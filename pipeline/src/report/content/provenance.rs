//! Sections on where the numbers come from: data, settings, artefacts, definitions.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{MOST_LISTED, kinship};
use crate::report::Inputs;
use crate::report::findings;
use crate::report::format::{NONE, count, duration, number, plural};
use crate::report::page::{Block, Table, Text};
use crate::report::study::Study;

pub(super) fn data(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("data", "Data"));
    let mut sources = Table::new(
        "Sources, with the pinned hash of the file where one is given.",
        4,
        &["Part", "Source", "Revision", "SHA-256"],
    );
    for part in ["corpus", "background"] {
        let text = |key: &str| {
            inputs
                .experiment
                .pointer(&format!("/{part}/{key}"))
                .and_then(Value::as_str)
        };
        if let Some(source) = text("source") {
            sources.rows.push(vec![
                part.into(),
                Text::new().code(source),
                text("revision").unwrap_or(NONE).into(),
                Text::new().code(text("sha256").unwrap_or(NONE)),
            ]);
        }
    }
    if !sources.rows.is_empty() {
        blocks.push(Block::Table(sources));
    }
    if !study.origins.is_empty() {
        let mut table = Table::new("Documents read, by origin.", 1, &["Origin", "Documents"]);
        for (origin, documents) in &study.origins {
            table.row([origin.clone(), count(*documents)]);
        }
        blocks.push(Block::Table(table));
    }
    if !study.tokens.is_empty() {
        let mut reasons: BTreeMap<(bool, String), u64> = BTreeMap::new();
        for row in &study.tokens {
            let reason = (!row.eligible, kind_of_reason(&row.reason));
            *reasons.entry(reason).or_default() += 1;
        }
        let mut table = Table::new(
            "Documents after tokenising, eligible or not, by kind of reason; the table tokens has each with its numbers.",
            2,
            &["", "Reason", "Documents"],
        );
        for ((ineligible, reason), documents) in reasons {
            let state = if ineligible { "ineligible" } else { "eligible" };
            table.row([state.to_owned(), reason, count(documents)]);
        }
        blocks.push(Block::Table(table));
    }
    kinship::near_copies(inputs, study, blocks);
    kinship::contamination(study, blocks);
    exclusions(study, blocks);
}

fn exclusions(study: &Study, blocks: &mut Vec<Block>) {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &study.exclusions {
        *reasons.entry(&row.reason).or_default() += 1;
    }
    let by_reason: Vec<String> = reasons
        .iter()
        .map(|(reason, documents)| format!("{}: {}", reason, count(*documents)))
        .collect();
    if by_reason.is_empty() {
        blocks.push(Block::Paragraph(
            "No background document had to be excluded for its kinship with a bucket or with held-out text.".into(),
        ));
        return;
    }
    blocks.push(Block::Paragraph(
        format!(
            "{} kept out of the background because a bucket, or the held-out text, has the same text or title, or much of the text ({}).",
            plural(study.exclusions.len() as u64, "document"),
            by_reason.join("; ")
        )
        .into(),
    ));
    let mut table = Table::new(
        "",
        3,
        &["Document", "Reason", "Document in a bucket or held out"],
    );
    for row in study.exclusions.iter().take(MOST_LISTED) {
        let title = if row.title.is_empty() {
            &row.document
        } else {
            &row.title
        };
        table.row([title.as_str(), row.reason.as_str(), study.title(&row.other)]);
    }
    let rest = study.exclusions.len().saturating_sub(MOST_LISTED);
    if rest > 0 {
        table.caption = format!("The first {MOST_LISTED}; {rest} more are in the table.").into();
    }
    blocks.push(Block::Details(
        "The excluded documents".to_owned(),
        vec![Block::Table(table)],
    ));
}

/// A reason without the numbers and ids of its document.
fn kind_of_reason(reason: &str) -> String {
    if let Some(survivor) = reason.strip_prefix("exact duplicate of ") {
        // Windows are named after their article with a number.
        return if survivor.contains('#') {
            "a window that is an exact copy of another"
        } else {
            "an exact copy of another document"
        }
        .to_owned();
    }
    if reason.ends_with(" needed") {
        return if reason.starts_with("last piece") {
            "the last piece of an article, shorter than needed"
        } else {
            "shorter than needed"
        }
        .to_owned();
    }
    let mut kind = String::with_capacity(reason.len());
    for character in reason.chars() {
        if !character.is_ascii_digit() {
            kind.push(character);
        } else if !kind.ends_with('…') {
            kind.push('…');
        }
    }
    kind
}

pub(super) fn settings(inputs: &Inputs, blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Section("settings", "Settings"));
    let text = serde_json::to_string_pretty(&inputs.experiment)
        .context("cannot print the resolved experiment as JSON")?;
    blocks.push(Block::Paragraph(
        "All settings as they were when this report was made, defaults filled in. Those that change \
         no number (the layout of ranks, recomputation, checkpoints) may have been others when an \
         artefact was made; its manifest in the store holds its own."
            .into(),
    ));
    blocks.push(Block::Details(
        "Settings when this report was made".to_owned(),
        vec![Block::Code(text)],
    ));
    Ok(())
}

pub(super) fn provenance(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("provenance", "Provenance"));
    let mut tokenizers: Vec<&str> = Vec::new();
    for row in &study.estimates {
        if !row.tokenizer.is_empty() && !tokenizers.contains(&row.tokenizer.as_str()) {
            tokenizers.push(&row.tokenizer);
        }
    }
    blocks.push(Block::Paragraph(
        format!(
            "Made by axmem {} from the tables of the artefacts below, which took {} in all. Tokenizer: {}.",
            inputs.version,
            duration(inputs.seconds),
            if tokenizers.is_empty() { NONE.to_owned() } else { tokenizers.join(", ") }
        )
        .into(),
    ));
    let mut table = Table::new("Artefacts in the store.", 2, &["Stage", "Key"]);
    for artefact in &inputs.artefacts {
        table.rows.push(vec![
            artefact.stage.as_str().into(),
            Text::new().code(artefact.key.as_str()),
        ]);
    }
    blocks.push(Block::Table(table));
}

pub(super) fn definitions(study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("definitions", "Definitions"));
    let term = |name: &str, meaning: String| Text::new().strong(name).plain(format!(": {meaning}"));
    let suffix = study.primary.suffix;
    blocks.push(Block::List(vec![
        term(
            "Probe",
            format!("a document, tokenised once and whole and cut to the training row; its last {suffix} ids are the suffix, what stands before them is the prefix."),
        ),
        term(
            "Decoding",
            "greedy, as many steps as the suffix has ids: the largest logit in 32-bit floats, the lowest id on ties; the end-of-sequence id is an ordinary token and padded vocabulary rows are masked. One pass over the true text gives the same answer as free decoding and is the scorer; free decoding makes the texts and checks it.".to_owned(),
        ),
        term("Exact match", "all ids of the suffix are equal. Token accuracy is the share of suffix ids that have the largest logit under the true prefix.".to_owned()),
        term("Fragile", "the smallest gap between a target's logit and the next is below the measured numerical tolerance, so that rounding could turn the result. Hits are given with fragile documents as they fell, and with all of them counted out or in.".to_owned()),
        term("Cluster", "the windows of one article and of its duplicates and near-copies; the unit of every interval.".to_owned()),
        term("Times", "initial: the weights training started from; warm: after the warm-up on background text, before any treated document; after: at the end of training.".to_owned()),
        term("Intervals", "Wilson (score) and Clopper-Pearson (exact) for the rate of one bucket; Korn-Graubard (exact at the effective number of documents) where a cluster was seen more than once; bootstrap resamples clusters, and where its simulated coverage at level 95 % is outside 93 to 97 %, the coverage is printed beside it and the summary goes by another interval (eval/COVERAGE.md). Where all clusters of a bucket agree, resamples do not differ (no spread): the other two keep their bound, and a difference has recovered variances instead, which combine the Wilson intervals of its parts (Zou and Donner 2008) and may reach beyond 1, as a difference of two changes can.".to_owned()),
        term("Difference in differences", "the change of a treated bucket minus that of the control.".to_owned()),
        term("Paired change", "the change of one bucket between two times, document by document, without the control.".to_owned()),
        term("Smallest detectable", format!("the smallest true difference that a test at the stated level would find with a probability (power) of {}.", number(study.power))),
        term("Goldfish prevents", format!("shown if the whole interval of the Goldfish arm's {} lies below the margin ({}) and that of the standard arm above it; contradicted if the Goldfish arm's lies above; else not shown.", findings::measured(study), number(study.primary.margin))),
        term("Exposure ledger", "one row per presentation of a document, with the tokens that counted in the loss.".to_owned()),
    ]));
}

#[cfg(test)]
mod tests {
    use super::kind_of_reason;

    #[test]
    fn reasons_are_grouped_without_their_numbers() {
        let cases = [
            ("31 ids, 128 needed", "shorter than needed"),
            (
                "last piece: 7 ids, 64 needed",
                "the last piece of an article, shorter than needed",
            ),
            (
                "exact duplicate of 712",
                "an exact copy of another document",
            ),
            (
                "exact duplicate of 712#3",
                "a window that is an exact copy of another",
            ),
            ("no text", "no text"),
            ("more than 4096 of 12", "more than … of …"),
        ];
        for (reason, kind) in cases {
            assert_eq!(kind_of_reason(reason), kind);
        }
    }
}
