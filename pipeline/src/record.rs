//! `record.json` beside a report: the resolved experiment, and the hash of the manifest of every artefact that the report
//! rests on.
//!
//! With it a study can be planned again without its experiment file, and a manifest that was edited or made again can be
//! told from the one that the report was made from.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::experiment::Experiment;
use crate::plan::Stage;
use crate::stages::Context;
use crate::store::MANIFEST;

/// The name of the file.
pub const RECORD: &str = "record.json";

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of the program that made the report.
    pub program: String,
    /// The experiment, no defaults left.
    pub experiment: Experiment,
    /// SHA-256 of the manifest of each artefact, by what it is about, such as `train goldfish 0`.
    pub manifests: BTreeMap<String, String>,
}

impl Record {
    /// The record of the report that is being made.
    pub(crate) fn new(context: &Context<'_>) -> Result<Self> {
        let mut manifests = BTreeMap::new();
        for (index, node) in context.plan.nodes.iter().enumerate() {
            if node.stage != Stage::Report {
                let path = context.artefact(index).join(MANIFEST);
                manifests.insert(node.to_string(), files::sha256_file(path)?);
            }
        }
        Ok(Self {
            program: env!("AXMEM_VERSION").to_owned(),
            experiment: context.experiment.clone(),
            manifests,
        })
    }

    /// The file's content.
    pub(crate) fn text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).context("the record of the experiment")?;
        Ok(text + "\n")
    }

    /// Writes the file into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        Ok(files::write_atomic(
            folder.join(RECORD),
            self.text()?.as_bytes(),
        )?)
    }

    /// Reads the file in a folder.
    ///
    /// # Errors
    /// A file that is missing or can't be read (exit code 3).
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RECORD);
        serde_json::from_str(&files::read_to_string(&path)?)
            .map_err(|error| Failure::data(format!("{} can't be read: {error}", path.display())))
    }
}
