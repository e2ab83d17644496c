//! `joined.json` beside a joined report: the studies it is made from, and the hashes of its files.
//!
//! With it the report can be made again from the same studies, and a study that was run again since can be told.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use serde::{Deserialize, Serialize};

use super::study::{Study, resolved};
use crate::exit::Failure;
use crate::report;

/// The name of the file.
pub(crate) const JOINED: &str = "joined.json";

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Joined {
    /// Version of the program that made the report.
    pub(crate) program: String,
    /// The studies, in the order in which they were named.
    pub(crate) studies: Vec<Source>,
    /// SHA-256 of each file of the report.
    pub(crate) files: BTreeMap<String, String>,
}

/// A study of a joined report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Its name.
    pub(crate) name: String,
    /// The folder of its report, from that of the joined one.
    pub(crate) folder: PathBuf,
    /// SHA-256 of its record, which has the hashes of all its manifests.
    pub(crate) record: String,
    /// Key of its tables of rates.
    pub(crate) estimate: String,
}

impl Joined {
    /// The record of a report in `folder`, which exists.
    pub(crate) fn new(
        folder: &Path,
        program: &str,
        studies: &[Study],
        files: &[report::File],
    ) -> Result<Self> {
        let folder = resolved(folder)?;
        let source = |study: &Study| {
            Ok(Source {
                name: study.experiment().name.clone(),
                folder: relative(&folder, &study.found.folder),
                record: study.found.sha256.clone(),
                estimate: study.estimate()?.to_owned(),
            })
        };
        Ok(Self {
            program: program.to_owned(),
            studies: studies.iter().map(source).collect::<Result<_>>()?,
            files: files
                .iter()
                .map(|file| (file.name.clone(), files::sha256(&file.bytes)))
                .collect(),
        })
    }

    /// The file's content.
    pub(crate) fn text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).context("the record of a joined report")?;
        Ok(text + "\n")
    }

    /// Reads the file in a folder.
    ///
    /// # Errors
    /// A file that is missing or can't be read (exit code 3).
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(JOINED);
        serde_json::from_str(&files::read_to_string(&path)?)
            .map_err(|error| Failure::data(format!("{} can't be read: {error}", path.display())))
    }

    /// The folders of the studies, of a report in `folder`.
    pub(crate) fn folders(&self, folder: &Path) -> Vec<PathBuf> {
        let studies = self.studies.iter();
        studies.map(|study| folder.join(&study.folder)).collect()
    }
}

/// The way from one folder to another, so that both can be moved together.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let pairs = from.components().zip(to.components());
    let shared = pairs.take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_between_folders_goes_up_to_what_they_share() {
        let cases = [
            ("/a/runs/joined", "/a/runs/one", "../one"),
            ("/a/joined", "/a/runs/one", "../runs/one"),
            ("/b/out/joined", "/a/one", "../../../a/one"),
            ("/a", "/a/one", "one"),
        ];
        for (from, to, way) in cases {
            assert_eq!(relative(Path::new(from), Path::new(to)), Path::new(way));
        }
    }
}
