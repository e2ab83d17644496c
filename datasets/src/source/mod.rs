//! Where text comes from: a local path, a model hub, a package index or a seeded grammar.
//!
//! [`fetch`] turns a [`Source`] into files on this machine, each with the hash of its content. It
//! reads no article; that is the readers' part.

mod grammar;
mod hub;
mod local;
mod model;
mod package;

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

pub use hub::fetch_model;
pub use local::readable_files;
pub use model::{ModelFile, ModelFiles, ModelOptions, ModelSource, Progress};

use crate::error::{Error, Result};
use crate::files;

/// A source as an experiment file spells it.
///
/// ```
/// use axmem_datasets::source::Source;
///
/// let source: Source = "pypi:gensim==4.4.0/gensim/test/test_data/articles.bz2".parse()?;
/// assert!(matches!(&source, Source::Package { name, .. } if name == "gensim"));
/// assert_eq!(source.to_string(), "pypi:gensim==4.4.0/gensim/test/test_data/articles.bz2");
/// # Ok::<(), axmem_datasets::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A file, or a folder whose readable files are taken in the order of their names.
    Local(PathBuf),
    /// A data set repository of the Hugging Face hub, `hf:ORGANISATION/NAME`.
    Hub {
        /// `ORGANISATION/NAME`.
        repository: String,
    },
    /// One file inside a wheel, `pypi:NAME==VERSION/PATH/INSIDE`.
    Package {
        /// The distribution's name.
        name: String,
        /// Its exact version.
        version: String,
        /// The file's path inside the wheel.
        member: String,
    },
    /// Generated English-like articles, `grammar:articles=64,sentences=14,seed=1`.
    Grammar {
        /// How many articles.
        articles: usize,
        /// Sentences in each.
        sentences: usize,
        /// Seed of the generator.
        seed: u64,
    },
}

/// What to hold a source to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// The hub's commit; required for a hub source.
    pub revision: Option<String>,
    /// The folder of a hub repository to read, such as `20231101.en`.
    pub config: Option<String>,
    /// Pinned SHA-256 of the one file of the source (of the file inside a wheel, not the wheel).
    pub sha256: Option<String>,
    /// Use what is on this machine only.
    pub offline: bool,
}

/// One file of a source, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Where it comes from, the same on every machine for all but local sources.
    pub label: String,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl SourceFile {
    fn describe(path: PathBuf, label: String) -> Result<Self> {
        Ok(Self {
            sha256: files::sha256_file(&path)?,
            bytes: files::size(&path)?,
            path,
            label,
        })
    }
}

/// Brings the files of a source onto this machine, into `cache` where they need a place.
///
/// Fails with [`Error::Fetch`] when an index or hub gives no file, with [`Error::Hash`] when the
/// content is not the pinned one, and with [`Error::Usage`] when the options do not fit.
pub fn fetch(source: &Source, options: &SourceOptions, cache: &Path) -> Result<Vec<SourceFile>> {
    let fetched = match source {
        Source::Local(path) => local::fetch(path)?,
        Source::Hub { repository } => hub::fetch(source, repository, options)?,
        Source::Package {
            name,
            version,
            member,
        } => vec![package::fetch(
            source, name, version, member, options, cache,
        )?],
        Source::Grammar {
            articles,
            sentences,
            seed,
        } => vec![grammar::fetch(source, *articles, *sentences, *seed, cache)?],
    };
    if let Some(expected) = &options.sha256 {
        let [file] = fetched.as_slice() else {
            return Err(Error::usage(format!(
                "sha256 pins one file, but {source} has {}; pin a single file, or for a hub \
                 source its revision",
                fetched.len()
            )));
        };
        verify(&file.label, expected, &file.sha256)?;
    }
    Ok(fetched)
}

fn verify(file: &str, expected: &str, found: &str) -> Result<()> {
    if expected.eq_ignore_ascii_case(found) {
        Ok(())
    } else {
        Err(Error::Hash {
            file: file.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        })
    }
}

