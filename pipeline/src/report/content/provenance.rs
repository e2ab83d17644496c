//! Sections on where the numbers come from: data, settings, artefacts, definitions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{MOST_LISTED, kinship};
use crate::report::findings;
use crate::report::format::{NONE, count, duration, number, plural};
use crate::report::page::{Block, Table, Text};
use crate::report::study::Study;
use crate::report::{Inputs, Joined};

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
    exclusions(inputs, study, blocks);
    blocks.extend(left_out(inputs));
}

/// What a report of several studies says nothing of, because their tables of it are not the same.
fn left_out(inputs: &Inputs) -> Option<Block> {
    let tables = [
        (&inputs.documents, "the documents read"),
        (
            &inputs.tokens,
            "which documents are eligible after tokenising",
        ),
        (&inputs.near_duplicates, "the near-copies of the corpus"),
        (
            &inputs.contamination,
            "what the control shares with text trained on",
        ),
        (
            &inputs.exclusions,
            "which texts were kept out of the background",
        ),
    ];
    let missing = tables.iter().filter(|(table, _)| table.is_none());
    let missing: Vec<&str> = missing.map(|(_, what)| *what).collect();
    (!inputs.joined.is_empty() && !missing.is_empty()).then(|| {
        let text = format!(
            "Not part of this joined report, since the studies differ in it: {}; see the report of each study.",
            missing.join("; ")
        );
        Block::Paragraph(text.into())
    })
}

fn exclusions(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
    if inputs.exclusions.is_none() {
        return;
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
    if !inputs.joined.is_empty() {
        return of_each(&inputs.joined, blocks);
    }
    let text = pretty(&inputs.experiment)?;
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

fn pretty(experiment: &Value) -> Result<String> {
    serde_json::to_string_pretty(experiment).context("cannot print the resolved experiment as JSON")
}

/// The settings of joined studies: where they differ, and each by itself.
fn of_each(joined: &[Joined], blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Paragraph(
        "The studies have the same settings, defaults filled in, but for those of the table. Settings that may change a \
         comparison of models for another reason than their size (texts and buckets, the warm-up, the placement of the \
         presentations, the optimizer, the losses) are never among them: such studies are not joined. Rates, batches and layouts of ranks may be."
            .into(),
    ));
    blocks.push(Block::Table(differing(joined)));
    for study in joined {
        blocks.push(Block::Details(
            format!("Settings of {} when its report was made", study.name),
            vec![Block::Code(pretty(&study.experiment)?)],
        ));
    }
    Ok(())
}

/// The settings that are not the same in all studies.
fn differing(joined: &[Joined]) -> Table {
    let settings = joined.iter().map(|study| {
        let mut found = BTreeMap::new();
        leaves("", &study.experiment, &mut found);
        found
    });
    let settings: Vec<BTreeMap<String, String>> = settings.collect();
    let mut header = vec!["Setting"];
    header.extend(joined.iter().map(|study| study.name.as_str()));
    let mut table = Table::new(
        "Settings in which the studies differ.",
        header.len(),
        &header,
    );
    let places: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    for place in places {
        let values: Vec<Option<&String>> = settings.iter().map(|of| of.get(place)).collect();
        if values.iter().any(|value| *value != values[0]) {
            let mut line = vec![Text::new().code(place.as_str())];
            line.extend(values.iter().map(|value| match value {
                Some(value) => Text::new().source(value.as_str()),
                None => NONE.into(),
            }));
            table.rows.push(line);
        }
    }
    table
}

/// Every setting below a place, by its path.
fn leaves(place: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    let inside = |name: &str| match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                leaves(&inside(name), value, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, value) in items.iter().enumerate() {
                leaves(&inside(&index.to_string()), value, found);
            }
        }
        Value::Null => {}
        Value::String(text) => {
            found.insert(place.to_owned(), text.clone());
        }
        other => {
            found.insert(place.to_owned(), other.to_string());
        }
    }
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
    if !inputs.joined.is_empty() {
        blocks.push(Block::Table(joined_studies(&inputs.joined)));
    }
    let mut table = Table::new("Artefacts in the store.", 2, &["Stage", "Key"]);
    for artefact in &inputs.artefacts {
        table.rows.push(vec![
            artefact.stage.as_str().into(),
            Text::new().code(artefact.key.as_str()),
        ]);
    }
    blocks.push(Block::Table(table));
}

fn joined_studies(joined: &[Joined]) -> Table {
    let mut table = Table::new(
        "Studies that are joined, each with the program that made its own report and the hash of record.json beside that.",
        3,
        &["Study", "axmem", "SHA-256"],
    );
    for study in joined {
        table.rows.push(vec![
            study.name.as_str().into(),
            study.version.as_str().into(),
            Text::new().code(study.record.as_str()),
        ]);
    }
    table
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
        term("Smallest detectable", format!("the smallest true difference that a test at the stated level would find with a probability (power) of {}; not adjusted for other tests of its family, as `axmem power` is.", number(study.power))),
        term("Goldfish prevents", format!("shown if the whole interval of the Goldfish arm's {} lies below the margin ({}) and that of the standard arm above it; contradicted if the Goldfish arm's lies above; else not shown. Above also needs a p, adjusted in its family, of at most 1 minus the level.", findings::measured(study), number(study.primary.margin))),
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
