//! The experiment file: what was typed ([`mod@file`]) and what it means ([`mod@resolve`], which gives
//! the [`mod@resolved`] form).
//!
//! [`load`] is the way from a path and the `--set` options to an [`Experiment`]; unknown keys are
//! errors, and every error names the file, the line and the field. Only the resolved form is
//! hashed. Nothing here fetches, trains or looks into the store.

pub mod file;
pub mod grid;
mod limits;
pub mod resolve;
pub mod resolved;
mod tree;

use std::path::Path;

use anyhow::Result;
use axmem_datasets::files;

pub use file::{
    AdamW, Analysis, Arm, Bos, Buckets, Compensate, Contrast, Decay, Documents, Dtype, Exposures,
    Goldfish, GoldfishHash, MaskOn, Measure, Optimizer, Placement, Prefix, Shape, Time, Windows,
};
pub use grid::Layout;
pub use resolved::{Background, Experiment, Model, Text, TokenizerChoice, Weights};

use crate::exit::Failure;
use tree::{Node, Problem, Value};

/// Reads the experiment file at `path`, applies `sets` (`key.path=value`, the value in YAML) in
/// order, checks everything that needs no data, and fills all defaults.
///
/// # Errors
/// Usage errors (exit code 2) that name file, line and field.
pub fn load(path: &Path, sets: &[String]) -> Result<Experiment> {
    let text = files::read_to_string(path).map_err(|error| Failure::usage(error.to_string()))?;
    from_text(&text, &path.display().to_string(), sets)
}

fn from_text(text: &str, name: &str, sets: &[String]) -> Result<Experiment> {
    let mut tree = tree::parse(text).map_err(|problem| failure(name, &problem))?;
    for set in sets {
        apply(&mut tree, set)?;
    }
    refuse_later_features(&tree).map_err(|problem| failure(name, &problem))?;
    let typed: file::ExperimentFile = tree.typed().map_err(|problem| failure(name, &problem))?;
    resolve::resolve(typed).map_err(|problem| {
        let line = tree.line_of(&problem.field);
        Failure::usage(format!(
            "{}{}: {}",
            place(name, line),
            problem.field,
            problem.message
        ))
    })
}

fn failure(name: &str, problem: &Problem) -> anyhow::Error {
    Failure::usage(format!("{}{problem}", place(name, problem.line)))
}

fn place(name: &str, line: u64) -> String {
    if line == 0 {
        format!("{name}: ")
    } else {
        format!("{name}:{line}: ")
    }
}

/// One `--set key.path=value`.
fn apply(tree: &mut Node, set: &str) -> Result<()> {
    let (key, value) = set.split_once('=').ok_or_else(|| {
        Failure::usage(format!(
            "--set {set}: expected key=value, such as train.rate.peak=1e-3"
        ))
    })?;
    let mut value = tree::parse(value)
        .map_err(|problem| Failure::usage(format!("--set {set}: {}", problem.message)))?;
    value.forget_lines();
    tree.set(key.trim(), value)
        .map_err(|message| Failure::usage(format!("--set {set}: {message}")))
}

/// Keys of the design that this version does not read yet: a sentence instead of "unknown key".
fn refuse_later_features(tree: &Node) -> Result<(), Problem> {
    let Value::Map(entries) = &tree.value else {
        return Err(Problem::new(
            tree.line,
            "",
            "expected a mapping such as `name: my-study`",
        ));
    };
    for (key, line, _) in entries {
        let message = match key.as_str() {
            "extends" => "a base file is not supported yet; copy its settings into this file",
            "matrix" => {
                "sweeps are not supported yet; write one file for each setting, or use --set"
            }
            _ => continue,
        };
        return Err(Problem::new(*line, key, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
