//! The stages of a study, each an adapter: open inputs, call the other crates, write outputs.
//!
//! What is measured, trained or estimated is decided in the other crates; here is only which
//! artefact goes where. Every stage writes into its own folder and nowhere else.

mod buckets;
mod corpus;
pub(crate) mod created_after;
pub(crate) mod engine;
pub(crate) mod estimate;
mod grid;
pub(crate) mod report;
mod score;
mod tokens;
mod train;
pub(crate) mod training;
mod warmup;
pub mod weights;

use std::path::{Path, PathBuf};

use anyhow::Result;
use axmem_trainer::Rank;
use axmem_trainer::launch::Threads;
use serde_json::Value;

use crate::events::{Events, Style};
use crate::experiment::{Arm, Experiment, Layout, Model};
use crate::plan::{Node, Plan, Stage};
use crate::ranks::Ranks;
use crate::run;
use crate::store::Store;

/// What a stage is given.
pub struct Context<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The plan.
    pub plan: &'a Plan,
    /// The stage.
    pub node: &'a Node,
    /// Where its output goes.
    pub folder: &'a Path,
    /// The store.
    pub store: &'a Store,
    /// The ranks.
    pub ranks: &'a Ranks,
    /// Where progress is told.
    pub events: &'a Events,
}

impl Context<'_> {
    /// The folder of an artefact of the plan.
    pub(crate) fn artefact(&self, index: usize) -> PathBuf {
        run::folder(self.store, &self.plan.nodes[index])
    }

    /// The folder of this stage's input of one kind.
    fn input(&self, stage: Stage) -> PathBuf {
        let index = self
            .plan
            .input(self.node, stage)
            .expect("the plan gives every stage its inputs");
        self.artefact(index)
    }

    /// Runs `work` on every rank of the grid; see [`Ranks::run`].
    fn on_ranks<T: Send>(&self, work: impl Fn(&Rank) -> Result<T> + Sync) -> Result<T> {
        self.ranks.run(&self.layout().grid, work)
    }

    /// The layout of the ranks of this stage.
    fn layout(&self) -> &Layout {
        let model = self.node.subject.model;
        self.experiment
            .layout(model.map(|model| &self.experiment.models[model]))
    }

    /// The model this stage is about.
    fn model(&self) -> &Model {
        let index = self
            .node
            .subject
            .model
            .expect("the plan names the model of this stage");
        &self.experiment.models[index]
    }

    /// The arm this stage is about, if it is about one.
    fn arm(&self) -> Option<&Arm> {
        let name = self.node.subject.arm.as_deref()?;
        self.experiment
            .train
            .arms
            .iter()
            .find(|arm| arm.name() == name)
    }
}

/// For what is only read or computed again: neither ranks nor events have a part in it.
pub(crate) struct Teller {
    pub(crate) ranks: Ranks,
    pub(crate) events: Events,
}

impl Default for Teller {
    fn default() -> Self {
        Self {
            ranks: Ranks::Threads(Threads::default()),
            events: Events::new(Style::Silent),
        }
    }
}

/// Does the work of a stage. What it returns is kept in the manifest outside the key. Every process
/// of a run calls it for a stage that runs on ranks, and the first alone writes.
///
/// # Errors
/// Those of the other crates, and a full or unwritable disk.
pub fn run(context: &Context<'_>) -> Result<Value> {
    match context.node.stage {
        Stage::Corpus => corpus::run(context)?,
        Stage::Tokens => tokens::run(context)?,
        Stage::Buckets => return buckets::run(context),
        Stage::CreatedAfter => created_after::run(context)?,
        Stage::Weights => weights::run(context)?,
        Stage::Grid => grid::run(context)?,
        Stage::Score => score::run(context)?,
        Stage::CreatedAfterScore => score::run_created_after(context)?,
        Stage::Warmup => warmup::run(context)?,
        Stage::Train => train::run(context)?,
        Stage::Estimate => estimate::run(context)?,
        Stage::Report => report::run(context)?,
    }
    Ok(Value::Null)
}
