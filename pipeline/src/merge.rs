//! `axmem report DIR...`: one report, or one figure, from several finished studies of the same documents.
//!
//! Rates, curves and whatever else is about one model stay those of each study. What compares models is computed over all of
//! them: neighbouring sizes, the threshold, and the families that tests are adjusted in. Tables of the data are carried over if
//! the studies have the same ones.

mod agree;
mod figure;
mod record;
mod study;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::exposure::Exposure;
use axmem_datasets::{files, table};
use axmem_eval::estimate::{self, Analysis, Curve, Hazard, Question, Threshold};
use axmem_eval::{ModelInfo, ScoreRow};
use serde_json::{Value, json};

use self::study::{Found, rows};
use crate::events::Events;
use crate::exit::Failure;
use crate::experiment::Arm;
use crate::experiment::file::ThresholdFile;
use crate::record::RECORD;
use crate::report::{self, Artefact, Inputs};
use crate::stages::estimate as tables;
use crate::store::MANIFEST;

pub use self::figure::Figure;
pub(crate) use self::record::{JOINED, Joined};
pub(crate) use self::study::Study;

/// What is to be merged.
#[derive(Debug)]
pub struct Request {
    /// Folders of the reports of finished studies.
    pub folders: Vec<PathBuf>,
    /// The one figure that is wanted, instead of a whole report.
    pub figure: Option<Figure>,
    /// Where it goes.
    pub out: PathBuf,
}

/// Merges the studies and writes the report with its record, or the figure.
///
/// # Errors
/// Folders without a study, studies that do not belong together, damaged tables, a figure that the studies do not have, and a
/// folder that has the results of something else. Nothing is written then.
pub fn run(request: &Request, events: &Events) -> Result<()> {
    let (out, version) = (&request.out, env!("AXMEM_VERSION"));
    check_out(out)?;
    check_joined(request)?;
    let studies = open(&request.folders, version)?;
    for study in &studies {
        study.check()?;
    }
    let mut rendered = render(&studies, version)?;
    if let Some(figure) = request.figure {
        rendered.retain(|file| figure.is(&file.name));
        if rendered.is_empty() {
            return Err(Failure::usage(format!(
                "there is no figure {} of these studies: it needs {}",
                figure.stem(),
                figure.needs()
            )));
        }
    }
    files::create_dir_all(out)?;
    for file in &rendered {
        files::write_atomic(out.join(&file.name), &file.bytes)?;
    }
    if request.figure.is_none() {
        let record = Joined::new(out, version, &studies, &rendered)?;
        files::write_atomic(out.join(JOINED), record.text()?.as_bytes())?;
    }
    let names: Vec<&str> = rendered.iter().map(|file| &*file.name).collect();
    let of = match studies.len() {
        1 => "1 study".to_owned(),
        several => format!("{several} studies"),
    };
    let sentence = match request.figure {
        Some(_) => format!("{} of {of} are in {}", names.join(" and "), out.display()),
        None => format!("the report of {of} is {}", out.join(names[0]).display()),
    };
    let fields = json!({ "folder": out, "files": names, "studies": studies.len() });
    events.tell("finished", fields, &sentence);
    Ok(())
}

/// Refuses a folder in which the results of a study or an audit are, or an artefact.
fn check_out(out: &Path) -> Result<()> {
    for name in [RECORD, MANIFEST] {
        if out.join(name).exists() {
            return Err(Failure::usage(format!(
                "{} has the results of something else ({name} is in it), which would be overwritten; name another folder with --out",
                out.display()
            )));
        }
    }
    Ok(())
}

/// Refuses a folder with the joined report of other studies, and one figure beside any.
fn check_joined(request: &Request) -> Result<()> {
    let out = &request.out;
    if !out.join(JOINED).exists() {
        return Ok(());
    }
    let resolve = |folder: &PathBuf| study::resolved(folder).unwrap_or_else(|_| folder.clone());
    let folders = Joined::read(out)?.folders(&study::resolved(out)?);
    let of: Vec<PathBuf> = folders.iter().map(resolve).collect();
    let asked: Vec<PathBuf> = request.folders.iter().map(resolve).collect();
    if request.figure.is_none() && of == asked {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} has a joined report ({JOINED} is in it), which would be overwritten or get a file that is not of it; name another folder with --out",
        out.display()
    )))
}

/// The studies in the folders, for a report by a version of the program.
///
/// # Errors
/// Folders without a study, settings that do not belong together, and artefacts that are missing.
pub(crate) fn open(folders: &[PathBuf], version: &str) -> Result<Vec<Study>> {
    let found = folders
        .iter()
        .map(|folder| Found::read(folder))
        .collect::<Result<Vec<_>>>()?;
    agree::settings(&found)?;
    found
        .into_iter()
        .map(|found| Study::open(found, version))
        .collect()
}

