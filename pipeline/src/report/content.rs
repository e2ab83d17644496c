//! The report's sections in their order, from the summary to the definitions.
//!
//! Owns: which rows of which table appear where, and every sentence that is not a finding. It
//! counts and formats; the numbers are cells of the tables.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Inputs;
use super::examples;
use super::figure::interval_methods;
use super::findings;
use super::format::{
    NONE, count, duration, interval, number, optional, p_value, parameters, percent, plural,
    with_interval,
};
use super::page::{Block, Page, Table, Text};
use super::study::Study;
use super::tables::{Estimate, Transition};

/// File of the main figure.
pub(super) const MEMORISATION: &str = "memorisation.svg";
/// File of the training curves.
pub(super) const TRAINING: &str = "training.svg";
/// Rows of a list of documents before the rest is only counted.
const MOST_LISTED: usize = 300;

/// Builds the whole report.
pub(super) fn page(inputs: &Inputs, study: &Study) -> Result<Page> {
    let mut blocks = Vec::new();
    summary(inputs, study, &mut blocks);
    main_figure(study, &mut blocks);
    rates(study, &mut blocks);
    contrasts(study, &mut blocks);
    overlap(study, &mut blocks);
    held_out(study, &mut blocks);
    training(study, &mut blocks);
    blocks.push(Block::Section("examples", "Examples"));
    blocks.extend(examples::blocks(
        study,
        inputs.tokens.as_deref(),
        inputs.tokenizer.as_deref(),
    )?);
    exposures(study, &mut blocks);
    data(inputs, study, &mut blocks);
    settings(inputs, &mut blocks)?;
    provenance(inputs, study, &mut blocks);
    definitions(study, &mut blocks);
    let models: Vec<String> = study
        .models
        .iter()
        .map(|model| {
            let size = study.estimates.iter().find(|row| row.model == *model);
            let size = size.map_or_else(String::new, |row| {
                format!(
                    " ({} parameters, {})",
                    parameters(row.parameters),
                    row.dtype
                )
            });
            format!("{model}{size}")
        })
        .collect();
    Ok(Page {
        title: format!("Memorisation: {}", inputs.name),
        subtitle: Text::from(format!(
            "{}; arms {}; axmem {}",
            models.join(", "),
            study.arms.join(", "),
            inputs.version
        )),
        blocks,
    })
}

fn summary(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("summary", "What was found"));
    blocks.push(Block::List(findings::sentences(study)));
    let mut caveats = vec![Text::from(
        "These numbers hold under one recipe (one schedule, one learning rate, one optimizer); \
         nothing is extrapolated beyond the sizes and presentations run.",
    )];
    if study.random {
        caveats.push(
            "Training started from random weights: time initial is not a baseline, and the change \
             is read from warm to after."
                .into(),
        );
    }
    let trials = study
        .models
        .iter()
        .map(|model| study.trials(model).len())
        .max()
        .unwrap_or(0);
    if trials < study.levels.len() && study.control().is_some() {
        caveats.push(Text::from(format!(
            "The design is incomplete: {} for {} levels, so a document was seen at some levels only, \
             and {} of the {} groups never served as control.",
            plural(trials as u64, "trial"),
            study.levels.len(),
            study.levels.len() - trials.min(study.levels.len()),
            study.levels.len()
        )));
    }
    blocks.push(Block::List(caveats));
    for deviation in &inputs.deviations {
        blocks.push(Block::Callout(
            Text::new()
                .strong("Deviation from the sealed analysis: ")
                .plain(deviation.as_str()),
        ));
    }
}

fn main_figure(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    blocks.push(Block::Section("figure", "Memorisation by presentations"));
    let trials = if study
        .models
        .iter()
        .any(|model| study.trials(model).len() > 1)
    {
        " Small dots are single trials."
    } else {
        ""
    };
    blocks.push(Block::Figure {
        file: MEMORISATION,
        alternative: "Exact match and token accuracy by presentations of a document, per arm"
            .to_owned(),
        caption: Text::from(format!(
            "Left: rate of exact match of the last {} tokens at time {}, with {} intervals ({}). \
             Right: mean token accuracy under the true prefix, which shows effects too small for \
             exact match. Open markers: time {}, before the treated documents were trained on. \
             The horizontal axis gives nominal presentations, evenly spaced; the exposure ledger below \
             says how many suffix tokens counted in the loss.{trials} Under one recipe.",
            primary.suffix,
            primary.to,
            interval_methods(study),
            percent(primary.level),
            primary.from,
        )),
    });
}

/// Order of the times in every table.
fn time_order(time: &str) -> u8 {
    match time {
        "initial" => 0,
        "warm" => 1,
        "after" => 2,
        _ => 3,
    }
}