/// Whether a path from outside stays inside the folder it is joined to.
fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', '\0'])
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Hub { repository } => write!(f, "hf:{repository}"),
            Self::Package {
                name,
                version,
                member,
            } => write!(f, "pypi:{name}=={version}/{member}"),
            Self::Grammar {
                articles,
                sentences,
                seed,
            } => write!(
                f,
                "grammar:articles={articles},sentences={sentences},seed={seed}"
            ),
        }
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(repository) = text.strip_prefix("hf:") {
            return parse_hub(text, repository);
        }
        if let Some(rest) = text.strip_prefix("pypi:") {
            return parse_package(text, rest);
        }
        if let Some(settings) = text.strip_prefix("grammar:") {
            return parse_grammar(text, settings);
        }
        if text.trim().is_empty() {
            return Err(Error::usage(
                "a source is empty; write a path, hf:ORGANISATION/NAME, \
                 pypi:NAME==VERSION/PATH/INSIDE or grammar:articles=N,sentences=N,seed=N",
            ));
        }
        Ok(Self::Local(PathBuf::from(text)))
    }
}

/// Letters, digits and a few marks, first a letter or digit: safe in a URL, in a path and as an
/// argument of a command.
fn is_plain_name(name: &str, marks: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

fn parse_hub(text: &str, repository: &str) -> Result<Source> {
    let parts: Vec<_> = repository.split('/').collect();
    if parts.len() == 2 && parts.iter().all(|part| is_plain_name(part, "._-")) {
        return Ok(Source::Hub {
            repository: repository.to_owned(),
        });
    }
    Err(Error::usage(format!(
        "{text:?} is not a hub source; write hf:ORGANISATION/NAME, and the commit under revision"
    )))
}

fn parse_package(text: &str, rest: &str) -> Result<Source> {
    let parts = rest.split_once('/').and_then(|(requirement, member)| {
        let (name, version) = requirement.split_once("==")?;
        Some((name, version, member))
    });
    match parts {
        Some((name, version, member))
            if is_plain_name(name, "._-")
                && is_plain_name(version, ".+!_-")
                && stays_inside(member) =>
        {
            Ok(Source::Package {
                name: name.to_owned(),
                version: version.to_owned(),
                member: member.to_owned(),
            })
        }
        _ => Err(Error::usage(format!(
            "{text:?} is not a package source; write pypi:NAME==VERSION/PATH/INSIDE/THE/WHEEL"
        ))),
    }
}

fn parse_grammar(text: &str, settings: &str) -> Result<Source> {
    let wrong = |what: String| {
        Error::usage(format!(
            "{text:?} is not a grammar source: {what}; write \
             grammar:articles=64,sentences=14,seed=1"
        ))
    };
    let (mut articles, mut sentences, mut seed) = (None, None, None);
    for setting in settings.split(',') {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| wrong(format!("{setting:?} has no value")))?;
        let slot = match key.trim() {
            "articles" => &mut articles,
            "sentences" => &mut sentences,
            "seed" => &mut seed,
            _ => return Err(wrong(format!("unknown setting {key:?}"))),
        };
        let number = value
            .trim()
            .parse::<u64>()
            .map_err(|_| wrong(format!("{key} is {value:?}, not a whole number")))?;
        if slot.replace(number).is_some() {
            return Err(wrong(format!("{key} is given twice")));
        }
    }
    let count = |value: Option<u64>, key: &str| {
        value
            .filter(|&number| (1..=grammar::LARGEST).contains(&number))
            .map(|number| number as usize)
            .ok_or_else(|| wrong(format!("{key} must be between 1 and {}", grammar::LARGEST)))
    };
    Ok(Source::Grammar {
        articles: count(articles, "articles")?,
        sentences: count(sentences, "sentences")?,
        seed: seed.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_parses_and_prints_the_same() {
        for text in [
            "articles/part-1.txt",
            "hf:wikimedia/wikipedia",
            "pypi:some.name==1.2.0+cpu/data/articles.json",
            "grammar:articles=64,sentences=14,seed=1",
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_spellings_say_the_right_one() {
        for (text, remedy) in [
            ("", "write a path"),
            ("hf:wikipedia", "hf:ORGANISATION/NAME"),
            ("hf:a/../b", "hf:ORGANISATION/NAME"),
            ("pypi:name/member", "pypi:NAME==VERSION"),
            ("pypi:name==1.0/../../etc/passwd", "pypi:NAME==VERSION"),
            ("pypi:name==1.0//etc/passwd", "pypi:NAME==VERSION"),
            ("pypi:--index-url==1.0/member", "pypi:NAME==VERSION"),
            ("grammar:articles=3", "sentences must be between"),
            ("grammar:articles=x,sentences=1", "not a whole number"),
            ("grammar:articles=1,articles=2", "given twice"),
            ("grammar:size=1", "unknown setting"),
        ] {
            let error = text.parse::<Source>().unwrap_err();
            assert!(error.to_string().contains(remedy), "{text}: {error}");
        }
    }
}
