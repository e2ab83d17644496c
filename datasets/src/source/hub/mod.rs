//! Data sets and models of the Hugging Face hub.
//!
//! The usual cache of the hub's own tools is used and honoured: what `huggingface-cli download`
//! or Python's `datasets` put there is found without the network. A token, if any, is read from
//! its usual place and appears in no message.

mod client;
mod download;
mod model;
mod refusal;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use hf_hub::RepoType;

use self::client::{Hub, Repository};
use self::refusal::Failure;
use super::{Source, SourceFile, SourceOptions, is_plain_name, stays_inside};
use crate::error::{Error, Result};
use crate::files;

pub use self::model::fetch_model;
pub(super) use self::model::{promised_hash, shards_of_index};

/// The Parquet files of a data set.
pub(super) fn fetch(
    source: &Source,
    repository: &str,
    options: &SourceOptions,
) -> Result<Vec<SourceFile>> {
    fetch_from(&Hub::from_env(), source, repository, options)
}

fn fetch_from(
    hub: &Hub,
    source: &Source,
    repository: &str,
    options: &SourceOptions,
) -> Result<Vec<SourceFile>> {
    let revision = options
        .revision
        .as_deref()
        .filter(|revision| is_plain_name(revision, "._-"))
        .ok_or_else(|| {
            Error::usage(format!(
                "{source} needs a pinned revision: give the commit under revision, as the hub \
                 shows it under \"Files and versions\""
            ))
        })?;
    let config = options.config.as_deref();
    if let Some(config) = config.filter(|config| !stays_inside(config)) {
        return Err(Error::usage(format!(
            "{source}: config {config:?} is not a folder of the repository"
        )));
    }

    let repository = Repository {
        kind: RepoType::Dataset,
        name: repository,
        revision,
    };
    let commit = cached_commit(&hub.folder(repository), revision);
    let snapshot = download::snapshot(&hub.folder(repository), &commit);
    let cached = complete_shards(&snapshot, config)?;
    let paths = match cached {
        Some(names) => names
            .into_iter()
            .map(|name| (snapshot.join(&name), name))
            .collect(),
        None if options.offline => {
            return Err(unreachable(
                source,
                revision,
                config,
                "the network is not to be used",
            ));
        }
        None => shards_from(hub, repository, config).map_err(|failure| match failure {
            Failure::Unreachable(problem) | Failure::Refused(problem) => {
                unreachable(source, revision, config, &problem)
            }
            Failure::Here(error) => error,
        })?,
    };
    paths
        .into_iter()
        .map(|(path, name)| SourceFile::describe(path, format!("{source}@{revision}/{name}")))
        .collect()
}

/// The commit that a revision meant when it was last fetched; the revision itself if it is one.
fn cached_commit(folder: &Path, revision: &str) -> String {
    let reference = folder.join("refs").join(revision);
    match files::read_to_string(reference) {
        Ok(commit) if is_plain_name(commit.trim(), "") => commit.trim().to_owned(),
        _ => revision.to_owned(),
    }
}

/// Writes down which commit a branch or tag means, as the hub's own tools do.
fn remember_commit(folder: &Path, revision: &str, commit: &str) -> Result<()> {
    if revision == commit {
        return Ok(());
    }
    let references = folder.join("refs");
    files::create_dir_all(&references)?;
    files::write_atomic(references.join(revision), commit.as_bytes())
}

fn is_wanted(name: &str, config: Option<&str>) -> bool {
    let inside = config.is_none_or(|config| {
        name.strip_prefix(config)
            .is_some_and(|rest| rest.starts_with('/'))
    });
    let is_parquet = Path::new(name)
        .extension()
        .is_some_and(|ending| ending == "parquet");
    inside && is_parquet && stays_inside(name)
}

/// The names of the cached shards, if all that their names (`…-00003-of-00041.parquet`) promise
/// are there.
fn complete_shards(snapshot: &Path, config: Option<&str>) -> Result<Option<Vec<String>>> {
    let folder = config.map_or(snapshot.to_path_buf(), |config| snapshot.join(config));
    if !folder.is_dir() {
        return Ok(None);
    }
    let mut names = Vec::new();
    for path in files::list(&folder)? {
        if let Ok(Some(name)) = path.strip_prefix(snapshot).map(Path::to_str)
            && path.is_file()
            && is_wanted(name, config)
        {
            names.push(name.to_owned());
        }
    }
    let complete = !names.is_empty()
        && names
            .iter()
            .all(|name| shards(name).is_none_or(|count| count == names.len()));
    Ok(complete.then_some(names))
}

/// The number after `-of-` in a shard's name.
fn shards(name: &str) -> Option<usize> {
    let (_, count) = name.strip_suffix(".parquet")?.rsplit_once("-of-")?;
    count.parse().ok()
}

fn shards_from(
    hub: &Hub,
    repository: Repository<'_>,
    config: Option<&str>,
) -> std::result::Result<Vec<(PathBuf, String)>, Failure> {
    let listing = hub.list(repository)?;
    let mut names = listing.names();
    names.retain(|name| is_wanted(name, config));
    if names.is_empty() {
        return Err(Failure::Refused(
            "the repository has no Parquet file there".to_owned(),
        ));
    }
    remember_commit(
        &hub.folder(repository),
        repository.revision,
        &listing.commit,
    )?;
    let repository = repository.at(&listing.commit);
    names
        .into_iter()
        .map(|name| {
            let path = download::bring(hub, repository, &name, &|_, _, _| {})?;
            Ok((path, name))
        })
        .collect()
}

fn unreachable(source: &Source, revision: &str, config: Option<&str>, problem: &str) -> Error {
    let repository = source.to_string();
    let repository = repository.trim_start_matches("hf:");
    let include = config.map_or("*.parquet".to_owned(), |config| {
        format!("{config}/*.parquet")
    });
    Error::Fetch {
        source_name: source.to_string(),
        message: format!(
            "{problem}; needed are the files {include} of data set {repository} at revision \
             {revision}: on a machine that reaches the hub run `huggingface-cli download \
             {repository} --repo-type dataset --revision {revision} --include \"{include}\"`, \
             copy its cache here and set HF_HOME to that folder"
        ),
    }
}

#[cfg(test)]
mod shard_tests {
    use super::*;

    #[test]
    fn only_parquet_files_of_the_config_are_wanted() {
        assert!(is_wanted(
            "20231101.en/train-00000-of-00041.parquet",
            Some("20231101.en")
        ));
        assert!(!is_wanted(
            "20231101.enx/train.parquet",
            Some("20231101.en")
        ));
        assert!(!is_wanted("20231101.en/README.md", Some("20231101.en")));
        assert!(!is_wanted("../escape.parquet", None));
    }

    #[test]
    fn a_cache_with_a_shard_missing_is_not_complete() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("en");
        files::create_dir_all(&config).unwrap();
        files::write_atomic(config.join("train-00000-of-00002.parquet"), b"").unwrap();
        assert_eq!(complete_shards(folder.path(), Some("en")).unwrap(), None);
        files::write_atomic(config.join("train-00001-of-00002.parquet"), b"").unwrap();
        let names = complete_shards(folder.path(), Some("en")).unwrap().unwrap();
        assert_eq!(names.len(), 2);
    }
}
