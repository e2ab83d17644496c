//! `axmem verify`: whether the results in a folder are what its records give.
//!
//! ```text
//! study:  record.json -> plan -> hashes of all artefacts -> tables computed again -> report written again -> compare
//! joined: joined.json         -> hashes of the tables of its studies -> joined again, report written again -> compare
//! audit:  manifest.json       -> hashes of all files     -> rates computed again  -> page written again   -> compare
//! ```
//!
//! No model runs and nothing is written to the folder or the store. Every problem is told, not only the first.

mod artefacts;
mod audit;
mod compare;
mod hashes;
mod joined;
mod problem;
mod records;
mod study;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use axmem_datasets::files;
use serde_json::{Value, json};

use self::problem::Problems;
use crate::events::Events;
use crate::exit::Failure;
use crate::merge::JOINED;
use crate::record::RECORD;
use crate::report::format::plural;
use crate::store::MANIFEST;

/// The numbers of a study or an audit, for scripts.
const SUMMARY: &str = "summary.json";
/// Files that only the folder of a study has.
const OF_STUDY: [&str; 4] = [RECORD, "report.md", "memorisation.svg", "training.svg"];
/// Files that only the folder of an audit has.
const OF_AUDIT: [&str; 3] = [MANIFEST, "scores.parquet", "matched-prefix.svg"];

/// What a verification looked at, for its last sentence.
struct Looked {
    files: usize,
    bytes: u64,
    /// What was computed again, in words.
    again: &'static str,
}

/// Verifies the folder of a finished study, a joined report, or an audit.
///
/// # Errors
/// Damaged or edited results (exit code 3), after each problem was told; a folder that holds none of these (exit code 2).
pub fn run(folder: &Path, events: &Events) -> Result<()> {
    // With all its parents, also if it is the folder that the command runs in.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let started = Instant::now();
    let mut problems = Problems::new(events);
    let looked = match Kind::of(&folder)? {
        Kind::Study => study::verify(&folder, &mut problems)?,
        Kind::Joined => joined::verify(&folder, &mut problems)?,
        Kind::Audit => audit::verify(&folder, &mut problems)?,
    };
    let seconds = started.elapsed().as_secs_f64();
    let count = problems.count();
    let fields = json!({
        "folder": folder, "problems": count, "files": looked.files, "bytes": looked.bytes,
        "computed_again": looked.again, "seconds": seconds,
    });
    let looked = format!(
        "{} ({:.1} MB) hashed, {}, in {seconds:.1} s",
        plural(looked.files as u64, "file"),
        looked.bytes as f64 / 1e6,
        looked.again
    );
    let verdict = if count == 0 {
        "verified"
    } else {
        "not verified"
    };
    let sentence = format!("{}: {verdict}: {looked}", folder.display());
    events.tell("verified", fields, &sentence);
    if count == 0 {
        return Ok(());
    }
    Err(Failure::data(format!(
        "{} of {}; each is named above{}",
        plural(count as u64, "problem"),
        folder.display(),
        problems.hint()
    )))
}

/// What a folder holds.
enum Kind {
    Study,
    Joined,
    Audit,
}

impl Kind {
    fn of(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            return Err(Failure::usage(format!(
                "there is no folder {}; name the folder of a study's report, such as runs/quickstart, or of an audit",
                folder.display()
            )));
        }
        let has = |names: &[&str]| names.iter().any(|name| folder.join(name).exists());
        let is_artefact = || {
            let manifest = json_of(&folder.join(MANIFEST));
            manifest.is_some_and(|manifest| manifest.get("stage").is_some())
        };
        if has(&[JOINED]) {
            Ok(Self::Joined)
        } else if has(&OF_STUDY) && !folder.join(MANIFEST).exists() {
            Ok(Self::Study)
        } else if has(&OF_AUDIT) && !is_artefact() {
            Ok(Self::Audit)
        } else {
            Err(Failure::usage(format!(
                "{} holds neither the report of a study nor an audit; name the folder of a study's report, such as \
                 runs/quickstart, or the --out folder of a joined report or of an audit",
                folder.display()
            )))
        }
    }
}

/// A JSON file, if it is one.
fn json_of(path: &Path) -> Option<Value> {
    serde_json::from_slice(&files::read(path).ok()?).ok()
}

/// The content of a file, or the problem of reading it.
fn bytes_of(path: &Path, problems: &mut Problems<'_>) -> Option<Vec<u8>> {
    if !path.exists() {
        problems.tell(path, "is missing");
        return None;
    }
    match files::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            problems.tell(path, &format!("can't be read ({error})"));
            None
        }
    }
}

/// The path of a file as it is shown: relative to the folder that the command runs in, if it is below.
fn shown(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let relative = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
    relative.unwrap_or_else(|| path.to_path_buf())
}