fn time_name(study: &Study, time: &str) -> Text {
    if time == "initial" && study.random {
        Text::from(time).faint("\u{a0}(not\u{a0}a\u{a0}baseline)")
    } else {
        time.into()
    }
}

fn arm_name(arm: &str) -> Text {
    if arm.is_empty() {
        "all arms".into()
    } else {
        Text::new().code(arm)
    }
}

fn arm_order(study: &Study, arm: &str) -> usize {
    study
        .arms
        .iter()
        .position(|name| name == arm)
        .map_or(0, |index| index + 1)
}

fn rates(study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("rates", "Rates of exact match"));
    let primary = &study.primary;
    for model in &study.models {
        let main = study.summary_trial(model);
        let mut keys: Vec<(String, u32, String)> = Vec::new();
        for row in study.estimates.iter().filter(|row| row.model == *model) {
            let key = (row.trial.clone(), row.suffix, row.prefix.clone());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let first = (main.clone(), primary.suffix, primary.prefix.clone());
        blocks.push(Block::Table(rate_table(study, model, &first)));
        for key in keys.iter().filter(|key| **key != first) {
            // With one trial the pooled rows repeat it, but for the method.
            if key.0 == "pooled" && main != "pooled" {
                continue;
            }
            blocks.push(Block::Details(
                format!(
                    "{model}: {}, suffix {}, prefix {}",
                    trial_name(&key.0),
                    key.1,
                    key.2
                ),
                vec![Block::Table(rate_table(study, model, key))],
            ));
        }
    }
}

fn trial_name(trial: &str) -> String {
    if trial == "pooled" {
        "all trials pooled".to_owned()
    } else {
        format!("trial {trial}")
    }
}

/// Order of rates: place of the arm, exposures, place of the time; then arm, bucket, time.
type CellKey<'a> = (usize, u32, u8, &'a str, &'a str, &'a str);

/// Order of document lists: model, place of the arm, arm, trial, exposures, bucket.
type GroupKey<'a> = (&'a str, usize, &'a str, &'a str, u32, &'a str);

fn rate_table(study: &Study, model: &str, key: &(String, u32, String)) -> Table {
    let (trial, suffix, prefix) = key;
    let rows: Vec<&Estimate> = study
        .estimates
        .iter()
        .filter(|row| {
            row.model == model
                && row.trial == *trial
                && row.suffix == *suffix
                && row.prefix == *prefix
        })
        .collect();
    let mut cells: BTreeMap<CellKey<'_>, Vec<&Estimate>> = BTreeMap::new();
    for row in rows.iter().copied() {
        cells
            .entry((
                arm_order(study, &row.arm),
                row.exposures_nominal,
                time_order(&row.time),
                row.arm.as_str(),
                row.bucket.as_str(),
                row.time.as_str(),
            ))
            .or_default()
            .push(row);
    }
    let level = rows.first().map_or(study.primary.level, |row| row.level);
    let methods: Vec<&str> = ["wilson", "clopper_pearson", "bootstrap", "korn_graubard"]
        .into_iter()
        .filter(|method| rows.iter().any(|row| row.method.starts_with(method)))
        .collect();
    let mut header = vec!["Arm", "Bucket", "Time", "Rate"];
    header.extend(methods.iter().map(|method| match *method {
        "bootstrap" => "Bootstrap",
        other => findings::method(other),
    }));
    header.extend([
        "Documents",
        "Clusters",
        "Hits",
        "Fragile",
        "Hits, fragile out",
        "Hits, fragile in",
        "Token accuracy",
        "Mean log p",
        "Ledger exposures",
    ]);
    let mut table = Table::new(
        format!(
            "{model}, {}: exact match of the last {suffix} tokens, prefix {prefix}; intervals at level {}.",
            trial_name(trial),
            percent(level)
        ),
        3,
        &header,
    );
    for ((_, _, _, arm, bucket, time), estimates) in cells {
        let row = estimates[0];
        let mut line = vec![
            arm_name(arm),
            bucket.into(),
            time_name(study, time),
            Text::new().strong(number(row.rate)),
        ];
        for method in &methods {
            let cell = estimates.iter().find(|row| row.method.starts_with(method));
            line.push(match cell {
                // Named after the method that stands in where resamples do not differ.
                Some(row) if row.method != *method => Text::new().faint("no spread"),
                Some(row) => interval(row.low, row.high).into(),
                None => NONE.into(),
            });
        }
        line.extend(
            [
                count(row.documents),
                count(row.clusters),
                count(row.hits),
                count(row.fragile),
                count(row.hits_without_fragile),
                count(row.hits_with_fragile),
                optional(row.token_accuracy),
                optional(row.mean_log_probability),
                optional(row.exposures_ledger),
            ]
            .map(Text::from),
        );
        table.rows.push(line);
    }
    table
}

