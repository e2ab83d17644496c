//! The files of a model repository that are needed, and no others.

use std::collections::BTreeSet;
use std::path::Path;

use hf_hub::RepoType;
use serde_json::Value;

use super::super::model::{INDEX, ModelFiles, ModelOptions, Progress, SETTINGS, WEIGHTS, is_gguf};
use super::client::{Hub, Repository, is_sha256};
use super::download::{self, bring};
use super::refusal::Failure;
use super::{cached_commit, is_plain_name, remember_commit, stays_inside};
use crate::error::{Error, Result};
use crate::files;

/// The folder in which the hub's own tools note which files a commit does not have.
const ABSENT: &str = ".no_exist";

/// Brings a model repository at a revision into the hub's usual cache: configuration, tokenizer
/// and safetensors weights, or the one GGUF `file`. A complete model in the cache is used without
/// the network, unless the revision is a branch or tag, which is looked up again.
///
/// Fails with [`Error::Fetch`] when the hub gives no file, and with [`Error::Hash`] when a content
/// is not the one the hub promises.
pub fn fetch_model(
    repository: &str,
    revision: &str,
    file: Option<&str>,
    options: &ModelOptions<'_>,
) -> Result<ModelFiles> {
    fetch_model_from(&Hub::from_env(), repository, revision, file, options)
}

pub(super) fn fetch_model_from(
    hub: &Hub,
    repository: &str,
    revision: &str,
    file: Option<&str>,
    options: &ModelOptions<'_>,
) -> Result<ModelFiles> {
    let named = format!("hf:{repository}@{revision}");
    let well_named = repository.split('/').count() == 2
        && repository.split('/').all(|part| is_plain_name(part, "._-"))
        && is_plain_name(revision, "._-")
        && file.is_none_or(stays_inside);
    if !well_named {
        return Err(Error::usage(format!(
            "{named} is not a model of the hub; write hf:ORGANISATION/NAME@REVISION"
        )));
    }
    let repository = Repository {
        kind: RepoType::Model,
        name: repository,
        revision,
    };
    let folder = hub.folder(repository);
    let commit = cached_commit(&folder, revision);
    let cached = Cached::find(&folder, &commit, file)?;
    let is_commit = commit == revision;
    match cached {
        Some(cached) if options.offline || (is_commit && cached.nothing_missing) => {
            return describe(&folder, repository.at(&commit), cached.names, file, options);
        }
        None if options.offline => {
            return Err(Error::Fetch {
                source_name: named,
                message: not_here(repository, file, "the network is not to be used"),
            });
        }
        _ => {}
    }
    let fetched = fetch_files(hub, repository, file, options);
    match (fetched, cached) {
        (Ok((commit, names)), _) => describe(&folder, repository.at(&commit), names, file, options),
        (Err(Failure::Unreachable(problem)), Some(cached)) => {
            let mut model = describe(&folder, repository.at(&commit), cached.names, file, options)?;
            model.notes.push(format!(
                "the hub was not reached, so {named} is what the cache holds of commit {commit}: \
                 {problem}"
            ));
            Ok(model)
        }
        (Err(Failure::Unreachable(problem)), None) => Err(Error::Fetch {
            source_name: named,
            message: not_here(repository, file, &problem),
        }),
        (Err(failure), _) => Err(failure.of(&named)),
    }
}

fn not_here(repository: Repository<'_>, file: Option<&str>, problem: &str) -> String {
    let (name, revision) = (repository.name, repository.revision);
    let include = file.map_or(
        "--include \"*.json\" \"*.safetensors\"".to_owned(),
        |file| format!("\"{file}\""),
    );
    format!(
        "{problem}; or on a machine that reaches the hub run `huggingface-cli download {name} \
         --revision {revision} {include}`, copy its cache here and set HF_HOME to that folder"
    )
}

fn describe(
    folder: &Path,
    repository: Repository<'_>,
    names: Vec<String>,
    file: Option<&str>,
    options: &ModelOptions<'_>,
) -> Result<ModelFiles> {
    let commit = repository.revision;
    let snapshot = download::snapshot(folder, commit);
    let (path, label) = match file {
        Some(file) => (
            snapshot.join(file),
            format!("hf:{}@{commit}/{file}", repository.name),
        ),
        None => (snapshot.clone(), format!("hf:{}@{commit}", repository.name)),
    };
    let mut model = ModelFiles::describe(path, &snapshot, names, label, options)?;
    model.revision = Some(commit.to_owned());
    Ok(model)
}

/// The usable model that the cache holds of a commit.
struct Cached {
    names: Vec<String>,
    /// Whether all other files are known not to exist, so that the hub has no more to give.
    nothing_missing: bool,
}

