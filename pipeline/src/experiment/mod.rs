//! The experiment file: what was typed ([`mod@file`]) and what it means ([`mod@resolve`], which gives
//! the [`mod@resolved`] form).
//!
//! [`load_all`] is the way from a path and the `--set` options to [`Experiment`]s; unknown keys are
//! errors, and every error names the file, the line and the field. Only the resolved form is
//! hashed. Nothing here fetches, trains or looks into the store.

mod extend;
pub mod file;
pub mod grid;
mod limits;
mod matrix;
pub mod resolve;
pub mod resolved;
mod tree;

use std::path::Path;

use anyhow::Result;

pub use file::{
    AdamW, Analysis, Arm, Bos, Buckets, Compensate, Contrast, Decay, Documents, Dtype, Exposures,
    Goldfish, GoldfishHash, MaskOn, Measure, Optimizer, Placement, Prefix, Shape, Time, Windows,
};
pub use grid::Layout;
pub use resolved::{Background, CreatedAfter, Experiment, Model, Text, TokenizerChoice, Weights};

use crate::exit::Failure;
use extend::Sources;
use tree::{Node, Place};

/// Reads the experiments of the file at `path`: one, or one for every combination of its `matrix`.
///
/// Base files (`extends`) come first, then `sets` (`key.path=value`, the value in YAML) in order, then the matrix. Everything
/// that needs no data is checked, and all defaults are filled.
///
/// # Errors
/// Usage errors (exit code 2) that name file, line and field.
pub fn load_all(path: &Path, sets: &[String]) -> Result<Vec<Experiment>> {
    let (tree, sources) = extend::read(path)?;
    experiments(tree, &sources, sets)
}

/// As [`load_all`], for what is done to one experiment alone.
///
/// # Errors
/// As [`load_all`], and a file of several experiments.
pub fn load(path: &Path, sets: &[String]) -> Result<Experiment> {
    let mut all = load_all(path, sets)?;
    match (all.pop(), all.len()) {
        (Some(experiment), 0) => Ok(experiment),
        (_, others) => Err(Failure::usage(format!(
            "{}: `matrix` makes {} experiments, and this takes one: switch it off with --set matrix=~ and give the values \
             with --set",
            path.display(),
            others + 1
        ))),
    }
}

fn experiments(mut tree: Node, sources: &Sources, sets: &[String]) -> Result<Vec<Experiment>> {
    for set in sets {
        apply(&mut tree, set)?;
    }
    for set in sets {
        let key = set.split('=').next().unwrap_or_default().trim();
        if let Some(swept) = matrix::hides(&tree, key) {
            return Err(Failure::usage(format!(
                "--set {set}: `matrix` gives {swept} its values; change these with --set 'matrix.{swept}=[...]', or switch \
                 them off with --set matrix.{swept}=~"
            )));
        }
    }
    let trees = matrix::expand(tree).map_err(|problem| sources.problem(&problem))?;
    let several = trees.len() > 1;
    trees
        .iter()
        .map(|tree| {
            experiment(tree, sources).map_err(|error| match matrix::name(tree) {
                Some(name) if several => Failure::usage(format!("{error} (experiment {name})")),
                _ => error,
            })
        })
        .collect()
}

fn experiment(tree: &Node, sources: &Sources) -> Result<Experiment> {
    let typed: file::ExperimentFile = tree.typed().map_err(|problem| sources.problem(&problem))?;
    resolve::resolve(typed).map_err(|refusal| {
        let message = format!("{}: {}", refusal.field, refusal.message);
        sources.failure(tree.place_of(&refusal.field), message)
    })
}

/// One `--set key.path=value`.
fn apply(tree: &mut Node, set: &str) -> Result<()> {
    let refuse = |message: &str| Failure::usage(format!("--set {set}: {message}"));
    let (key, value) = set
        .split_once('=')
        .ok_or_else(|| refuse("expected key=value, such as train.rate.peak=1e-3"))?;
    let key = key.trim();
    if key == "extends" {
        return Err(refuse(
            "a base file is named in the experiment file; write one that extends it",
        ));
    }
    let mut value = tree::parse(value).map_err(|problem| refuse(&problem.message))?;
    value.put_at(&|place| *place = Place::COMMAND_LINE);
    // The keys of a matrix have dots themselves.
    let outcome = match key.strip_prefix("matrix.") {
        Some(axis) => tree
            .child("matrix")
            .and_then(|matrix| matrix.put(axis, value)),
        None => tree.set(key, value),
    };
    outcome.map_err(|message| refuse(&message))
}

#[cfg(test)]
mod tests;
