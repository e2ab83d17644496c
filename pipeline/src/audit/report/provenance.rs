//! Documents left out, settings, models and hashes.

use crate::audit::findings::{Findings, ModelFacts, TextFacts};
use crate::report::format::{count, duration, number, parameters, percent, plural};
use crate::report::page::{Block, Table, Text};

/// Documents left out that are listed; the rest is counted.
const MOST_LISTED: usize = 50;

pub(super) fn push(findings: &Findings, blocks: &mut Vec<Block>) {
    blocks.push(Block::Section("documents", "Documents"));
    let sets: Vec<(&str, &TextFacts)> = std::iter::once(("documents", &findings.documents))
        .chain(findings.control.as_ref().map(|set| ("control", set)))
        .collect();
    for (name, set) in sets {
        blocks.push(Block::Table(texts(findings, name, set)));
        blocks.extend(left_out(name, set));
    }
    blocks.push(Block::Section("models", "Models and tokenizer"));
    let models: Vec<(&str, &ModelFacts)> = std::iter::once(("model", &findings.model))
        .chain(findings.baseline.as_ref().map(|model| ("baseline", model)))
        .collect();
    for (name, model) in models {
        blocks.push(Block::Table(facts(name, model)));
        blocks.push(Block::Table(files(name, model)));
    }
    blocks.push(Block::Table(tokenizer(findings)));
    blocks.push(Block::Section("settings", "Settings"));
    blocks.push(Block::Table(settings(findings)));
    blocks.push(Block::Paragraph("The command:".into()));
    blocks.push(Block::Code(findings.command.clone()));
}

fn texts(findings: &Findings, name: &str, set: &TextFacts) -> Table {
    let mut rows = vec![
        ("path", Text::new().source(&*set.path)),
        ("SHA-256", Text::new().code(&*set.sha256)),
        ("read", plural(set.read as u64, "document").into()),
        (
            "scored",
            format!(
                "{} in {}",
                plural(set.scored as u64, "document"),
                plural(set.clusters as u64, "cluster")
            )
            .into(),
        ),
        (
            "cut",
            format!(
                "{}, to {}",
                plural(set.cut as u64, "document"),
                plural(findings.settings.tokens as u64, "id")
            )
            .into(),
        ),
        (
            "left out",
            plural(set.left_out.len() as u64, "document").into(),
        ),
    ];
    let notes = set.notes.iter();
    rows.extend(notes.map(|note| ("note", Text::new().source(&**note))));
    pairs(format!("Set {name}").into(), rows)
}

fn left_out(name: &str, set: &TextFacts) -> Vec<Block> {
    let mut blocks = Vec::new();
    if set.left_out.is_empty() {
        return blocks;
    }
    let mut table = Table::new(
        format!("Left out of the {name}: not scored, and in no number of this page."),
        2,
        &["Document", "Reason"],
    );
    for (document, reason) in set.left_out.iter().take(MOST_LISTED) {
        table.rows.push(vec![
            Text::new().source(&**document),
            Text::new().source(&**reason),
        ]);
    }
    blocks.push(Block::Table(table));
    let more = set.left_out.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        blocks.push(Block::Paragraph(Text::from(format!(
            "… and {} more left out of the {name}.",
            plural(more as u64, "document")
        ))));
    }
    blocks
}

/// A table of names and values.
fn pairs(caption: Text, rows: Vec<(&str, Text)>) -> Table {
    let mut table = Table::new(caption, 2, &["Property", "Value"]);
    for (name, value) in rows {
        table.rows.push(vec![name.into(), value]);
    }
    table
}

fn facts(name: &str, model: &ModelFacts) -> Table {
    let mut rows = vec![("source", Text::new().source(&*model.source))];
    if let Some(revision) = &model.revision {
        rows.push(("revision", Text::new().code(&**revision)));
    }
    rows.extend([
        (
            "parameters",
            format!(
                "{} ({})",
                count(model.parameters),
                parameters(model.parameters)
            )
            .into(),
        ),
        ("shape", model.shape.as_str().into()),
        ("stored as", model.stored.as_str().into()),
        (
            "tolerance τ",
            format!(
                "{}: a document is fragile if its smallest gap between the true id and the best other is \
                 below",
                number(f64::from(model.tolerance))
            )
            .into(),
        ),
    ]);
    rows.extend(
        model
            .notes
            .iter()
            .map(|note| ("note", Text::new().source(&**note))),
    );
    let caption = Text::new()
        .plain(if name == "model" {
            "The model "
        } else {
            "The baseline "
        })
        .strong(&*model.name);
    pairs(caption, rows)
}

fn files(name: &str, model: &ModelFacts) -> Table {
    let mut table = Table::new(format!("Files of the {name}"), 2, &["File", "SHA-256"]);
    for (file, sha256) in &model.files {
        table.rows.push(vec![
            Text::new().source(&**file),
            Text::new().code(&**sha256),
        ]);
    }
    table
}

fn tokenizer(findings: &Findings) -> Table {
    let tokenizer = &findings.tokenizer;
    pairs(
        "The tokenizer".into(),
        vec![
            ("source", Text::new().source(&*tokenizer.source)),
            ("SHA-256", Text::new().code(&*tokenizer.sha256)),
            ("ids", count(tokenizer.ids as u64).into()),
            ("beginning-of-text id", tokenizer.bos.as_str().into()),
        ],
    )
}

fn settings(findings: &Findings) -> Table {
    let settings = &findings.settings;
    let suffix: Vec<String> = settings.suffix.iter().map(ToString::to_string).collect();
    let all = |rest: Option<String>| rest.unwrap_or_else(|| "none".to_owned());
    pairs(
        "How it was measured".into(),
        vec![
            ("suffix", format!("{} ids", suffix.join(", ")).into()),
            ("prefix", settings.prefix.join(", ").into()),
            (
                "fewest ids before a suffix",
                count(settings.min_prefix as u64).into(),
            ),
            (
                "documents cut to",
                plural(settings.tokens as u64, "id").into(),
            ),
            (
                "documents read at once",
                count(settings.batch as u64).into(),
            ),
            ("grid of ranks", settings.grid.as_str().into()),
            ("computed in", settings.dtype.as_str().into()),
            ("level of intervals", percent(settings.level).into()),
            ("resamples", count(settings.resamples as u64).into()),
            ("seed", settings.seed.to_string().into()),
            ("fail above", all(settings.fail_above.map(percent)).into()),
            ("scoring took", duration(findings.seconds).into()),
            ("axmem", findings.version.as_str().into()),
        ],
    )
}
