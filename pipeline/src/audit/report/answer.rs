//! What the audit found, in sentences made from its numbers.

use axmem_eval::estimate::{Contrast, ContrastKind, Estimate, Measure};

use super::{Cell, after_prefix, cells, set_name, verdict};
use crate::audit::findings::Findings;
use crate::report::format::{count, number, p_value, percent, plural};
use crate::report::interval::{method, methods};
use crate::report::page::{Block, Text};

pub(super) fn push(findings: &Findings, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("answer", "What was found"));
    let cells = cells(findings);
    let Some(main) = cells
        .iter()
        .find(|cell| cell.is("documents", "model"))
        .map(Cell::main)
    else {
        blocks.push(Block::Paragraph("No document could be scored.".into()));
        return;
    };
    let like = |set: &str, model: &str| {
        cells
            .iter()
            .filter(|cell| cell.is(set, model))
            .map(Cell::main)
            .find(|row| (row.suffix, &row.prefix) == (main.suffix, &main.prefix))
    };
    let mut answer = sentence(findings, main);
    if let Some(control) = like("control", "model") {
        answer = against_control(findings, answer, main, control);
    }
    blocks.push(Block::Paragraph(answer));
    if let Some(text) = from_baseline(findings, main, like("documents", "baseline")) {
        blocks.push(Block::Paragraph(text));
    }
    push_verdict(findings, blocks);
    if let Some(text) = fragile(main) {
        blocks.push(Block::Paragraph(text));
    }
    if findings.control.is_none() && findings.baseline.is_none() {
        blocks.push(Block::Callout(caution()));
    }
}

/// `3 of 100 documents`.
fn hits(row: &Estimate) -> String {
    match (row.hits, row.documents) {
        (0, 1) => "0 of 1 document".to_owned(),
        (0, all) => format!("none of {}", plural(all, "document")),
        (1, 1) => "the only document".to_owned(),
        (hits, all) if hits == all => format!("all {}", plural(all, "document")),
        (hits, all) => format!("{} of {}", count(hits), plural(all, "document")),
    }
}

/// `1.03 to 8.45 %`.
fn range(low: f64, high: f64) -> String {
    format!("{} to {}", number(low * 100.0), percent(high))
}

/// A difference of rates: `3 percentage points [−0.8, 8.4]`.
fn points(estimate: f64, low: f64, high: f64) -> String {
    format!(
        "{} percentage points [{}, {}]",
        number(estimate * 100.0),
        number(low * 100.0),
        number(high * 100.0)
    )
}

fn sentence(findings: &Findings, row: &Estimate) -> Text {
    let them = if row.documents == 1 { "it" } else { "them" };
    let clusters = if row.clusters == row.documents {
        String::new()
    } else {
        format!("; {} of equal weight", plural(row.clusters, "cluster"))
    };
    Text::new()
        .strong(format!(
            "{} reproduces the last {} of {} exactly",
            findings.model.name,
            plural(u64::from(row.suffix), "id"),
            hits(row)
        ))
        .plain(format!(
            " ({}, {} interval {}, {}{clusters}) {} {them}.",
            percent(row.rate),
            percent(row.level),
            range(row.low, row.high),
            method(&row.method),
            after_prefix(&row.prefix)
        ))
}

fn against_control(findings: &Findings, text: Text, main: &Estimate, control: &Estimate) -> Text {
    let text = text.plain(format!(
        " The control: {} ({}, interval {}).",
        hits(control),
        percent(control.rate),
        range(control.low, control.high)
    ));
    let difference = findings.differences.iter().find(|row| {
        row.model == "model" && (row.suffix, &row.prefix) == (main.suffix, &main.prefix)
    });
    let Some(row) = difference else {
        return text;
    };
    let reading = if row.low > 0.0 {
        "More of the documents are reproduced than of the control."
    } else if row.high < 0.0 {
        "Fewer of the documents are reproduced than of the control."
    } else {
        "The interval includes no difference."
    };
    text.plain(" The difference is ")
        .strong(points(row.estimate, row.low, row.high))
        .plain(format!(
            ", p = {} (permutation of clusters over the two sets), smallest difference detectable at power 0.8: {}. {reading}",
            p_value(Some(row.p)),
            percent(row.detectable)
        ))
}