/// The files of the report of the studies.
///
/// # Errors
/// Documents in other buckets, and tables that can't be read.
pub(crate) fn render(studies: &[Study], version: &str) -> Result<Vec<report::File>> {
    if let [only] = studies {
        return report::render(&only.inputs);
    }
    let temporary = tempfile::tempdir().context("a folder for the joined tables")?;
    report::render(&join(studies, version, temporary.path())?)
}

/// The tables of all studies in one folder, and the inputs of a report from them.
fn join(studies: &[Study], version: &str, folder: &Path) -> Result<Inputs> {
    let scores = studies
        .iter()
        .map(Study::scores)
        .collect::<Result<Vec<_>>>()?;
    agree::documents(studies, &scores)?;
    let scores: Vec<ScoreRow> = scores.into_iter().flatten().collect();
    let mut models: Vec<ModelInfo> = Vec::new();
    let mut exposures: Vec<Exposure> = Vec::new();
    let mut hazards: Vec<Hazard> = Vec::new();
    let mut curves: Vec<Curve> = Vec::new();
    for study in studies {
        models.extend(study.models()?);
        exposures.extend(rows::<Exposure>(&study.inputs.exposures)?);
        hazards.extend(rows::<Hazard>(&study.inputs.hazards)?);
        curves.extend(rows::<Curve>(&study.inputs.curves)?);
    }
    let first = studies.first().context("a report has studies")?;
    let arms = arms(studies);
    let standard = arms.iter().find(|arm| **arm == Arm::Standard);
    let reference = standard.or(arms.first()).context("a study has arms")?;
    let analysis = tables::settings(first.experiment(), reference.name());
    let asked = question(studies);
    let write = Tables { folder };
    Ok(Inputs {
        estimates: write.table(
            tables::ESTIMATES,
            &estimate::estimates(&scores, &models, Some(&exposures), &analysis)?,
        )?,
        contrasts: write.table(
            tables::CONTRASTS,
            &estimate::contrasts(&scores, &models, &analysis)?,
        )?,
        overlap: write.table(tables::OVERLAP, &estimate::overlap(&scores)?)?,
        transitions: write.table(tables::TRANSITIONS, &estimate::transitions(&scores)?)?,
        thresholds: Some(write.table(
            tables::THRESHOLDS,
            &thresholds(&scores, &models, &asked, &analysis)?,
        )?),
        hazards: Some(write.table(tables::HAZARDS, &hazards)?),
        curves: (!curves.is_empty())
            .then(|| write.table(tables::CURVES, &curves))
            .transpose()?,
        scores: vec![write.table(tables::SCORES, &scores)?],
        exposures: vec![write.table(tables::EXPOSURES, &exposures)?],
        experiment: experiment(studies, asked)?,
        reference: standard.map(|arm| arm.name().to_owned()),
        goldfish: arms
            .iter()
            .filter(|arm| **arm != Arm::Standard)
            .map(|arm| arm.name().to_owned())
            .collect(),
        ..carried(studies, version)?
    })
}

/// What a report of several studies has of each, and what they have in common.
fn carried(studies: &[Study], version: &str) -> Result<Inputs> {
    let labels = labels(studies);
    let all = |of: fn(&Inputs) -> &[PathBuf]| {
        let studies = studies.iter();
        studies
            .flat_map(|study| of(&study.inputs).to_vec())
            .collect()
    };
    let (artefacts, seconds) = artefacts(studies, &labels);
    let deviations = studies.iter().zip(&labels).flat_map(|(study, label)| {
        let deviations = study.inputs.deviations.iter();
        deviations.map(move |deviation| format!("{label}: {deviation}"))
    });
    let joined = studies.iter().zip(&labels).map(|(study, label)| {
        let experiment = serde_json::to_value(study.experiment());
        Ok(report::Joined {
            name: label.clone(),
            experiment: experiment.context("the experiment of a study")?,
            version: study.found.record.program.clone(),
            record: study.found.sha256.clone(),
        })
    });
    Ok(Inputs {
        name: names(studies),
        version: version.to_owned(),
        power: tables::POWER,
        joined: joined.collect::<Result<_>>()?,
        deviations: deviations.collect(),
        artefacts,
        seconds,
        steps: all(|inputs| &inputs.steps),
        timings: all(|inputs| &inputs.timings),
        validation: all(|inputs| &inputs.validation),
        documents: shared(studies, |inputs| inputs.documents.as_ref())?,
        tokens: shared(studies, |inputs| inputs.tokens.as_ref())?,
        tokenizer: shared(studies, |inputs| inputs.tokenizer.as_ref())?,
        exclusions: shared(studies, |inputs| inputs.exclusions.as_ref())?,
        near_duplicates: shared(studies, |inputs| inputs.near_duplicates.as_ref())?,
        contamination: shared(studies, |inputs| inputs.contamination.as_ref())?,
        ..Inputs::default()
    })
}