fn contrasts(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    blocks.push(Block::Section("contrasts", "Contrasts"));
    let mut table = Table::new(
        format!(
            "Differences of rates. The primary contrast ({} at {} presentations, {} to {}) is in bold; \
             the margin for Goldfish is {}.",
            findings::kind(&primary.contrast),
            primary.exposures,
            primary.from,
            primary.to,
            number(primary.margin)
        ),
        5,
        &[
            "Contrast",
            "Arm",
            "Bucket",
            "Times",
            "Method",
            "Difference",
            "Level",
            "p",
            "p adjusted",
            "Family",
            "Detectable",
            "Clusters",
            "Suffix",
            "Prefix",
        ],
    );
    let several = study.models.len() > 1;
    for row in &study.contrasts {
        let is_primary = row.kind == primary.contrast
            && row.bucket == primary.bucket
            && row.suffix == primary.suffix
            && row.prefix == primary.prefix
            && row.from == primary.from
            && row.to == primary.to;
        let name = if several {
            format!("{}: {}", row.model, findings::kind(&row.kind))
        } else {
            findings::kind(&row.kind).to_owned()
        };
        let difference = with_interval(row.estimate.unwrap_or(f64::NAN), row.low, row.high);
        table.rows.push(vec![
            name.into(),
            arm_name(&row.arm),
            row.bucket.as_str().into(),
            format!("{} → {}", row.from, row.to).into(),
            findings::methods(&row.method).into(),
            if is_primary {
                Text::new().strong(difference)
            } else {
                difference.into()
            },
            percent(row.level).into(),
            p_value(row.p).into(),
            p_value(row.p_adjusted).into(),
            row.family.as_str().into(),
            optional(row.detectable).into(),
            count(row.clusters).into(),
            count(u64::from(row.suffix)).into(),
            row.prefix.as_str().into(),
        ]);
    }
    blocks.push(Block::Table(table));
}

fn overlap(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    blocks.push(Block::Section("overlap", "Kept, gained, lost, never"));
    let several = study.models.len() > 1;
    let mut table = Table::new(
        "Documents by exact match at two times: kept (both), gained (only the second), lost (only the first), never.",
        4,
        &[
            "Arm", "Trial", "Bucket", "Times", "Kept", "Gained", "Lost", "Never", "Jaccard",
            "Suffix", "Prefix",
        ],
    );
    for row in &study.overlap {
        let arm = if several {
            Text::from(format!("{}: ", row.model)).code(row.arm.as_str())
        } else {
            arm_name(&row.arm)
        };
        let mut line = vec![arm];
        line.extend(
            [
                row.trial.clone(),
                row.bucket.clone(),
                format!("{} → {}", row.from, row.to),
                count(row.kept),
                count(row.gained),
                count(row.lost),
                count(row.never),
                optional(row.jaccard),
                count(u64::from(row.suffix)),
                row.prefix.clone(),
            ]
            .map(Text::from),
        );
        table.rows.push(line);
    }
    blocks.push(Block::Table(table));

    let mut groups: BTreeMap<GroupKey<'_>, Vec<&Transition>> = BTreeMap::new();
    for row in study.transitions.iter().filter(|row| {
        row.suffix == primary.suffix
            && row.prefix == primary.prefix
            && row.from == primary.from
            && row.to == primary.to
    }) {
        let level = study
            .levels
            .iter()
            .find(|(_, bucket)| *bucket == row.bucket)
            .map_or(0, |(exposures, _)| *exposures);
        groups
            .entry((
                &row.model,
                arm_order(study, &row.arm),
                &row.arm,
                &row.trial,
                level,
                &row.bucket,
            ))
            .or_default()
            .push(row);
    }
    for ((model, _, arm, trial, _, bucket), rows) in groups {
        let mut list = Vec::new();
        for state in ["kept", "gained", "lost", "never"] {
            let titles: Vec<&str> = rows
                .iter()
                .filter(|row| row.state == state)
                .map(|row| study.title(&row.document))
                .collect();
            if titles.is_empty() {
                continue;
            }
            let rest = titles.len().saturating_sub(MOST_LISTED);
            let more = if rest > 0 {
                format!(" and {rest} more")
            } else {
                String::new()
            };
            list.push(
                Text::new()
                    .strong(format!("{state} ({}):", titles.len()))
                    .plain(format!(" {}", titles[..titles.len() - rest].join("; ")))
                    .plain(more),
            );
        }
        let model = if several {
            format!("{model}, ")
        } else {
            String::new()
        };
        blocks.push(Block::Details(
            format!(
                "{model}{arm}, {}, bucket {bucket}: the documents",
                trial_name(trial)
            ),
            vec![Block::List(list)],
        ));
    }
}