impl Cached {
    fn find(folder: &Path, commit: &str, file: Option<&str>) -> Result<Option<Self>> {
        let snapshot = download::snapshot(folder, commit);
        let has = |name: &str| snapshot.join(name).is_file();
        if let Some(file) = file {
            return Ok(has(file).then(|| Self {
                names: vec![file.to_owned()],
                nothing_missing: true,
            }));
        }
        let mut names = Vec::new();
        if has(WEIGHTS) {
            names.push(WEIGHTS.to_owned());
        } else if has(INDEX) {
            names.push(INDEX.to_owned());
            names.extend(shards_of_index(&snapshot.join(INDEX))?);
        }
        if names.is_empty() || !has("config.json") || !names.iter().all(|name| has(name)) {
            return Ok(None);
        }
        let absent = folder.join(ABSENT).join(commit);
        let mut nothing_missing = true;
        for name in SETTINGS {
            if has(name) {
                names.push(name.to_owned());
            } else {
                nothing_missing &= absent.join(name).is_file();
            }
        }
        Ok(Some(Self {
            names,
            nothing_missing,
        }))
    }
}

/// Brings what is needed; gives the commit and the names.
fn fetch_files(
    hub: &Hub,
    repository: Repository<'_>,
    file: Option<&str>,
    options: &ModelOptions<'_>,
) -> std::result::Result<(String, Vec<String>), Failure> {
    let listing = hub.list(repository)?;
    let all = listing.names();
    let has = |name: &str| all.iter().any(|found| found == name);
    let page = hub.page(repository);
    let ggufs = || {
        let found: Vec<_> = all.iter().filter(|name| is_gguf(name)).collect();
        let some: Vec<_> = found.iter().take(3).map(|name| name.as_str()).collect();
        (!some.is_empty()).then(|| some.join(", "))
    };

    let folder = hub.folder(repository);
    let commit = listing.commit;
    let at = repository.at(&commit);
    let quiet = |_: &str, _: u64, _: Option<u64>| {};
    let progress: &Progress<'_> = options.progress.unwrap_or(&quiet);
    if let Some(file) = file {
        if !has(file) {
            let others = ggufs().map_or(String::new(), |names| format!("; it has {names}"));
            return Err(Failure::Refused(format!(
                "the repository has no file {file} at {commit}{others}; see {page}/tree/{commit}"
            )));
        }
        bring(hub, at, file, progress)?;
        remember_commit(&folder, repository.revision, &commit)?;
        return Ok((commit, vec![file.to_owned()]));
    }

    let weights = [WEIGHTS, INDEX].into_iter().find(|name| has(name));
    let (Some(weights), true) = (weights, has("config.json")) else {
        let missing = if has("config.json") {
            "no safetensors weights (model.safetensors, or its index)"
        } else {
            "no config.json"
        };
        let remedy = match ggufs() {
            Some(names) => format!("name one of its GGUF files, such as {names}, after the name"),
            None => "take a repository in the format of Transformers, or convert this one there \
                     with save_pretrained"
                .to_owned(),
        };
        return Err(Failure::Refused(format!(
            "the repository has {missing} at {commit}; {remedy}; see {page}/tree/{commit}"
        )));
    };

    // Small files first, so that what refuses a model is told before the weights are fetched.
    let mut names = Vec::new();
    for name in SETTINGS {
        if has(name) {
            bring(hub, at, name, progress)?;
            names.push(name.to_owned());
        } else {
            let absent = folder.join(ABSENT).join(&commit);
            files::create_dir_all(&absent)?;
            files::write_atomic(absent.join(name), b"")?;
        }
    }
    let path = if weights == INDEX {
        let path = bring(hub, at, INDEX, progress)?;
        names.push(INDEX.to_owned());
        Some(path)
    } else {
        None
    };
    let shards = match &path {
        Some(path) => shards_of_index(path)?,
        None => vec![WEIGHTS.to_owned()],
    };
    if let Some(missing) = shards.iter().find(|name| !has(name)) {
        return Err(Failure::Refused(format!(
            "{INDEX} names {missing}, which the repository does not have at {commit}; see \
             {page}/tree/{commit}"
        )));
    }
    for name in &shards {
        bring(hub, at, name, progress)?;
    }
    names.extend(shards);
    remember_commit(&folder, repository.revision, &commit)?;
    Ok((commit, names))
}

/// The files that an index of weights names, each once. A name that leaves the folder is an error.
pub(in crate::source) fn shards_of_index(path: &Path) -> Result<Vec<String>> {
    let text = files::read(path)?;
    let index: Value = serde_json::from_slice(&text)
        .map_err(|error| Error::input(path, "", format!("is not JSON: {error}")))?;
    let map = index
        .get("weight_map")
        .and_then(Value::as_object)
        .filter(|map| !map.is_empty())
        .ok_or_else(|| {
            Error::input(
                path,
                "",
                "has no \"weight_map\" from tensors to files; fetch the file again",
            )
        })?;
    let mut shards = BTreeSet::new();
    for (tensor, shard) in map {
        let shard = shard
            .as_str()
            .filter(|name| stays_inside(name) && name.ends_with(".safetensors"))
            .ok_or_else(|| {
                Error::input(
                    path,
                    format!("tensor {tensor}"),
                    format!(
                        "is said to lie in {shard}, which is no .safetensors file inside the \
                         model's folder; do not use this model"
                    ),
                )
            })?;
        shards.insert(shard.to_owned());
    }
    Ok(shards.into_iter().collect())
}

/// The SHA-256 under which the cache of the hub keeps the content that a path leads to.
pub(in crate::source) fn promised_hash(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    let name = target.file_name()?.to_str()?;
    is_sha256(name).then(|| name.to_owned())
}
