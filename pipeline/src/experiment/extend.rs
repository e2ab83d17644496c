//! `extends`: an experiment file that builds on another one.
//!
//! Mappings are merged, everything else is replaced, and `~` takes a key of the base file away.
//! Every value keeps the file and the line it stands on.

use std::mem;
use std::path::{Path, PathBuf};

use anyhow::Result;
use axmem_datasets::files;

use super::tree::{self, Node, Place, Problem, Value};
use crate::exit::Failure;

/// Files that build on each other, at most.
const DEPTH: usize = 8;

/// The files that an experiment was read from, by their numbers.
#[derive(Debug)]
pub(super) struct Sources {
    names: Vec<String>,
}

impl Sources {
    /// A usage error that begins with file and line.
    pub(super) fn failure(&self, place: Place, message: impl std::fmt::Display) -> anyhow::Error {
        let name = &self.names[place.file];
        Failure::usage(match place.line {
            0 => format!("{name}: {message}"),
            line => format!("{name}:{line}: {message}"),
        })
    }

    /// A usage error at the place of a problem.
    pub(super) fn problem(&self, problem: &Problem) -> anyhow::Error {
        self.failure(problem.place, problem)
    }
}

/// Reads an experiment file and those that it builds on.
///
/// # Errors
/// A file that cannot be read or is no YAML mapping, and files that build on each other in a circle or too deeply; usage
/// errors that name file and line.
pub(super) fn read(path: &Path) -> Result<(Node, Sources)> {
    let text = files::read_to_string(path).map_err(|error| Failure::usage(error.to_string()))?;
    of_text(&text, path)
}

/// As [`read`], where the text of the first file is known.
pub(super) fn of_text(text: &str, path: &Path) -> Result<(Node, Sources)> {
    let mut sources = Sources { names: Vec::new() };
    let tree = tree_of(text, path, &mut Vec::new(), &mut sources)?;
    Ok((tree, sources))
}

/// The tree of the file at `path`; `chain` are the files that lead to it.
fn tree_of(
    text: &str,
    path: &Path,
    chain: &mut Vec<PathBuf>,
    sources: &mut Sources,
) -> Result<Node> {
    let file = sources.names.len();
    sources.names.push(path.display().to_string());
    let mut tree = tree::parse(text).map_err(|problem| {
        let line = problem.place.line;
        sources.failure(Place { file, line }, &problem)
    })?;
    tree.put_at(&|place| place.file = file);
    if !matches!(tree.value, Value::Map(_)) {
        let message = "expected a mapping such as `name: my-study`";
        return Err(sources.failure(tree.place, message));
    }
    let Some((place, base)) = tree.take("extends") else {
        return Ok(tree);
    };
    let refuse = |message: String| sources.failure(place, format!("extends: {message}"));
    let Value::Text(base) = &base.value else {
        let found = base.value.describe();
        return Err(refuse(format!(
            "expected the path of a file, found {found}"
        )));
    };
    chain.push(identity(path));
    let base = path.parent().unwrap_or(Path::new("")).join(base);
    if chain.contains(&identity(&base)) {
        let message = format!(
            "{} builds on this file, directly or through others; remove one `extends`",
            base.display()
        );
        return Err(refuse(message));
    }
    if chain.len() == DEPTH {
        let message = format!("more than {DEPTH} files build on each other; join some of them");
        return Err(refuse(message));
    }
    let text = files::read_to_string(&base).map_err(|error| {
        refuse(format!(
            "{error}; the path is relative to the folder of the file that names it"
        ))
    })?;
    let mut below = tree_of(&text, &base, chain, sources)?;
    // Two studies of one name would overwrite each other's report.
    below.take("name");
    Ok(merge(below, tree))
}

/// What a file is, by whatever path it is reached.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Puts `over` onto `base`.
fn merge(base: Node, over: Node) -> Node {
    let (mut entries, changes) = match (base.value, over.value) {
        (Value::Map(entries), Value::Map(changes)) => (entries, changes),
        (_, value) => return Node { value, ..over },
    };
    for (key, place, change) in changes {
        let known = entries.iter().position(|(name, _, _)| *name == key);
        match (known, &change.value) {
            (Some(index), Value::Null) => {
                entries.remove(index);
            }
            (Some(index), _) => {
                let entry = &mut entries[index];
                let below = mem::replace(&mut entry.2, Node::nothing());
                (entry.1, entry.2) = (place, merge(below, change));
            }
            (None, _) => entries.push((key, place, change)),
        }
    }
    Node {
        value: Value::Map(entries),
        place: over.place,
    }
}