fn held_out(study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("held-out", "Loss on held-out text"));
    if study.validation.is_empty() {
        blocks.push(Block::Paragraph("No held-out loss was recorded.".into()));
        return;
    }
    let mut rows: Vec<_> = study.validation.iter().collect();
    rows.sort_by_key(|row| {
        (
            &row.model,
            arm_order(study, &row.arm),
            row.trial,
            time_order(&row.time),
        )
    });
    let mut table = Table::new(
        "Mean loss in nats per token on documents never trained on, no token masked: the price of an arm.",
        4,
        &["Model", "Arm", "Trial", "Time", "Loss", "Tokens"],
    );
    for row in rows {
        table.rows.push(vec![
            row.model.as_str().into(),
            arm_name(&row.arm),
            row.trial.to_string().into(),
            time_name(study, &row.time),
            number(row.loss).into(),
            count(row.tokens).into(),
        ]);
    }
    blocks.push(Block::Table(table));
}

fn training(study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("training", "Training curves"));
    if study.steps.is_empty() {
        blocks.push(Block::Paragraph("No training step was recorded.".into()));
        return;
    }
    blocks.push(Block::Figure {
        file: TRAINING,
        alternative: "Training loss by optimizer step, per arm".to_owned(),
        caption: "Loss of each step as recorded, not smoothed. Grey: the warm-up on background text, \
                  run once and shared by the arms. Under Goldfish the loss is the mean over the tokens \
                  kept, so its height is not comparable with that of the standard arm."
            .into(),
    });
}

fn exposures(study: &Study, blocks: &mut Vec<Block>) {
    #[derive(Default)]
    struct Sum {
        documents: u64,
        nominal: u64,
        presentations: u64,
        kept_tokens: u64,
        suffix: u64,
        kept_suffix: u64,
        whole: u64,
    }
    blocks.push(Block::Section("exposures", "Exposure ledger"));
    let mut levels: BTreeMap<(u32, &str), u32> = BTreeMap::new();
    for score in &study.scores {
        levels.insert((score.trial, &score.document), score.epochs);
    }
    let mut sums: BTreeMap<(usize, &str, u32), Sum> = BTreeMap::new();
    for ledger in &study.exposures {
        let mut seen: BTreeMap<(&str, u32, &str), u64> = BTreeMap::new();
        for row in ledger {
            let Some(epochs) = levels.get(&(row.trial, row.document.as_str())) else {
                continue;
            };
            let sum = sums
                .entry((arm_order(study, &row.arm), &row.arm, *epochs))
                .or_default();
            let first = seen
                .entry((&row.arm, row.trial, &row.document))
                .or_default();
            if *first == 0 {
                sum.documents += 1;
                sum.nominal += u64::from(*epochs);
            }
            *first += 1;
            sum.presentations += 1;
            sum.kept_tokens += row.kept_tokens;
            let at = row
                .suffix
                .iter()
                .position(|suffix| *suffix == study.primary.suffix);
            let kept = at
                .and_then(|index| row.kept_suffix.get(index))
                .copied()
                .unwrap_or(0);
            sum.suffix += u64::from(study.primary.suffix);
            sum.kept_suffix += u64::from(kept);
            sum.whole += u64::from(kept == study.primary.suffix);
        }
    }
    let mut table = Table::new(
        format!(
            "Presentations planned and recorded, and how much of the last {} tokens counted in the loss.",
            study.primary.suffix
        ),
        2,
        &[
            "Arm",
            "Bucket",
            "Documents",
            "Presentations, nominal",
            "Presentations, recorded",
            "Kept tokens",
            "Suffix tokens kept",
            "Presentations with whole suffix kept",
        ],
    );
    for ((_, arm, epochs), sum) in sums {
        let mut line = vec![arm_name(arm)];
        line.extend(
            [
                epochs.to_string(),
                count(sum.documents),
                count(sum.nominal),
                count(sum.presentations),
                count(sum.kept_tokens),
                format!(
                    "{} of {} ({})",
                    count(sum.kept_suffix),
                    count(sum.suffix),
                    percent(sum.kept_suffix as f64 / sum.suffix.max(1) as f64)
                ),
                count(sum.whole),
            ]
            .map(Text::from),
        );
        table.rows.push(line);
    }
    if table.rows.is_empty() {
        blocks.push(Block::Paragraph("No exposure was recorded.".into()));
    } else {
        blocks.push(Block::Table(table));
    }
}

fn data(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
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

fn settings(inputs: &Inputs, blocks: &mut Vec<Block>) -> Result<()> {
    blocks.push(Block::Section("settings", "Settings"));
    let text = serde_json::to_string_pretty(&inputs.experiment)
        .context("cannot print the resolved experiment as JSON")?;
    blocks.push(Block::Details(
        "The resolved experiment, no defaults left".to_owned(),
        vec![Block::Code(text)],
    ));
    Ok(())
}

fn provenance(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
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

fn definitions(study: &Study, blocks: &mut Vec<Block>) {
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
