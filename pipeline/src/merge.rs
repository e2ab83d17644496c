//! `axmem report DIR...`: one report, or one figure, from several finished studies of the same documents.
//!
//! Rates stay those of each study. What compares models is computed over all of them: neighbouring sizes, the threshold, and
//! the families that tests are adjusted in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::exposure::Exposure;
use axmem_datasets::{files, table};
use axmem_eval::estimate::{self, Analysis, Estimate, Hazard, Question, Threshold};
use axmem_eval::{ModelInfo, ScoreRow};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::events::Events;
use crate::exit::Failure;
use crate::experiment::file::ThresholdFile;
use crate::experiment::{Arm, Experiment, Weights};
use crate::plan::{Plan, Stage};
use crate::record::{RECORD, Record};
use crate::report::{self, Inputs};
use crate::run;
use crate::stages::estimate as tables;
use crate::store::Store;

/// One figure of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Memorisation by number of parameters
    Threshold,
    /// Every arm beside its own baseline
    Goldfish,
    /// Documents kept, gained, lost and never reproduced
    Overlap,
    /// Memorisation by exposures
    Dose,
    /// Memorisation by length of the prompt
    Prompt,
}

impl Figure {
    fn files(self) -> [&'static str; 2] {
        match self {
            Self::Threshold => ["threshold.svg", "threshold.png"],
            Self::Goldfish => ["goldfish.svg", "goldfish.png"],
            Self::Overlap => ["overlap.svg", "overlap.png"],
            Self::Dose => ["memorisation.svg", "memorisation.png"],
            Self::Prompt => ["prompt-length.svg", "prompt-length.png"],
        }
    }
}

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

/// A finished study.
struct Study {
    folder: PathBuf,
    record: Record,
    /// Key and folder of the artefact of `estimate`.
    estimate: (String, PathBuf),
    scores: Vec<ScoreRow>,
}

impl Study {
    fn read(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        if !folder.join(RECORD).is_file() {
            return Err(Failure::data(format!(
                "{} is not the report of a finished study; name a folder such as runs/quickstart",
                folder.display()
            )));
        }
        let record = Record::read(&folder)?;
        let store = Store::new(folder.parent().unwrap_or(&folder));
        let plan = Plan::new(&record.experiment);
        let node = plan
            .of(Stage::Estimate)
            .next()
            .context("a plan has estimates")?;
        let node = &plan.nodes[node];
        let estimate = run::folder(&store, node);
        if store.find(&estimate)?.is_none() {
            return Err(Failure::data(format!(
                "{}: its tables are not in {}; run the study again, which repeats only what is missing",
                folder.display(),
                estimate.display()
            )));
        }
        Ok(Self {
            scores: table::read(estimate.join(tables::SCORES))?,
            estimate: (node.key.clone(), estimate),
            folder,
            record,
        })
    }

    fn experiment(&self) -> &Experiment {
        &self.record.experiment
    }

    fn table<R: table::Record>(&self, name: &str) -> Result<Vec<R>> {
        Ok(table::read(self.estimate.1.join(name))?)
    }

    /// Level of each cluster in each trial.
    fn levels(&self) -> BTreeMap<(&str, u32), u32> {
        let rows = self.scores.iter();
        rows.map(|row| ((&*row.score.cluster, row.trial), row.epochs))
            .collect()
    }
}

/// Merges the studies and writes the report, or the figure.
///
/// # Errors
/// Folders without a study, studies that are not about the same buckets, probes and analysis, two models of one name, and a
/// figure that the studies do not have.
pub fn run(request: &Request, events: &Events) -> Result<()> {
    let studies = request
        .folders
        .iter()
        .map(|folder| Study::read(folder))
        .collect::<Result<Vec<_>>>()?;
    let [first, others @ ..] = studies.as_slice() else {
        return Err(Failure::usage("name at least one folder"));
    };
    for other in others {
        agree(first, other)?;
    }
    let temporary = tempfile::tempdir().context("a folder for the joined tables")?;
    let inputs = join(&studies, temporary.path())?;
    files::create_dir_all(&request.out)?;
    let rendered = report::render(&inputs)?;
    let wanted = |name: &str| {
        request
            .figure
            .is_none_or(|figure| figure.files().contains(&name))
    };
    let mut written = Vec::new();
    for file in rendered.iter().filter(|file| wanted(&file.name)) {
        let path = request.out.join(&file.name);
        files::write_atomic(&path, &file.bytes)?;
        written.push(path);
    }
    let Some(path) = written.first() else {
        return Err(Failure::usage(
            "the studies do not have that figure: a threshold needs several models, goldfish such an arm, and prompt several prefixes",
        ));
    };
    events.tell(
        "finished",
        json!({ "files": written }),
        &format!("{} of {} studies", path.display(), studies.len()),
    );
    Ok(())
}

/// Refuses two studies whose numbers would not belong together.
fn agree(first: &Study, other: &Study) -> Result<()> {
    let [a, b] = [first.experiment(), other.experiment()];
    let refuse = |what: &str| {
        Err(Failure::usage(format!(
            "{} and {} have different {what}, so their models can't be compared",
            first.folder.display(),
            other.folder.display()
        )))
    };
    if a.buckets != b.buckets {
        return refuse("`buckets`");
    }
    if a.score.suffix != b.score.suffix || a.score.prefix != b.score.prefix {
        return refuse("`score.suffix` or `score.prefix`");
    }
    let analysis = |experiment: &Experiment| {
        let mut analysis = experiment.analysis.clone();
        // A study of one model asks for none.
        analysis.threshold = None;
        analysis
    };
    if analysis(a) != analysis(b) {
        return refuse("`analysis`");
    }
    let random = |experiment: &Experiment| {
        let models = experiment.models.iter();
        models
            .filter(|model| matches!(model.weights, Weights::Random(_)))
            .count()
            > 0
    };
    if random(a) != random(b) {
        return refuse("kinds of weights (random and published)");
    }
    if first.levels() != other.levels() {
        return refuse("documents in their buckets");
    }
    Ok(())
}

