//! Sections on where the numbers come from: data, settings, artefacts, definitions.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::MOST_LISTED;
use crate::report::Inputs;
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
        let mut table = Table::new("Documents read, by file.", 1, &["Origin", "Documents"]);
        for (origin, documents) in &study.origins {
            table.row([origin.clone(), count(*documents)]);
        }
        blocks.push(Block::Table(table));
    }
    if !study.tokens.is_empty() {
        let mut reasons: BTreeMap<(bool, &str), u64> = BTreeMap::new();
        for row in &study.tokens {
            *reasons.entry((!row.eligible, &row.reason)).or_default() += 1;
        }
        let mut table = Table::new(
            "Documents after tokenising, eligible or not, with the reason.",
            2,
            &["", "Reason", "Documents"],
        );
        for ((ineligible, reason), documents) in reasons {
            let state = if ineligible { "ineligible" } else { "eligible" };
            table.row([state.to_owned(), reason.to_owned(), count(documents)]);
        }
        blocks.push(Block::Table(table));
    }
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
            "No background document had to be excluded for its kinship with a bucket.".into(),
        ));
        return;
    }
    blocks.push(Block::Paragraph(
        format!(
            "{} kept out of the background because a bucket holds the same text or title ({}).",
            plural(study.exclusions.len() as u64, "document"),
            by_reason.join("; ")
        )
        .into(),
    ));
    let mut table = Table::new("", 3, &["Document", "Reason", "Document in a bucket"]);
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

pub(super) fn settings(inputs: &Inputs, blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Section("settings", "Settings"));
    let text = serde_json::to_string_pretty(&inputs.experiment)
        .context("cannot print the resolved experiment as JSON")?;
    blocks.push(Block::Details(
        "The resolved experiment, no defaults left".to_owned(),
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
        term("Cluster", "the windows of one article and its duplicates; the unit of every interval.".to_owned()),
        term("Times", "initial: the weights training started from; warm: after the warm-up on background text, before any treated document; after: at the end of training.".to_owned()),
        term("Intervals", "Wilson (score) and Clopper-Pearson (exact) for the rate of one bucket; bootstrap resamples clusters. Where all clusters of a bucket agree, resamples do not differ (no spread): the other two keep their bound, and a difference has recovered variances instead, which combine the Wilson intervals of its parts (Zou and Donner 2008) and may reach beyond 1, as a difference of two changes can.".to_owned()),
        term("Difference in differences", "the change of a treated bucket minus that of the control.".to_owned()),
        term("Goldfish prevents", format!("shown if the whole interval of the Goldfish arm's change against control lies below the margin ({}) and that of the standard arm above it; contradicted if the Goldfish arm's lies above; else not shown.", number(study.primary.margin))),
        term("Exposure ledger", "one row per presentation of a document, with the tokens that counted in the loss.".to_owned()),
    ]));
}
