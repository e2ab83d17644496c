//! A joined report: whether it is what its studies give, as they were when it was made.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use axmem_datasets::files;

use super::compare::{self, Change};
use super::hashes::{self, Recorded};
use super::problem::Problems;
use super::{Looked, bytes_of, shown};
use crate::merge::{self, JOINED, Joined, Study};
use crate::record::RECORD;
use crate::report;
use crate::store::MANIFEST;

/// Verifies the joined report in `folder`.
pub(super) fn verify(folder: &Path, problems: &mut Problems<'_>) -> Result<Looked> {
    let mut looked = Looked {
        files: 0,
        bytes: 0,
        again: "nothing made again",
    };
    let path = folder.join(JOINED);
    let record = match Joined::read(folder) {
        Ok(record) => record,
        Err(error) => {
            problems.tell(&path, &format!("can't be used ({error})"));
            return Ok(looked);
        }
    };
    problems.made_by(&record.program);
    let rendered = again(folder, &record, &mut looked, problems)?;
    if rendered.is_some() {
        looked.again = "the joined report and its figures made again from the tables of its studies, which `axmem verify` of \
                        the folder of each looks into";
    }
    published(folder, &record, rendered.as_deref(), problems);
    Ok(looked)
}

/// The files of the report, made again, if its studies are as they were.
fn again(
    folder: &Path,
    record: &Joined,
    looked: &mut Looked,
    problems: &mut Problems<'_>,
) -> Result<Option<Vec<report::File>>> {
    let path = folder.join(JOINED);
    let before = problems.count();
    records(folder, record, problems);
    if problems.count() > before {
        not_again(problems);
        return Ok(None);
    }
    let studies = match merge::open(&record.folders(folder), &record.program) {
        Ok(studies) => studies,
        Err(error) => {
            let what = format!("names studies that can't be joined again: {error:#}");
            problems.tell(&path, &what);
            return Ok(None);
        }
    };
    let mut recorded = Vec::new();
    for study in &studies {
        manifests(study, problems)?;
        match study.files() {
            Ok(files) => recorded.extend(files.into_iter().map(|(path, file)| Recorded {
                path: path.to_path_buf(),
                bytes: Some(file.bytes),
                sha256: file.sha256.clone(),
            })),
            Err(error) => problems.tell(&study.found.folder, &format!("can't be used ({error})")),
        }
    }
    // Studies may share them.
    recorded.sort_by(|a, b| a.path.cmp(&b.path));
    recorded.dedup_by(|a, b| a.path == b.path);
    looked.files = recorded.len();
    looked.bytes = hashes::check(recorded, problems);
    if problems.count() > before {
        not_again(problems);
        return Ok(None);
    }
    let made = merge::render(&studies, &record.program).and_then(|files| {
        let again = Joined::new(folder, &record.program, &studies, &files)?;
        Ok((files, again.text()?))
    });
    match made {
        Ok((files, text)) => {
            if let Some(bytes) = bytes_of(&path, problems) {
                problems.tell_changes(&path, &compare::file(JOINED, &bytes, text.as_bytes()));
            }
            Ok(Some(files))
        }
        Err(error) => {
            let what = format!("names studies that can't be joined again: {error:#}");
            problems.tell(&path, &what);
            Ok(None)
        }
    }
}

/// Says that the hashes on record are all there is to compare with.
fn not_again(problems: &Problems<'_>) {
    if let Some(damaged) = problems.damaged().next() {
        problems.note(&format!(
            "the joined report is not made again, since {} is not as it was; its files are compared with the hashes in {JOINED}",
            shown(damaged).display()
        ));
    }
}

/// Compares the records of the studies with their hashes.
fn records(folder: &Path, record: &Joined, problems: &mut Problems<'_>) {
    for (study, source) in record.folders(folder).into_iter().zip(&record.studies) {
        let path = study.canonicalize().unwrap_or(study).join(RECORD);
        if let Some(bytes) = bytes_of(&path, problems)
            && files::sha256(&bytes) != source.record
        {
            problems.tell(
                &path,
                &format!(
                    "is not the one that {JOINED} has the hash of: one of them was edited, or the study was run again since"
                ),
            );
        }
    }
}

/// Compares the manifests of a study with the hashes in its record.
fn manifests(study: &Study, problems: &mut Problems<'_>) -> Result<()> {
    for (artefact, _) in study.artefacts() {
        let path = artefact.dir.join(MANIFEST);
        // Studies may share it.
        if problems.is_damaged(&path) {
            continue;
        }
        let hash = study.found.record.manifests.get(&artefact.stage);
        if hash != Some(&files::sha256_file(&path)?) {
            problems.tell(
                &path,
                "is not the one that the report of its study was made from: it was edited, or the artefact was made again since",
            );
        }
    }
    Ok(())
}

/// Compares the files of the report with those made again, and where that can't be with the hashes on record.
fn published(
    folder: &Path,
    record: &Joined,
    rendered: Option<&[report::File]>,
    problems: &mut Problems<'_>,
) {
    let of_report = rendered.unwrap_or_default();
    let mut names: BTreeSet<&str> = of_report.iter().map(|file| file.name.as_str()).collect();
    names.extend(record.files.keys().map(String::as_str));
    for name in names {
        let path = folder.join(name);
        let Some(bytes) = bytes_of(&path, problems) else {
            continue;
        };
        if let Some(again) = of_report.iter().find(|file| file.name == name) {
            problems.tell_changes(&path, &compare::file(name, &bytes, &again.bytes));
        } else if let Some(sha256) = record.files.get(name) {
            let found = files::sha256(&bytes);
            if found != *sha256 {
                let place = "SHA-256 of the content";
                problems.tell_change(&path, &Change::recorded(place, found, sha256));
            }
        }
    }
}