/// The folder of the joined tables.
struct Tables<'a> {
    folder: &'a Path,
}

impl Tables<'_> {
    fn table<R: table::Record>(&self, name: &str, rows: &[R]) -> Result<PathBuf> {
        let path = self.folder.join(name);
        table::write(&path, rows)?;
        Ok(path)
    }
}

/// A file that all studies have with the same content.
fn shared(studies: &[Study], of: fn(&Inputs) -> Option<&PathBuf>) -> Result<Option<PathBuf>> {
    let mut shared: Option<(PathBuf, &str)> = None;
    for study in studies {
        let Some(path) = of(&study.inputs) else {
            return Ok(None);
        };
        let files = study.files()?;
        let mut files = files.into_iter();
        let (_, record) = files
            .find(|(file, _)| *file == path.as_path())
            .context("a table of the inputs is one of their files")?;
        match &shared {
            None => shared = Some((path.clone(), &record.sha256)),
            Some((_, sha256)) if *sha256 == record.sha256 => {}
            Some(_) => return Ok(None),
        }
    }
    Ok(shared.map(|(path, _)| path))
}

/// The artefacts of all studies with the names of their studies, those that studies share once, and the seconds of all.
fn artefacts(studies: &[Study], labels: &[String]) -> (Vec<Artefact>, f64) {
    let mut found: Vec<(Artefact, Vec<&str>)> = Vec::new();
    let mut seconds = 0.0;
    for (study, label) in studies.iter().zip(labels) {
        for (artefact, manifest) in study.artefacts() {
            let mut known = found.iter_mut();
            if let Some((_, of)) = known.find(|(known, _)| known.dir == artefact.dir) {
                of.push(label);
            } else {
                seconds += manifest.seconds;
                found.push((artefact.clone(), vec![label]));
            }
        }
    }
    let labelled = found.into_iter().map(|(artefact, of)| Artefact {
        stage: format!("{} of {}", artefact.stage, of.join(", ")),
        ..artefact
    });
    (labelled.collect(), seconds)
}

/// The arms of all studies, each name once.
fn arms(studies: &[Study]) -> Vec<Arm> {
    let mut arms: Vec<Arm> = Vec::new();
    for arm in studies
        .iter()
        .flat_map(|study| &study.experiment().train.arms)
    {
        if !arms.iter().any(|known| known.name() == arm.name()) {
            arms.push(arm.clone());
        }
    }
    arms
}

/// The question of the threshold that a study asked, or else the usual one.
fn question(studies: &[Study]) -> ThresholdFile {
    let mut experiments = studies.iter().map(Study::experiment);
    let asked = experiments.find_map(|experiment| experiment.analysis.threshold.clone());
    asked.unwrap_or_else(|| {
        let usual = ThresholdFile::default();
        let levels = studies[0].experiment().buckets.epochs.iter().copied();
        ThresholdFile {
            exposures: usual.exposures.min(levels.max().unwrap_or(0)),
            ..usual
        }
    })
}

/// The answer of each arm over the joined ladder.
fn thresholds(
    scores: &[ScoreRow],
    models: &[ModelInfo],
    asked: &ThresholdFile,
    analysis: &Analysis,
) -> Result<Vec<Threshold>> {
    let question = Question {
        rate: asked.rate,
        exposures: asked.exposures,
    };
    Ok(estimate::thresholds(scores, models, question, analysis)?)
}

/// Names in one, each once.
fn names(studies: &[Study]) -> String {
    let names: BTreeSet<&str> = studies
        .iter()
        .map(|study| &*study.experiment().name)
        .collect();
    names.into_iter().collect::<Vec<_>>().join(" + ")
}

/// What each study is called in the report: its name, with its place where several have that name.
fn labels(studies: &[Study]) -> Vec<String> {
    let name = |study: &Study| study.experiment().name.clone();
    let names: Vec<String> = studies.iter().map(name).collect();
    let is_several = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
    let label = |(name, place): (&String, usize)| {
        if is_several(name) {
            format!("{name} ({place})")
        } else {
            name.clone()
        }
    };
    names.iter().zip(1..).map(label).collect()
}

/// The first experiment with the models of all, each with what it has of its own study, and the question that is asked of all.
fn experiment(studies: &[Study], asked: ThresholdFile) -> Result<Value> {
    let mut joined = studies[0].experiment().clone();
    joined.models.clear();
    for experiment in studies.iter().map(Study::experiment) {
        for model in &experiment.models {
            let mut model = model.clone();
            model.batch = Some(experiment.batch(&model));
            model.micro_batch = Some(experiment.micro_batch(&model));
            model.grid = Some(experiment.layout(Some(&model)).clone());
            joined.models.push(model);
        }
    }
    joined.analysis.threshold = Some(asked);
    serde_json::to_value(joined).context("the joined experiment")
}
