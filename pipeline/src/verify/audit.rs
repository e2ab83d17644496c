//! An audit: all its files, and everything in its summary and its page that its scores decide.

use std::path::Path;

use anyhow::Result;
use axmem_datasets::files;

use super::compare::{self, Change};
use super::hashes::{self, Recorded};
use super::problem::Problems;
use super::records;
use super::{Looked, SUMMARY, bytes_of};
use crate::audit::{Again, Manifest};
use crate::store::MANIFEST;

/// The records that everything is computed from.
const SCORES: &str = "scores.parquet";

/// Verifies the audit in `folder`.
pub(super) fn verify(folder: &Path, problems: &mut Problems<'_>) -> Result<Looked> {
    let path = folder.join(MANIFEST);
    let manifest = match Manifest::read(folder) {
        Ok(Some(manifest)) => Some(manifest),
        Ok(None) => {
            problems.tell(&path, "is missing, so the audit is not finished");
            None
        }
        Err(error) => {
            problems.tell(&path, &format!("is damaged ({error})"));
            None
        }
    };
    let mut looked = Looked {
        files: 0,
        bytes: 0,
        again: "nothing computed again",
    };
    if let Some(manifest) = &manifest {
        problems.made_by(&manifest.program);
        let recorded: Vec<Recorded> = manifest
            .files
            .iter()
            .map(|(name, sha256)| Recorded {
                path: folder.join(name),
                bytes: None,
                sha256: sha256.clone(),
            })
            .collect();
        unrecorded(folder, manifest, problems)?;
        looked.files = recorded.len();
        looked.bytes = hashes::check(recorded, problems);
    }
    if problems.is_damaged(&folder.join(SCORES)) {
        problems.note("nothing is computed again, since the scores are damaged");
        return Ok(looked);
    }
    let again = match Again::of(folder) {
        Ok(again) => again,
        Err(error) => {
            problems.tell(folder, &format!("can't be computed again: {error:#}"));
            return Ok(looked);
        }
    };
    records::contradictions(&folder.join(SCORES), &again.scores, problems);
    looked.again = "all rates, intervals and tests, the figures and the page (but for the texts in it) made again";
    if let Some(manifest) = &manifest {
        let mut field = |name: &str, found: String, expected: String| {
            if found != expected {
                problems.tell_change(&path, &Change::recorded(name, found, expected));
            }
        };
        field("program", manifest.program.clone(), again.program.clone());
        field(
            "seconds",
            manifest.seconds.to_string(),
            again.seconds.to_string(),
        );
        let sentence =
            |exceeded: &Option<String>| exceeded.clone().unwrap_or_else(|| "null".to_owned());
        field(
            "exceeded",
            sentence(&manifest.exceeded),
            sentence(&again.exceeded),
        );
    }
    let path = folder.join(SUMMARY);
    if let Some(bytes) = bytes_of(&path, problems) {
        problems.tell_changes(
            &path,
            &compare::file(SUMMARY, &bytes, again.summary.as_bytes()),
        );
    }
    for (name, _) in &again.report {
        let path = folder.join(name);
        // One that is on record and missing was told with the hashes.
        if problems.is_damaged(&path) && !path.exists() {
            continue;
        }
        if let Some(bytes) = bytes_of(&path, problems) {
            let expected = again.expected(name, &String::from_utf8_lossy(&bytes));
            let expected = expected.unwrap_or_default();
            problems.tell_changes(&path, &compare::file(name, &bytes, expected.as_bytes()));
        }
    }
    Ok(looked)
}

/// Says which files of the folder are no part of the audit.
fn unrecorded(folder: &Path, manifest: &Manifest, problems: &mut Problems<'_>) -> Result<()> {
    let wanted = [SCORES, SUMMARY, "report.html"];
    for name in wanted
        .into_iter()
        .filter(|name| !manifest.files.contains_key(*name))
    {
        problems.tell(&folder.join(MANIFEST), &format!("has no hash of {name}"));
    }
    for path in files::list(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name != MANIFEST && path.is_file() && !manifest.files.contains_key(&*name) {
            problems.note(&format!(
                "{name} is no part of the audit, and was not looked at"
            ));
        }
    }
    Ok(())
}
