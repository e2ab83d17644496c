//! The report of a finished run, made from result tables only.
//!
//! Owns: reading the tables of `estimate`, `score`, `train` and the data stages, and turning them
//! into `report.html`, `report.md`, figures and `summary.json`. It counts rows and formats
//! numbers; it computes no statistic: every rate, interval and p value is a cell of a table. It
//! may not touch the store, the stages, or models.
//!
//! The same inputs give the same bytes.

pub(crate) mod chart;
mod content;
mod examples;
mod figure;
mod findings;
pub(crate) mod format;
pub(crate) mod html;
pub(crate) mod interval;
mod markdown;
pub(crate) mod page;
mod png;
mod study;
mod summary;
mod tables;
mod visible;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One artefact of the run, as it stands in the provenance section.
#[derive(Clone, Debug, Default)]
pub struct Artefact {
    /// Stage that made it, with its subject where there is one, e.g. `train standard 0`.
    pub stage: String,
    /// Key of the artefact in the store.
    pub key: String,
    /// Folder of the artefact.
    pub dir: PathBuf,
}

/// A study that is joined with others in one report.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// What it is called in the report.
    pub name: String,
    /// Its resolved experiment.
    pub experiment: serde_json::Value,
    /// Version of the program that made its own report.
    pub version: String,
    /// SHA-256 of the record of its own report.
    pub record: String,
}

/// Everything the report is made from. Paths name Parquet tables unless said otherwise.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Name of the experiment.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// The studies that are joined; none in the report of one study.
    pub joined: Vec<Joined>,
    /// The resolved experiment at this moment, no defaults left; of joined studies, what they have in common.
    pub experiment: serde_json::Value,
    /// The arm that the others are compared with: the standard loss, if it was trained.
    pub reference: Option<String>,
    /// The arms trained with the Goldfish loss.
    pub goldfish: Vec<String>,
    /// Power of the smallest detectable effects of the table `contrasts`.
    pub power: f64,
    /// All artefacts the report rests on, in the order of the plan.
    pub artefacts: Vec<Artefact>,
    /// Table `estimates`.
    pub estimates: PathBuf,
    /// Table `contrasts`.
    pub contrasts: PathBuf,
    /// Table `overlap`.
    pub overlap: PathBuf,
    /// Table `transitions`.
    pub transitions: PathBuf,
    /// Table `hazards` of studies with a Goldfish arm.
    pub hazards: Option<PathBuf>,
    /// Table `curves` of a training that was scored on the way.
    pub curves: Option<PathBuf>,
    /// Table `thresholds` of a ladder.
    pub thresholds: Option<PathBuf>,
    /// Tables `scores`, one or more per model, arm, trial and time.
    pub scores: Vec<PathBuf>,
    /// Tables `steps` of the warm-up and the training runs.
    pub steps: Vec<PathBuf>,
    /// Tables `timings` of the same runs.
    pub timings: Vec<PathBuf>,
    /// `certificate.json` of the study's grid, if there is one; a JSON file.
    pub certificate: Option<PathBuf>,
    /// Tables `validation` of held-out loss.
    pub validation: Vec<PathBuf>,
    /// Exposure ledgers, one per training run.
    pub exposures: Vec<PathBuf>,
    /// Table `documents` (titles and origins).
    pub documents: Option<PathBuf>,
    /// Table `tokens` (eligibility with reasons, and the ids of the examples).
    pub tokens: Option<PathBuf>,
    /// `tokenizer.json`, to print examples as text; a JSON file.
    pub tokenizer: Option<PathBuf>,
    /// Table `exclusions` of the background.
    pub exclusions: Option<PathBuf>,
    /// Table `near_duplicates` of the corpus.
    pub near_duplicates: Option<PathBuf>,
    /// Table `contamination` of the control.
    pub contamination: Option<PathBuf>,
    /// The second control, of pages created after a snapshot.
    pub created_after: Option<CreatedAfter>,
    /// Where the analysis settings differ from those sealed before training, one sentence each.
    pub deviations: Vec<String>,
    /// Wall-clock seconds of all stages together, as recorded when they were made.
    pub seconds: f64,
}

impl Inputs {
    /// All files that are named here, but for the certificate.
    pub(crate) fn files(&self) -> Vec<&Path> {
        let always = [
            &self.estimates,
            &self.contrasts,
            &self.overlap,
            &self.transitions,
        ];
        let optional = [
            &self.hazards,
            &self.curves,
            &self.thresholds,
            &self.documents,
            &self.tokens,
            &self.tokenizer,
            &self.exclusions,
            &self.near_duplicates,
            &self.contamination,
        ];
        let lists = [
            &self.scores,
            &self.steps,
            &self.timings,
            &self.validation,
            &self.exposures,
        ];
        let optional = optional.into_iter().flatten();
        let all = always.into_iter().chain(optional);
        all.chain(lists.into_iter().flatten())
            .map(PathBuf::as_path)
            .collect()
    }
}

/// One file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl File {
    fn text(name: &str, text: String) -> Self {
        Self {
            name: name.to_owned(),
            bytes: text.into_bytes(),
        }
    }
}

/// The tables of the second control.
#[derive(Clone, Debug, Default)]
pub struct CreatedAfter {
    /// Table `created_after_estimates`.
    pub estimates: PathBuf,
    /// Table `created_after`, with the columns of `tokens`.
    pub documents: PathBuf,
    /// Table `exclusions` of its draw.
    pub exclusions: PathBuf,
    /// Table `snapshot_runs`.
    pub snapshot_runs: PathBuf,
    /// Its table `contamination`.
    pub contamination: PathBuf,
    /// `counts.json` of its draw; a JSON file.
    pub counts: PathBuf,
}

/// Writes `report.html`, `report.md`, `summary.json` and the figures as SVG and PNG into `out_dir`, which is created if
/// missing. Each file is replaced as a whole.
///
/// # Errors
/// A table that is missing, unreadable or lacks a column, and a folder that can't be written; each
/// names the path.
pub fn write(inputs: &Inputs, out_dir: &Path) -> Result<()> {
    let rendered = render(inputs)?;
    axmem_datasets::files::create_dir_all(out_dir)?;
    for file in &rendered {
        axmem_datasets::files::write_atomic(out_dir.join(&file.name), &file.bytes)
            .with_context(|| format!("cannot write the report of {}", inputs.name))?;
    }
    Ok(())
}

/// The files that [`write()`] writes.
///
/// # Errors
/// A table that is missing, unreadable or lacks a column; it names the path.
pub fn render(inputs: &Inputs) -> Result<Vec<File>> {
    let study = study::Study::read(inputs)?;
    let figures = figure::all(&study)?;
    let page = content::page(inputs, &study)?;
    let drawn: Vec<(&str, &str)> = figures
        .iter()
        .map(|(name, svg)| (*name, svg.as_str()))
        .collect();
    let mut files = vec![
        File::text("report.html", html::render(&page, &drawn)),
        File::text("report.md", markdown::render(&page)),
        File::text("summary.json", summary::render(inputs, &study)?),
    ];
    for (name, svg) in figures {
        files.push(File {
            name: name.replace(".svg", ".png"),
            bytes: png::of_svg(&svg)?,
        });
        files.push(File::text(name, svg));
    }
    Ok(files)
}
