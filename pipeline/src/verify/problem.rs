//! What is wrong, told as it is found.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::compare::Change;
use super::shown;
use crate::events::Events;

/// The problems of one verification.
pub(super) struct Problems<'a> {
    pub(super) events: &'a Events,
    count: usize,
    /// Files that a problem is about.
    damaged: BTreeSet<PathBuf>,
    /// Why two versions of the program may differ, if two were at work.
    versions: Option<String>,
}

impl<'a> Problems<'a> {
    pub(super) fn new(events: &'a Events) -> Self {
        Self {
            events,
            count: 0,
            damaged: BTreeSet::new(),
            versions: None,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether a problem of this file was told.
    pub(super) fn is_damaged(&self, path: &Path) -> bool {
        self.damaged.contains(path)
    }

    /// The files that a problem is about.
    pub(super) fn damaged(&self) -> impl Iterator<Item = &Path> {
        self.damaged.iter().map(PathBuf::as_path)
    }

    /// A file with something wrong; `what` goes on after its name.
    pub(super) fn tell(&mut self, file: &Path, what: &str) {
        self.count += 1;
        self.damaged.insert(file.to_path_buf());
        let file = shown(file);
        let fields = json!({ "file": file, "problem": what });
        let sentence = format!("{} {what}", file.display());
        self.events.tell("problem", fields, &sentence);
    }

    /// A place in a file whose value is not the one that the records give.
    pub(super) fn tell_change(&mut self, file: &Path, change: &Change) {
        self.count += 1;
        self.damaged.insert(file.to_path_buf());
        let file = shown(file);
        let fields = json!({
            "file": file, "place": change.place, "found": change.found, "expected": change.expected,
            "problem": change.sentence(),
        });
        let sentence = format!("{}: {}", file.display(), change.sentence());
        self.events.tell("problem", fields, &sentence);
    }

    pub(super) fn tell_changes(&mut self, file: &Path, changes: &[Change]) {
        for change in changes {
            self.tell_change(file, change);
        }
    }

    /// What could not be looked at, which is no problem.
    pub(super) fn note(&self, sentence: &str) {
        self.events
            .tell("note", json!({ "note": sentence }), sentence);
    }

    /// Says once that the results were made by another version of the program, if they were.
    pub(super) fn made_by(&mut self, program: &str) {
        let own = env!("AXMEM_VERSION");
        if program == own {
            return;
        }
        self.note(&format!(
            "made by axmem {program}, and this is axmem {own}: hashes are the same in every version, but a number that \
             is computed again, and a sentence of the report, may differ between versions"
        ));
        self.versions = Some(format!(
            ". The results were made by axmem {program} and this is axmem {own}, which may be why what was made again \
             differs: axmem {program} can tell"
        ));
    }

    /// The end of the last sentence.
    pub(super) fn hint(&self) -> &str {
        self.versions.as_deref().unwrap_or_default()
    }
}
