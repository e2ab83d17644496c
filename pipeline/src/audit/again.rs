//! A finished audit made again from its scores, without its models, documents and tokenizer.
//!
//! What an audit was about (models, sets, settings) is taken from its `summary.json`; everything that was counted or
//! estimated comes from `scores.parquet`. The texts of documents can't be made again without the tokenizer.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use axmem_datasets::{files, table};
use axmem_eval::{ScoreRow, Time};
use serde::Deserialize;

use super::analysis::{self, Estimated};
use super::findings::{Findings, ModelFacts, Settings, TextFacts, TokenizerFacts};
use super::{SCORES, SUMMARY, report, show, summary_text};
use crate::exit::Failure;

/// Where the texts of the page begin and end.
const TEXTS: [&str; 2] = ["<h2 id=\"reproduced\">", "<h2 id=\"documents\">"];
/// The section of texts that not every page has, with its place in the list of sections.
const MISSES: &str = "<h2 id=\"misses\">";
const AFTER: &str = "<a href=\"#reproduced\">Reproduced documents</a> ";
const LINK: &str = "<a href=\"#misses\">Nearest misses</a> ";

/// An audit made again.
pub(crate) struct Again {
    /// The scores, as they are.
    pub(crate) scores: Vec<ScoreRow>,
    /// `summary.json`.
    pub(crate) summary: String,
    /// Page and figures, by name.
    pub(crate) report: Vec<(&'static str, String)>,
    /// The sentence of the rate that is above `--fail-above`, if one is.
    pub(crate) exceeded: Option<String>,
    /// Version of the program that made the audit.
    pub(crate) program: String,
    /// Wall-clock seconds of scoring.
    pub(crate) seconds: f64,
}

/// What is on record of an audit besides its scores.
#[derive(Deserialize)]
struct About {
    version: String,
    command: String,
    models: Models,
    tokenizer: TokenizerFacts,
    documents: TextFacts,
    control: Option<TextFacts>,
    settings: Settings,
    seconds: f64,
}

#[derive(Deserialize)]
struct Models {
    model: ModelFacts,
    baseline: Option<ModelFacts>,
}

impl Again {
    /// Makes the audit in a folder again.
    ///
    /// # Errors
    /// A summary or scores that are missing or can't be read.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(SUMMARY);
        let about: About = serde_json::from_str(&files::read_to_string(&path)?)
            .map_err(|error| Failure::data(format!("{} can't be read: {error}", path.display())))?;
        let path = folder.join(SCORES);
        let rows: Vec<ScoreRow> = table::read(&path)?;
        if rows.is_empty() {
            return Err(Failure::data(format!("{} has no rows", path.display())));
        }
        let findings = findings(about, &rows)?;
        let exceeded = report::verdict(&findings).filter(|verdict| !verdict.passed);
        let exceeded = exceeded.map(|verdict| verdict.sentence());
        Ok(Self {
            summary: summary_text(&findings)?,
            report: report::render(&findings)?,
            exceeded,
            program: findings.version,
            seconds: findings.seconds,
            scores: rows,
        })
    }

    /// A file of the report as it should be, for one that was found: texts of documents are those of the latter.
    pub(crate) fn expected(&self, name: &str, found: &str) -> Option<String> {
        let (_, again) = self.report.iter().find(|(other, _)| *other == name)?;
        Some(with_texts_of(again, found).unwrap_or_else(|| again.clone()))
    }
}

/// A page with the texts of another one, if both have a place for them.
fn with_texts_of(page: &str, other: &str) -> Option<String> {
    let cut = |page: &str| {
        let [start, end] = TEXTS.map(|mark| page.find(mark));
        start.zip(end).filter(|(start, end)| start < end)
    };
    let ((start, end), (from, to)) = (cut(page)?, cut(other)?);
    let texts = &other[from..to];
    let mut head = page[..start].to_owned();
    if texts.contains(MISSES) {
        head = head.replacen(AFTER, &format!("{AFTER}{LINK}"), 1);
    }
    Some(format!("{head}{texts}{}", &page[end..]))
}

fn findings(about: About, rows: &[ScoreRow]) -> Result<Findings> {
    let About {
        version,
        command,
        models,
        tokenizer,
        mut documents,
        mut control,
        mut settings,
        seconds,
    } = about;
    for (level, facts) in [(1, Some(&mut documents)), (0, control.as_mut())] {
        if let Some(facts) = facts {
            count(rows, level, facts);
        }
    }
    let suffix = rows[0].score.suffix.iter();
    settings.suffix = suffix.map(|&suffix| suffix as usize).collect();
    settings.level = analysis::LEVEL;
    settings.resamples = analysis::RESAMPLES;
    let estimated = Estimated::new(rows, &models.model, &tokenizer.sha256, settings.seed)?;
    let of_model: Vec<ScoreRow> = rows
        .iter()
        .filter(|row| row.time == Time::After)
        .cloned()
        .collect();
    Ok(Findings {
        version,
        command,
        model: models.model,
        baseline: models.baseline,
        tokenizer,
        documents,
        control,
        settings,
        rates: estimated.rates,
        differences: estimated.differences,
        contrasts: estimated.contrasts,
        overlap: estimated.overlap,
        scored: analysis::scored(rows),
        shown: Vec::new(),
        reproduced: show::of_documents(&show::reproduced(&of_model)),
        not_shown: 0,
        seconds,
    })
}

/// Counts the scored documents of a set, and their clusters.
fn count(rows: &[ScoreRow], level: u32, facts: &mut TextFacts) {
    let of_set = || {
        let rows = rows.iter();
        rows.filter(|row| row.time == Time::After && row.epochs == level)
    };
    let documents: BTreeSet<&str> = of_set().map(|row| row.score.document.as_str()).collect();
    let clusters: BTreeSet<&str> = of_set().map(|row| row.score.cluster.as_str()).collect();
    facts.scored = documents.len();
    facts.clusters = clusters.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_texts_of_a_page_are_taken_over() {
        let page = |rate: &str, links: &str, texts: &str| {
            format!(
                "{AFTER}{links}\n{rate}\n{}{texts}\n{}rest",
                TEXTS[0], TEXTS[1]
            )
        };
        let texts = format!("a\n{MISSES}b");
        let found = page("0.5", LINK, &texts);
        let again = page("0.25", "", "none");
        assert_eq!(
            with_texts_of(&again, &found),
            Some(page("0.25", LINK, &texts))
        );
        assert_eq!(with_texts_of(&again, "no page"), None);
    }
}
