//! Files against their recorded hashes, many at once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use axmem_datasets::files;
use rayon::prelude::*;

use super::compare::Change;
use super::problem::Problems;

/// Progress is told in these.
const MB: u64 = 1_000_000;

/// A file and what was recorded of it.
pub(super) struct Recorded {
    pub(super) path: PathBuf,
    /// Its size, where it was recorded.
    pub(super) bytes: Option<u64>,
    pub(super) sha256: String,
}

/// What is wrong with a file.
enum Wrong {
    Nothing,
    Is(String),
    Has(Change),
}

/// Reads every file, the largest first, and tells of those that are not as recorded; the number of bytes that were read.
pub(super) fn check(mut recorded: Vec<Recorded>, problems: &mut Problems<'_>) -> u64 {
    let size = |file: &Recorded| files::size(&file.path).unwrap_or(0);
    recorded.sort_by_cached_key(|file| (std::cmp::Reverse(size(file)), file.path.clone()));
    let total: u64 = recorded.iter().map(size).sum();
    let events = problems.events;
    events.start("hash files", "MB", total / MB, 0);
    let done = AtomicU64::new(0);
    let progress = |count: usize| {
        let before = done.fetch_add(count as u64, Ordering::Relaxed);
        let now = (before + count as u64) / MB;
        if now > before / MB {
            events.progress(now, "");
        }
    };
    let wrong: Vec<Wrong> = recorded
        .par_iter()
        .with_max_len(1)
        .map(|file| look(file, &progress))
        .collect();
    events.end();
    for (file, wrong) in recorded.iter().zip(wrong) {
        match wrong {
            Wrong::Nothing => {}
            Wrong::Is(what) => problems.tell(&file.path, &what),
            Wrong::Has(change) => problems.tell_change(&file.path, &change),
        }
    }
    done.into_inner()
}

fn look(file: &Recorded, progress: &(impl Fn(usize) + Sync)) -> Wrong {
    if !file.path.exists() {
        return Wrong::Is("is missing".to_owned());
    }
    let hash = match files::sha256_file_with(&file.path, progress) {
        Ok(hash) => hash,
        Err(error) => return Wrong::Is(format!("can't be read ({error})")),
    };
    if hash == file.sha256 {
        return Wrong::Nothing;
    }
    let bytes = files::size(&file.path).unwrap_or(0);
    Wrong::Has(match file.bytes {
        Some(recorded) if recorded != bytes => Change::recorded("size in bytes", bytes, recorded),
        _ => Change::recorded("SHA-256 of the content", hash, &file.sha256),
    })
}