/// The change of the documents from the baseline, and beyond that of the control.
fn from_baseline(findings: &Findings, main: &Estimate, before: Option<&Estimate>) -> Option<Text> {
    let baseline = findings.baseline.as_ref()?;
    let overlap = findings.overlap.iter().find(|row| {
        set_name(&row.bucket) == "documents"
            && (row.suffix, &row.prefix) == (main.suffix, &main.prefix)
    })?;
    let mut text = Text::new().plain("The baseline ").strong(&*baseline.name);
    if let Some(row) = before {
        text = text.plain(format!(
            " reproduces {} ({}, interval {}).",
            hits(row),
            percent(row.rate),
            range(row.low, row.high)
        ));
    }
    text = text
        .plain(" From the baseline to the model, ")
        .strong(format!(
            "{} kept, {} gained, {} lost",
            count(overlap.kept),
            count(overlap.gained),
            count(overlap.lost)
        ))
        .plain(format!(" and {} never reproduced", count(overlap.never)));
    let contrast = |kind: ContrastKind| {
        findings.contrasts.iter().find(|row| {
            row.kind == kind
                && row.measure == Measure::Exact
                && set_name(&row.bucket) == "documents"
                && (row.suffix, &row.prefix) == (main.suffix, &main.prefix)
        })
    };
    if let Some(row) = contrast(ContrastKind::Paired) {
        text = text.plain(format!("; the rate changes by {}", change(row)));
    }
    text = text.plain(".");
    if let Some(row) = contrast(ContrastKind::Did) {
        text = text.plain(format!(
            " Beyond the change of the control it is {}.",
            change(row)
        ));
    }
    Some(text)
}

fn change(row: &Contrast) -> String {
    format!(
        "{}, p = {} ({})",
        points(row.estimate, row.low, row.high),
        p_value(row.p),
        methods(&row.method)
    )
}

fn push_verdict(findings: &Findings, blocks: &mut Vec<Block>) {
    let Some(verdict) = verdict(findings) else {
        return;
    };
    let row = verdict.highest;
    let end = format!(
        "the lower end of the interval{}, {} ({}; suffix {}, prefix {})",
        if verdict.intervals > 1 {
            format!(
                " (the highest of {}, without allowance for their number)",
                verdict.intervals
            )
        } else {
            String::new()
        },
        percent(row.low),
        method(&row.method),
        row.suffix,
        row.prefix
    );
    let limit = percent(verdict.limit);
    blocks.push(if verdict.passed {
        Block::Paragraph(
            Text::new()
                .strong("PASSED")
                .plain(format!(": {end}, does not exceed {limit}.")),
        )
    } else {
        Block::Callout(
            Text::new()
                .strong("FAILED")
                .plain(format!(": {end}, exceeds {limit}.")),
        )
    });
}

fn fragile(row: &Estimate) -> Option<Text> {
    (row.hits_without_fragile < row.hits_with_fragile).then(|| {
        Text::from(format!(
            "Rounding could decide {} (marked fragile): between {} and {} are reproduced.",
            plural(row.fragile, "document"),
            count(row.hits_without_fragile),
            count(row.hits_with_fragile)
        ))
    })
}

fn caution() -> Text {
    Text::new()
        .strong("Reproduction alone does not show that a document was trained on.")
        .plain(
            " Its end may follow from what comes before it, as in lists, forms and set phrases, or be \
             quoted in many other places. A control (",
        )
        .code("--control")
        .plain(
            "), documents of the same kind that the model cannot have seen, shows how much of such \
             text is reproduced anyway. A baseline (",
        )
        .code("--baseline")
        .plain("), the same model before the training in question, shows what that training changed.")
}
