//! A finished study that is joined with others: its record, and the tables that its own report is made from.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::{files, table};
use axmem_eval::estimate::Estimate;
use axmem_eval::{ModelInfo, ScoreRow};

use super::record::JOINED;
use crate::exit::Failure;
use crate::experiment::Experiment;
use crate::plan::{Plan, Stage};
use crate::record::{RECORD, Record};
use crate::report::{Artefact, Inputs};
use crate::run;
use crate::stages::{Context, Teller, report};
use crate::store::{self, FileRecord, Manifest, Store};

/// A study of which only the record was read.
pub(crate) struct Found {
    /// The folder of its report.
    pub(crate) folder: PathBuf,
    pub(crate) record: Record,
    /// SHA-256 of the record.
    pub(crate) sha256: String,
}

impl Found {
    /// Reads the record in a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        if folder.join(JOINED).is_file() {
            return Err(Failure::usage(format!(
                "{} is itself a joined report; name the folders of its studies, which its {JOINED} lists",
                folder.display()
            )));
        }
        let path = folder.join(RECORD);
        if !path.is_file() {
            return Err(Failure::data(format!(
                "{} is not the report of a finished study; name a folder such as runs/quickstart",
                folder.display()
            )));
        }
        Ok(Self {
            // With all its parents, also if it is the folder that the command runs in.
            folder: resolved(folder)?,
            record: Record::read(folder)?,
            sha256: files::sha256_file(path)?,
        })
    }

    pub(super) fn experiment(&self) -> &Experiment {
        &self.record.experiment
    }
}

/// The rows of tables, one after the other.
pub(super) fn rows<'a, R: table::Record>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<Vec<R>> {
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(table::read::<R>(path)?);
    }
    Ok(rows)
}

/// The one path of a folder that exists.
pub(super) fn resolved(folder: &Path) -> Result<PathBuf> {
    folder
        .canonicalize()
        .map_err(|error| Failure::data(format!("cannot read {}: {error}", folder.display())))
}

/// A study with all that its report is made from.
pub(crate) struct Study {
    pub(crate) found: Found,
    /// What its own report is made from.
    pub(super) inputs: Inputs,
    /// Manifest of each artefact of the inputs, in their order.
    manifests: Vec<Manifest>,
}

impl Study {
    /// Finds the artefacts of a study; `version` is that of the program that makes the report.
    pub(super) fn open(found: Found, version: &str) -> Result<Self> {
        let store = Store::new(found.folder.parent().unwrap_or(&found.folder));
        let plan = Plan::new(found.experiment());
        let mut manifests = BTreeMap::new();
        for (index, node) in plan.nodes.iter().enumerate() {
            if node.stage == Stage::Report {
                continue;
            }
            let artefact = run::folder(&store, node);
            let manifest = store.manifest(&artefact)?.ok_or_else(|| {
                Failure::data(format!(
                    "{}: its stage {node} is not in {}; run the study again, which repeats only what is missing",
                    found.folder.display(),
                    artefact.display()
                ))
            })?;
            manifests.insert(index, manifest);
        }
        let node = |stage| {
            let index = plan.of(stage).next();
            Ok::<_, anyhow::Error>(&plan.nodes[index.context("a plan has this stage")?])
        };
        let teller = Teller::default();
        let context = Context {
            experiment: found.experiment(),
            plan: &plan,
            node: node(Stage::Report)?,
            folder: &found.folder,
            store: &store,
            ranks: &teller.ranks,
            events: &teller.events,
        };
        let estimate = run::folder(&store, node(Stage::Estimate)?);
        let inputs = report::inputs(&context, &manifests, &estimate, version)?;
        Ok(Self {
            inputs,
            manifests: manifests.into_values().collect(),
            found,
        })
    }

    pub(super) fn experiment(&self) -> &Experiment {
        self.found.experiment()
    }

    /// Its artefacts with their manifests.
    pub(crate) fn artefacts(&self) -> impl Iterator<Item = (&Artefact, &Manifest)> {
        self.inputs.artefacts.iter().zip(&self.manifests)
    }

    /// The key of its tables of rates.
    pub(super) fn estimate(&self) -> Result<&str> {
        let name = Stage::Estimate.name();
        let mut artefacts = self.inputs.artefacts.iter();
        let found = artefacts.find(|artefact| artefact.stage == name);
        Ok(&found.context("a study has estimates")?.key)
    }

    /// The files that a report is made from, with what their manifests say of them.
    ///
    /// # Errors
    /// A file that its manifest does not have (exit code 3).
    pub(crate) fn files(&self) -> Result<Vec<(&Path, &FileRecord)>> {
        let by_folder: HashMap<&Path, &Manifest> = self
            .artefacts()
            .map(|(artefact, manifest)| (artefact.dir.as_path(), manifest))
            .collect();
        let recorded = |path: &&Path| {
            let manifest = by_folder.get(path.parent()?)?;
            manifest.files.get(path.file_name()?.to_str()?)
        };
        let tables = self.inputs.files().into_iter();
        tables
            .map(|path| {
                let record = recorded(&path).ok_or_else(|| {
                    Failure::data(format!(
                        "{} is not in the manifest beside it; run the study again with this version of axmem",
                        path.display()
                    ))
                })?;
                Ok((path, record))
            })
            .collect()
    }

    /// Reads the files that a report is made from and compares their hashes.
    ///
    /// # Errors
    /// A file that is missing or has another content (exit code 3).
    pub(super) fn check(&self) -> Result<()> {
        let files = self.files()?;
        let mut files = files.into_iter();
        files.try_for_each(|(path, record)| store::check(path, record))
    }

    /// All its scores.
    pub(super) fn scores(&self) -> Result<Vec<ScoreRow>> {
        rows(&self.inputs.scores)
    }

    /// What is known of its models, as its estimates say it.
    pub(super) fn models(&self) -> Result<Vec<ModelInfo>> {
        let estimates: Vec<Estimate> = table::read(&self.inputs.estimates)?;
        let models = self.experiment().models.iter();
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
}
