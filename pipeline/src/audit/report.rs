//! The report of an audit: one page, its figures, and the summary for scripts.
//!
//! Owns: what is said where. It formats numbers and chooses rows; every rate, interval and p is
//! one of [`Findings`]. The same findings give the same bytes.

mod answer;
mod curves;
mod figures;
mod provenance;
mod summary;
mod tables;
#[cfg(test)]
mod tests;
mod texts;
mod verdict;

use std::path::Path;

use anyhow::{Context, Result};
use std::cmp::Reverse;

use axmem_eval::estimate::Estimate;

use super::findings::Findings;
use crate::report::format::{count, parameters, plural};
use crate::report::html;
use crate::report::page::{Page, Text};

pub(super) use summary::summary;
pub(super) use verdict::verdict;

/// The name of the audited documents in the tables of scores; see [`Findings::contrasts`].
const DOCUMENTS_BUCKET: &str = "1";

/// Writes `report.html`, `matched-prefix.svg`, `log-probability.svg` and, with more than one
/// prefix, `prompt-length.svg` into `out`, which is created if missing.
///
/// # Errors
/// A folder that can't be written; the error names the path.
pub(super) fn write(findings: &Findings, out: &Path) -> Result<()> {
    let rendered = render(findings)?;
    axmem_datasets::files::create_dir_all(out)?;
    for (name, text) in &rendered {
        axmem_datasets::files::write_atomic(out.join(name), text.as_bytes())
            .with_context(|| format!("cannot write the report of {}", findings.model.name))?;
    }
    Ok(())
}

/// The files that [`write()`] writes, by name, with their content.
pub(super) fn render(findings: &Findings) -> Result<Vec<(&'static str, String)>> {
    let drawn = figures::draw(findings)?;
    let figures: Vec<(&str, &str)> = drawn
        .iter()
        .map(|figure| (figure.file, figure.svg.as_str()))
        .collect();
    let html = html::render(&page(findings, &drawn), &figures);
    let mut rendered = vec![("report.html", html)];
    rendered.extend(drawn.into_iter().map(|figure| (figure.file, figure.svg)));
    Ok(rendered)
}

fn page(findings: &Findings, drawn: &[figures::Figure]) -> Page {
    let mut blocks = Vec::new();
    answer::push(findings, &mut blocks);
    figures::push(findings, drawn, &mut blocks);
    tables::push(findings, &mut blocks);
    texts::push(findings, &mut blocks);
    provenance::push(findings, &mut blocks);
    let scored = findings.documents.scored + findings.control.as_ref().map_or(0, |set| set.scored);
    Page {
        title: format!("Audit of {}", findings.model.name),
        subtitle: Text::from(format!(
            "{} parameters; {} scored; axmem {}",
            parameters(findings.model.parameters),
            plural(scored as u64, "document"),
            findings.version
        )),
        blocks,
    }
}

/// Rates of one set, model, suffix and prefix; they differ in the method of interval only.
struct Cell<'a> {
    set: &'static str,
    model: &'static str,
    methods: Vec<&'a Estimate>,
}

impl<'a> Cell<'a> {
    /// The rate with the interval that the text goes by: Wilson's, the one for several documents in a cluster otherwise.
    fn main(&self) -> &'a Estimate {
        self.by(["wilson", "korn_graubard"])
    }

    /// The rate with an interval whose lower end is above the true rate in at most half of the misses that its level allows.
    fn exact(&self) -> &'a Estimate {
        self.by(["clopper_pearson", "korn_graubard"])
    }

    fn by(&self, names: [&str; 2]) -> &'a Estimate {
        names
            .iter()
            .find_map(|name| self.methods.iter().find(|row| row.method == *name))
            .unwrap_or(&self.methods[0])
    }

    fn is(&self, set: &str, model: &str) -> bool {
        self.set == set && self.model == model
    }
}

/// All rates: documents before control, the model before its baseline, long suffixes before short ones, prefixes in the
/// order in which they were asked for. So the first is the one that the texts of the report are about.
fn cells(findings: &Findings) -> Vec<Cell<'_>> {
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for rate in &findings.rates {
        let row = &rate.estimate;
        let same = cells.iter_mut().find(|cell| {
            let first = cell.methods[0];
            cell.is(rate.set, rate.model)
                && (first.suffix, &first.prefix) == (row.suffix, &row.prefix)
        });
        match same {
            Some(cell) => cell.methods.push(row),
            None => cells.push(Cell {
                set: rate.set,
                model: rate.model,
                methods: vec![row],
            }),
        }
    }
    let settings = &findings.settings;
    cells.sort_by_key(|cell| {
        let row = cell.methods[0];
        (
            cell.set != "documents",
            cell.model != "model",
            Reverse(row.suffix),
            settings.prefix.iter().position(|name| *name == row.prefix),
        )
    });
    cells
}

/// The set of a row of contrasts or overlap.
fn set_name(bucket: &str) -> &str {
    match bucket {
        DOCUMENTS_BUCKET => "documents",
        other => other,
    }
}

/// What comes before the suffix, in words.
fn after_prefix(prefix: &str) -> String {
    match prefix.parse::<u64>() {
        Ok(1) => "after the 1 id before".to_owned(),
        Ok(length) => format!("after the {} ids before", count(length)),
        Err(_) => "after everything before".to_owned(),
    }
}