/// The tables of all studies in one folder, and the inputs of a report from them.
fn join(studies: &[Study], folder: &Path) -> Result<Inputs> {
    let mut models: Vec<ModelInfo> = Vec::new();
    let mut scores = Vec::new();
    let mut exposures: Vec<Exposure> = Vec::new();
    let mut hazards: Vec<Hazard> = Vec::new();
    for study in studies {
        for info in infos(study)? {
            if models.iter().any(|other| other.model == info.model) {
                return Err(Failure::usage(format!(
                    "two studies have a model called {}; give one of them another `name`",
                    info.model
                )));
            }
            models.push(info);
        }
        scores.extend(study.scores.iter().cloned());
        exposures.extend(study.table::<Exposure>(tables::EXPOSURES)?);
        hazards.extend(study.table::<Hazard>(tables::HAZARDS)?);
    }
    let first = studies[0].experiment();
    let arms = arms(studies);
    let reference = arms
        .iter()
        .find(|arm| **arm == Arm::Standard)
        .or(arms.first());
    let reference = reference.context("a study has arms")?.name();
    let analysis = tables::settings(first, reference);
    let asked = studies
        .iter()
        .find_map(|study| study.experiment().analysis.threshold.clone());
    let joined = Joined { folder };
    let mut inputs = Inputs {
        name: names(studies),
        version: env!("AXMEM_VERSION").to_owned(),
        experiment: experiment(studies)?,
        reference: Some(reference.to_owned()),
        goldfish: arms
            .iter()
            .filter(|arm| **arm != Arm::Standard)
            .map(|arm| arm.name().to_owned())
            .collect(),
        power: tables::POWER,
        artefacts: studies
            .iter()
            .map(|study| report::Artefact {
                stage: format!("estimate of {}", study.experiment().name),
                key: study.estimate.0.clone(),
                dir: study.estimate.1.clone(),
            })
            .collect(),
        ..Inputs::default()
    };
    inputs.estimates = joined.write(
        tables::ESTIMATES,
        &estimate::estimates(&scores, &models, Some(&exposures), &analysis)?,
    )?;
    inputs.contrasts = joined.write(
        tables::CONTRASTS,
        &estimate::contrasts(&scores, &models, &analysis)?,
    )?;
    inputs.overlap = joined.write(tables::OVERLAP, &estimate::overlap(&scores)?)?;
    inputs.transitions = joined.write(tables::TRANSITIONS, &estimate::transitions(&scores)?)?;
    inputs.hazards = Some(joined.write(tables::HAZARDS, &hazards)?);
    if models.len() > 1 {
        let rows = thresholds(&scores, &models, asked, first, &analysis)?;
        inputs.thresholds = Some(joined.write(tables::THRESHOLDS, &rows)?);
    }
    inputs.scores = vec![joined.write(tables::SCORES, &scores)?];
    inputs.exposures = vec![joined.write(tables::EXPOSURES, &exposures)?];
    Ok(inputs)
}

/// The folder of the joined tables.
struct Joined<'a> {
    folder: &'a Path,
}

impl Joined<'_> {
    fn write<R: table::Record>(&self, name: &str, rows: &[R]) -> Result<PathBuf> {
        let path = self.folder.join(name);
        table::write(&path, rows)?;
        Ok(path)
    }
}

/// What is known of a study's models, as its estimates say it.
fn infos(study: &Study) -> Result<Vec<ModelInfo>> {
    let estimates: Vec<Estimate> = study.table(tables::ESTIMATES)?;
    let models = study.experiment().models.iter();
    models
        .map(|model| {
            let row = estimates.iter().find(|row| row.model == model.name);
            let row = row.with_context(|| format!("model {} has no estimates", model.name))?;
            Ok(ModelInfo {
                model: row.model.clone(),
                parameters: row.parameters,
                family: row.family.clone(),
                tokenizer: row.tokenizer.clone(),
                dtype: row.dtype.clone(),
            })
        })
        .collect()
}

/// The arms of all studies, each once.
fn arms(studies: &[Study]) -> Vec<Arm> {
    let mut arms: Vec<Arm> = Vec::new();
    for arm in studies
        .iter()
        .flat_map(|study| &study.experiment().train.arms)
    {
        if !arms.contains(arm) {
            arms.push(arm.clone());
        }
    }
    arms
}

/// The answer of each arm over the joined ladder, to the question that a study asked or else the usual one.
fn thresholds(
    scores: &[ScoreRow],
    models: &[ModelInfo],
    asked: Option<ThresholdFile>,
    experiment: &Experiment,
    analysis: &Analysis,
) -> Result<Vec<Threshold>> {
    let asked = asked.unwrap_or_default();
    let highest = experiment.buckets.epochs.iter().copied().max().unwrap_or(0);
    let question = Question {
        rate: asked.rate,
        exposures: asked.exposures.min(highest),
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

/// The first experiment with the models of all.
fn experiment(studies: &[Study]) -> Result<Value> {
    let mut experiment = studies[0].experiment().clone();
    experiment.models = studies
        .iter()
        .flat_map(|study| study.experiment().models.clone())
        .collect();
    serde_json::to_value(experiment).context("the joined experiment")
}
