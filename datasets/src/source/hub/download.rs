//! One file of a repository, from the hub into the cache.
//!
//! The content comes into `blobs/ETAG.part` (the name that hf-hub uses), which a later try or a
//! later run goes on with; it becomes `blobs/ETAG` when it is complete and has the right hash, and
//! the snapshot's name leads to it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use ureq::http::StatusCode;

use super::super::model::Progress;
use super::client::{Hub, Remote, Repository};
use super::refusal::{Failure, Unfinished};
use crate::error::{Error, Result};
use crate::files;

/// Brings one file of a repository whose revision is a commit; a file that is there is kept.
pub(super) fn bring(
    hub: &Hub,
    repository: Repository<'_>,
    file: &str,
    progress: &Progress<'_>,
) -> std::result::Result<PathBuf, Failure> {
    let folder = hub.folder(repository);
    let path = snapshot(&folder, repository.revision).join(file);
    if path.is_file() {
        return Ok(path);
    }
    let remote = hub.look(repository, file)?;
    let blobs = folder.join("blobs");
    files::create_dir_all(&blobs)?;
    let blob = blobs.join(&remote.etag);
    {
        let _lock = files::lock(&blobs.join(format!("{}.lock", remote.etag)))?;
        let there = blob.is_file()
            && remote
                .size
                .is_none_or(|size| files::size(&blob).is_ok_and(|found| found == size));
        if !there {
            load(hub, repository, file, &remote, &blob, progress)?;
        }
    }
    let parent = path.parent().unwrap_or(&folder);
    files::create_dir_all(parent)?;
    // From the file's folder up to the repository's, then down to the content.
    let depth = 2 + Path::new(file).components().count() - 1;
    let mut target: PathBuf = std::iter::repeat_n("..", depth).collect();
    target.push("blobs");
    target.push(&remote.etag);
    files::link(&target, &path)?;
    Ok(path)
}

/// The folder of one commit's files.
pub(super) fn snapshot(folder: &Path, commit: &str) -> PathBuf {
    folder.join("snapshots").join(commit)
}

fn load(
    hub: &Hub,
    repository: Repository<'_>,
    file: &str,
    remote: &Remote,
    blob: &Path,
    progress: &Progress<'_>,
) -> std::result::Result<(), Failure> {
    let mut part = Part::open(blob.with_extension("part"))?;
    hub.persist(|| attempt(hub, repository, file, remote, &mut part, progress))?;
    let found = files::hexadecimal(&part.hasher.clone().finalize());
    if let Some(expected) = remote.sha256().filter(|&expected| expected != found) {
        files::remove_file(&part.path)?;
        return Err(Failure::Here(Error::Hash {
            file: format!("{file} of {} at {}", repository.name, repository.revision),
            expected: expected.to_owned(),
            found,
        }));
    }
    part.file
        .sync_all()
        .map_err(Error::write("write", &part.path))?;
    files::rename(&part.path, blob)?;
    Ok(())
}

/// One try to complete the part.
fn attempt(
    hub: &Hub,
    repository: Repository<'_>,
    file: &str,
    remote: &Remote,
    part: &mut Part,
    progress: &Progress<'_>,
) -> std::result::Result<(), Unfinished> {
    if remote.size.is_some_and(|size| part.length > size) {
        part.restart()?;
    }
    if remote.size == Some(part.length) {
        return Ok(());
    }
    let start = part.length;
    let answer = hub.open(repository, file, start)?;
    let goes_on = answer.status() == StatusCode::PARTIAL_CONTENT
        && answer
            .headers()
            .get("content-range")
            .and_then(|range| range.to_str().ok())
            .is_some_and(|range| range.starts_with(&format!("bytes {start}-")));
    if start > 0 && !goes_on {
        part.restart()?;
    }
    if !answer.status().is_success() {
        // A part that the hub cannot continue: the next try begins anew.
        return Err(Unfinished::Again {
            wait: None,
            progress: false,
            failure: Failure::Refused(format!(
                "{file} cannot be continued at byte {start} (status {})",
                answer.status().as_u16()
            )),
        });
    }
    let begun = part.length;
    let mut body = answer.into_body().into_reader();
    let mut buffer = vec![0; 1 << 18];
    loop {
        progress(file, part.length, remote.size);
        let count = body.read(&mut buffer).map_err(|error| {
            hub.lost(
                &ureq::Error::Io(error),
                &format!("the content of {file} after byte {}", part.length),
                part.length > begun,
            )
        })?;
        if count == 0 {
            break;
        }
        if remote
            .size
            .is_some_and(|size| part.length + count as u64 > size)
        {
            return Err(Unfinished::Stop(Failure::Refused(format!(
                "the hub sends more of {file} than the {} bytes that it names",
                remote.size.unwrap_or_default()
            ))));
        }
        part.push(&buffer[..count])?;
    }
    match remote.size {
        Some(size) if part.length != size => Err(Unfinished::Again {
            wait: None,
            progress: part.length > begun && part.length < size,
            failure: Failure::Unreachable(format!(
                "{file} has {size} bytes, but {} arrived; run again: what has arrived is kept",
                part.length
            )),
        }),
        _ => Ok(()),
    }
}

/// The part of a content that has arrived, with its hash so far.
struct Part {
    file: File,
    path: PathBuf,
    hasher: Sha256,
    length: u64,
}

impl Part {
    fn open(path: PathBuf) -> Result<Self> {
        let mut part = Self {
            file: files::open_to_append(&path)?,
            path,
            hasher: Sha256::new(),
            length: 0,
        };
        let mut buffer = vec![0; 1 << 18];
        loop {
            let count = part
                .file
                .read(&mut buffer)
                .map_err(Error::read("read", &part.path))?;
            if count == 0 {
                return Ok(part);
            }
            part.hasher.update(&buffer[..count]);
            part.length += count as u64;
        }
    }

    fn restart(&mut self) -> Result<()> {
        self.file
            .set_len(0)
            .map_err(Error::write("write", &self.path))?;
        self.hasher = Sha256::new();
        self.length = 0;
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(Error::write("write", &self.path))?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }
}
