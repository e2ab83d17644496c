//! The report's sections in their order, from the summary to the definitions.
//!
//! Owns: which rows of which table appear where, and every sentence that is not a finding. It
//! counts and formats; the numbers are cells of the tables.

mod answer;
mod caveats;
mod created_after;
mod documents;
mod goldfish;
mod kinship;
mod provenance;
mod ranks;
mod rates;
mod threshold;

use anyhow::Result;
use axmem_eval::estimate::Axis;

use crate::report::examples;
use crate::report::figure::{self, interval_methods};
use crate::report::findings;
use crate::report::format::{NONE, count, number, parameters, percent, plural, with_interval};
use crate::report::page::{Block, Page, Table, Text};
use crate::report::study::{EXACT, Study};
use crate::report::{Inputs, Joined};

use answer::answer;
use created_after::created_after;
use documents::{exposures, overlap};
use goldfish::goldfish;
use provenance::{data, definitions, provenance, settings};
use ranks::ranks;
use rates::{contrasts, rates};
use threshold::threshold;

/// Rows of a list of documents before the rest is only counted.
const MOST_LISTED: usize = 300;

/// Builds the whole report.
pub(in crate::report) fn page(inputs: &Inputs, study: &Study) -> Result<Page> {
    let mut blocks = Vec::new();
    question(study, &mut blocks);
    summary(inputs, study, &mut blocks);
    threshold(study, &mut blocks);
    main_figure(study, &mut blocks);
    goldfish(study, &mut blocks);
    dose(study, &mut blocks);
    prompt(study, &mut blocks);
    rates(study, &mut blocks);
    contrasts(study, &mut blocks);
    created_after(inputs, study, &mut blocks);
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
    ranks(inputs, study, &mut blocks)?;
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

/// What was asked, and how it was decided.
fn question(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    let levels: Vec<String> = study
        .levels
        .iter()
        .map(|(level, _)| level.to_string())
        .collect();
    let size = |model: &String| parameters(study.parameters(model));
    let models = match study.models.as_slice() {
        [first, .., last] => format!(
            "do {} models of {} to {} parameters",
            study.models.len(),
            size(first),
            size(last)
        ),
        [only] => format!("does {only} ({} parameters)", size(only)),
        [] => "do the models".to_owned(),
    };
    let prevents = match study.goldfish.as_slice() {
        [] => String::new(),
        arms => format!(" And does training with {} prevent it?", arms.join(" or ")),
    };
    let clusters = study.levels.iter().filter_map(|(_, bucket)| {
        let model = study.models.first()?;
        let arm = study.arms.first()?;
        Some(study.estimate(model, arm, bucket, &primary.to)?.clusters)
    });
    let clusters: Vec<String> = clusters.map(count).collect();
    let (decided, afterwards) = decided(study);
    let asked = asked(study);
    let same = if study.is_complete() && study.levels.len() > 1 {
        "; over the trials the same ones in every bucket"
    } else {
        ""
    };
    blocks.push(Block::Section("question", "The question"));
    blocks.push(Block::Paragraph(
        format!(
            "Of documents trained on {} times, how many {models} reproduce: their last {} tokens, greedily decoded after {}, \
             token for token?{prevents} The unit of every statistic is the cluster of an article and its near-copies \
             ({} clusters by bucket, every trial counted in them once{same}). {decided}: the primary contrast is {} \
             of {} from {} to {} at {} presentations, at level {}; its tests over all models, arms{} ({} in all) are one family, adjusted by Holm, all \
             other tests are adjusted by Benjamini and Hochberg; intervals are for each number alone{asked}.{afterwards}",
            levels.join(", "),
            primary.suffix,
            match primary.prefix.as_str() {
                "all" => "everything before them".to_owned(),
                prefix => format!("the {prefix} before them"),
            },
            clusters.join(", "),
            findings::kind(&primary.contrast),
            match primary.measure.as_str() {
                EXACT => "exact match",
                _ => "the suffix's log-probability",
            },
            primary.from,
            primary.to,
            primary.exposures,
            percent(primary.level),
            match study.prefixes.as_slice() {
                [_, _, ..] => format!(" and prefixes ({})", study.prefixes.join(", ")),
                _ => String::new(),
            },
            study
                .contrasts
                .iter()
                .filter(|row| row.family == "primary" && row.p.is_some())
                .count()
        )
        .into(),
    ));
}

/// The other questions of the same analysis: the margin of the verdict, and the threshold of a ladder.
fn asked(study: &Study) -> String {
    let margin = (!study.goldfish.is_empty()).then(|| {
        format!(
            "; the margin within which Goldfish counts as preventing memorisation is {}",
            number(study.primary.margin)
        )
    });
    let threshold = study.thresholds.first().filter(|_| study.joined.is_empty());
    let threshold = threshold.map(|row| {
        format!(
            "; the threshold is asked at {} gained after {}",
            percent(row.rate),
            plural(u64::from(row.exposures), "presentation")
        )
    });
    [margin, threshold].into_iter().flatten().collect()
}

/// When the analysis was decided, and what was only when studies were joined.
fn decided(study: &Study) -> (&'static str, String) {
    if study.joined.is_empty() {
        return ("Decided before training", String::new());
    }
    let asked = |joined: &&Joined| joined.experiment.pointer("/analysis/threshold").is_some();
    let asked: Vec<&str> = study
        .joined
        .iter()
        .filter(asked)
        .map(|joined| joined.name.as_str())
        .collect();
    let question = match study.thresholds.first() {
        Some(row) => format!(
            "{} gained after {}",
            percent(row.rate),
            plural(u64::from(row.exposures), "presentation")
        ),
        None => NONE.to_owned(),
    };
    let asked = match asked.as_slice() {
        [] => "a question that none of them asked before its training".to_owned(),
        names => format!(
            "asked before training of the models of {}, of each study alone",
            names.join(", ")
        ),
    };
    let afterwards = format!(
        " {} finished studies were joined afterwards: the contrasts between sizes across studies, the threshold over the joined \
         ladder ({question}, {asked}), and the families that tests are adjusted in, which hold the tests of all of them, were not \
         fixed before training.",
        study.joined.len()
    );
    ("Decided in each study before its training", afterwards)
}

fn summary(inputs: &Inputs, study: &Study, blocks: &mut Vec<Block>) {
    answer(study, blocks);
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
    blocks.push(Block::Section("figure", "Memorisation by exposures"));
    let trials = if study
        .models
        .iter()
        .any(|model| study.trials(model).len() > 1)
    {
        " Small dots are single trials."
    } else {
        ""
    };
    let goldfish = if study.goldfish.is_empty() {
        ""
    } else {
        " Goldfish drops one target in k: at k = 2 its exposures are about half those of the \
         standard loss after as many presentations."
    };
    blocks.push(Block::Figure {
        file: figure::MEMORISATION,
        alternative: "Exact match and token accuracy by exposures of a document, per arm"
            .to_owned(),
        caption: Text::from(format!(
            "Left: rate of exact match of the last {} tokens at time {}, with {} intervals ({}). \
             Right: mean token accuracy under the true prefix, which shows effects too small for \
             exact match. Open markers: time {}, before the treated documents were trained on. \
             Horizontal axis: exposures by the ledger, that is presentations of a document times the \
             share of its suffix tokens that counted in the loss, as log(1 + exposures), with ticks at \
             the nominal levels.{goldfish} Points that would lie on each other are set side by \
             side.{trials} Under one recipe.",
            primary.suffix,
            primary.to,
            percent(primary.level),
            interval_methods(study),
            primary.from,
        )),
    });
}

fn dose(study: &Study, blocks: &mut Vec<Block>) {
    if study.curves.is_empty() {
        return;
    }
    let primary = &study.primary;
    blocks.push(Block::Section(
        "dose",
        "Over training, and after the last presentation",
    ));
    blocks.push(Block::Figure {
        file: figure::DOSE,
        alternative: "Exact match and log-probability over training, per bucket".to_owned(),
        caption: Text::from(format!(
            "All documents scored at the end of the warm-up and every so many steps after it: exact match of the last {} tokens, \
             and the mean log-probability of these tokens, trials pooled, with {} intervals (percentile bootstrap over clusters; \
             Wilson where no cluster differs; with few clusters or hits they cover less than they say, see eval/COVERAGE.md). Left: by step, the warm-up included. Right: documents that are not presented again, \
             by steps since their last presentation, which shows what is forgotten; a point stands at the least of the steps taken \
             together and holds the documents that were scored so many steps after their last presentation, so neighbouring points \
             are not of the same documents (their numbers are below).",
            primary.suffix,
            percent(primary.level)
        )),
    });
    let mut table = Table::new(
        "Right part of the figure: documents of all trials that were scored so many steps after their last presentation.",
        4,
        &[
            "Model",
            "Arm",
            "Bucket",
            "Steps since, from",
            "Scores of documents",
            "Clusters",
            "Exact match",
            "Mean log p, nats",
        ],
    );
    let rows = study
        .curves
        .iter()
        .filter(|row| row.axis == Axis::SinceLast && row.suffix == primary.suffix);
    for row in rows {
        table.row(vec![
            row.model.as_str().into(),
            arm_name(&row.arm),
            row.bucket.as_str().into(),
            row.at.to_string().into(),
            count(row.documents).into(),
            count(row.clusters).into(),
            with_interval(row.rate, Some(row.low), Some(row.high)).into(),
            with_interval(
                row.log_probability,
                row.log_probability_low,
                row.log_probability_high,
            )
            .into(),
        ]);
    }
    let title = "Numbers after the last presentation".to_owned();
    blocks.push(Block::Details(title, vec![Block::Table(table)]));
}

fn prompt(study: &Study, blocks: &mut Vec<Block>) {
    if study.prefixes.len() < 2 {
        return;
    }
    blocks.push(Block::Section("prompt", "Length of the prompt"));
    blocks.push(Block::Figure {
        file: figure::PROMPT,
        alternative: "Exact match by length of the prompt".to_owned(),
        caption: Text::from(format!(
            "Exact match of the last {} tokens at time {} after prompts of so many ids directly before them, or after all that \
             stands before them; {} intervals. The lengths are set at equal distances.",
            study.primary.suffix,
            study.primary.to,
            percent(study.primary.level)
        )),
    });
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
            study.model_order(&row.model),
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
        file: figure::TRAINING,
        alternative: "Training loss by optimizer step, per arm".to_owned(),
        caption: "Loss of each step as recorded, not smoothed. Grey: the warm-up on background text, \
                  run once and shared by the arms. Under Goldfish the loss is the mean over the tokens \
                  kept, so its height is not comparable with that of the standard arm."
            .into(),
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

fn trial_name(trial: &str) -> String {
    if trial == "pooled" {
        "all trials pooled".to_owned()
    } else {
        format!("trial {trial}")
    }
}
