//! The answer in sentences; of several models in one table, with the sentences folded below it.

use super::{arm_name, caveats, threshold};
use crate::report::findings::{self, verdict};
use crate::report::format::{NONE, p_value, percent, with_interval};
use crate::report::page::{Block, Table, Text};
use crate::report::study::{EXACT, LOG_PROBABILITY, Study};
use crate::report::tables::Contrast;

/// What was found, and what limits it.
pub(super) fn answer(study: &Study, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("summary", "The answer"));
    let found = findings::sentences(study);
    if study.models.len() > 1 {
        blocks.push(Block::List(threshold::answers(study)));
        blocks.push(Block::Table(models(study)));
        let title = "Model by model".to_owned();
        blocks.push(Block::Details(title, vec![Block::List(found)]));
    } else {
        let mut answer = Text::new();
        for sentence in found {
            answer.0.extend(sentence.0);
            answer = answer.plain(" ");
        }
        blocks.push(Block::Paragraph(answer));
    }
    blocks.push(Block::Paragraph("What to keep in mind:".into()));
    blocks.push(Block::List(caveats::caveats(study)));
}

/// A line for each model and arm, at the primary settings.
fn models(study: &Study) -> Table {
    let primary = &study.primary;
    let mut table = Table::new(
        format!(
            "Documents presented {} times: rate of exact match of the last {} tokens, and {} from {} to {} by the primary contrast, of exact \
             match and of the suffix's log-probability (nats); intervals at level {}, each for itself.",
            primary.exposures,
            primary.suffix,
            findings::measured(study),
            primary.from,
            primary.to,
            percent(primary.level)
        ),
        2,
        &[
            "Model",
            "Arm",
            "Hits of documents",
            "Rate",
            "Exact match",
            "p adjusted",
            "Log-probability",
            "Goldfish prevents it",
        ],
    );
    let change = |row: Option<&Contrast>| {
        row.map_or_else(
            || NONE.to_owned(),
            |row| with_interval(row.estimate.unwrap_or(f64::NAN), row.low, row.high),
        )
    };
    for model in &study.models {
        for arm in &study.arms {
            let Some(row) = study.estimate(model, arm, &primary.bucket, &primary.to) else {
                continue;
            };
            let exact = study.primary_contrast(model, arm, EXACT);
            let found = if study.goldfish.contains(arm) {
                verdict(study, model, arm).0.word()
            } else {
                NONE
            };
            table.row(vec![
                model.as_str().into(),
                arm_name(arm),
                format!("{} of {}", row.hits, row.documents).into(),
                with_interval(row.rate, row.low, row.high).into(),
                change(exact).into(),
                p_value(exact.and_then(|row| row.p_adjusted)).into(),
                change(study.primary_contrast(model, arm, LOG_PROBABILITY)).into(),
                found.into(),
            ]);
        }
    }
    table
}
