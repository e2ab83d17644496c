//! Parquet files of a data set repository on the Hugging Face hub.
//!
//! The usual cache of the hub's own tools is used and honoured: what `huggingface-cli download`
//! or Python's `datasets` put there is found without the network. A token, if any, is read by the
//! client from its usual place and appears in no message.

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use super::{Source, SourceFile, SourceOptions, is_plain_name, stays_inside};
use crate::error::{Error, Result};
use crate::files;

pub(super) fn fetch(
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

    let cache = Cache::from_env();
    let repo = Repo::with_revision(
        repository.to_owned(),
        RepoType::Dataset,
        revision.to_owned(),
    );
    let snapshot = cache.repo(repo.clone()).pointer_path(revision);
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
        None => download(repo, config)
            .map_err(|problem| unreachable(source, revision, config, &problem))?,
    };
    paths
        .into_iter()
        .map(|(path, name)| SourceFile::describe(path, format!("{source}@{revision}/{name}")))
        .collect()
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

fn download(
    repo: Repo,
    config: Option<&str>,
) -> std::result::Result<Vec<(PathBuf, String)>, String> {
    let api = ApiBuilder::from_env()
        .with_retries(3)
        .with_progress(false)
        .build()
        .and_then(|api| {
            let repo: ApiRepo = api.repo(repo);
            repo.info().map(|info| (repo, info))
        });
    let (repo, info) = api.map_err(|error| plain(&error))?;
    let mut names: Vec<String> = info
        .siblings
        .into_iter()
        .map(|file| file.rfilename)
        .filter(|name| is_wanted(name, config))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err("the repository has no Parquet file there".to_owned());
    }
    names
        .into_iter()
        .map(|name| {
            let path = repo.get(&name).map_err(|error| plain(&error))?;
            Ok((path, name))
        })
        .collect()
}

/// One line of the client's error.
fn plain(error: &ApiError) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
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
mod tests {
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
