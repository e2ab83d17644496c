//! Runs a plan: each stage is found in the store, gone on with, or made.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_datasets::source::ModelOptions;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::certify;
use crate::digest::digest;
use crate::events::Events;
use crate::experiment::resolved::PublishedModel;
use crate::experiment::{Experiment, Text, TokenizerChoice, Weights};
use crate::only::Only;
use crate::plan::{self, Node, Plan, Stage};
use crate::ranks::Ranks;
use crate::stages::{self, Context};
use crate::store::{self, Lock, Manifest, RanksRecord, Store};

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// The experiment.
    pub experiment: Experiment,
    /// The store.
    pub store: Store,
    /// The last kind of stage that is wanted.
    pub until: Stage,
    /// The part of the study that is wanted.
    pub only: Only,
}

/// Runs all stages that the wanted ones need. Every process of a run calls it: the first looks, locks, prints and
/// writes, and the others take part in the stages that run on ranks.
///
/// # Errors
/// A part that the study does not have, and the first stage that fails; what was finished before stays in the store.
pub fn run(mut request: Request, ranks: &Ranks, events: &Events) -> Result<()> {
    request.only.check(&request.experiment)?;
    let until = request.only.until(request.until);
    let only = request.only.clone();
    let wanted = |experiment: &Experiment, node: &Node| {
        node.stage.named() == until && only.takes(experiment, &node.subject)
    };
    let made = make(
        &mut request.experiment,
        &request.store,
        &wanted,
        ranks,
        events,
    )?;
    ranks.lead(|| {
        if until == Stage::Report {
            return finish(&request, &made.plan, events, made.stages);
        }
        let experiment = &request.experiment;
        for node in made
            .plan
            .nodes
            .iter()
            .filter(|node| wanted(experiment, node))
        {
            let folder = folder(&request.store, node);
            let fields = json!({ "stage": node.to_string(), "folder": folder });
            events.tell("artefact", fields, &format!("{node}: {}", folder.display()));
        }
        Ok(())
    })
}

/// What [`make`] found to do.
pub struct Made {
    /// The plan of the experiment with the hashes of its local files.
    pub plan: Plan,
    /// How many stages were made, those found in the store not counted.
    pub stages: usize,
}

/// Makes the wanted stages of an experiment with all that they need, and fills in the hashes of its local files.
/// Collective, as [`run`].
///
/// # Errors
/// As [`run`].
pub fn make(
    experiment: &mut Experiment,
    store: &Store,
    wanted: &dyn Fn(&Experiment, &Node) -> bool,
    ranks: &Ranks,
    events: &Events,
) -> Result<Made> {
    let contents = ranks.lead(|| Contents::read(experiment, store))?;
    contents.fill(experiment);
    let plan = Plan::new(experiment);
    let wanted = plan.needed_for(|node| wanted(experiment, node));
    let mut runner = Runner {
        experiment,
        store,
        plan: &plan,
        ranks,
        events,
        verified: HashSet::new(),
        made: 0,
    };
    ranks.lead(|| runner.check_before_start(&wanted))?;
    for &index in &wanted {
        runner.stage(index)?;
    }
    let stages = runner.made;
    Ok(Made { plan, stages })
}

/// The plan of an experiment, whose local files are hashed for it.
///
/// # Errors
/// An unreadable local source.
pub fn plan(experiment: &mut Experiment, store: &Store) -> Result<Plan> {
    Contents::read(experiment, store)?.fill(experiment);
    Ok(Plan::new(experiment))
}

/// The folder of a stage's artefact.
pub fn folder(store: &Store, node: &Node) -> PathBuf {
    store.folder(node.stage.name(), node.stage.version(), &node.key)
}

/// What the keys need of files: hashes of local inputs, so that changed bytes are noticed and
/// rewritten equal bytes are not, and of the certificate that the report shows.
#[derive(Serialize, Deserialize)]
struct Contents {
    corpus: Option<String>,
    background: Option<String>,
    created_after: [Option<String>; 2],
    tokenizer: Option<String>,
    models: Vec<Option<String>>,
    certificate: Option<String>,
}

impl Contents {
    fn read(experiment: &Experiment, store: &Store) -> Result<Self> {
        let of_text = |text: &Text| text.local().map(|path| store.content(&path)).transpose();
        let background = experiment.background.text.as_ref();
        // One that is not there yet is told when the study is run.
        let of_later = |text: &Text| match text.local() {
            Some(path) if path.exists() => store.content(&path).map(Some),
            _ => Ok(None),
        };
        let created_after = match &experiment.created_after {
            Some(asked) => [of_later(&asked.corpus)?, of_later(&asked.snapshot)?],
            None => [None, None],
        };
        let certificate = certify::path(store, experiment);
        Ok(Self {
            corpus: of_text(&experiment.corpus)?,
            background: background.map(of_text).transpose()?.flatten(),
            created_after,
            tokenizer: match &experiment.tokenizer {
                TokenizerChoice::File { path, .. } => Some(store.content(path.as_ref())?),
                TokenizerChoice::Bpe { .. } | TokenizerChoice::Published => None,
            },
            models: experiment
                .models
                .iter()
                .map(|model| match &model.weights {
                    Weights::Published(published) => of_model(store, published),
                    Weights::Random(_) => Ok(None),
                })
                .collect::<Result<_>>()?,
            certificate: certificate
                .exists()
                .then(|| files::sha256_file(&certificate))
                .transpose()?,
        })
    }

    fn fill(self, experiment: &mut Experiment) {
        experiment.corpus.content = self.corpus;
        if let Some(text) = &mut experiment.background.text {
            text.content = self.background;
        }
        if let Some(asked) = &mut experiment.created_after {
            [asked.corpus.content, asked.snapshot.content] = self.created_after;
        }
        if let TokenizerChoice::File { content, .. } = &mut experiment.tokenizer {
            *content = self.tokenizer;
        }
        for (model, content) in experiment.models.iter_mut().zip(self.models) {
            if let Weights::Published(published) = &mut model.weights {
                published.content = content;
            }
        }
        experiment.certificate = self.certificate;
    }
}

/// Hash of the files of a local model; `None` for one that its source pins, and for one that is not there, which is told
/// when the study is run.
fn of_model(store: &Store, published: &PublishedModel) -> Result<Option<String>> {
    let Some(source) = published.local() else {
        return Ok(None);
    };
    let Ok(found) = source.fetch(&ModelOptions::default(), &store.cache()) else {
        return Ok(None);
    };
    let hashes: Vec<(&str, String)> = found
        .files
        .iter()
        .map(|file| Ok((file.name.as_str(), store.content(&file.path)?)))
        .collect::<Result<_>>()?;
    Ok(Some(digest(&json!(hashes))))
}

struct Runner<'a> {
    experiment: &'a Experiment,
    store: &'a Store,
    plan: &'a Plan,
    ranks: &'a Ranks,
    events: &'a Events,
    /// Artefacts whose content was read and compared by this process, or made by it.
    verified: HashSet<usize>,
    made: usize,
}

impl Runner<'_> {
    /// What is missing from outside is said before hours of work, not after.
    fn check_before_start(&self, wanted: &[usize]) -> Result<()> {
        for &index in wanted {
            let node = &self.plan.nodes[index];
            if self.is_done(node) {
                continue;
            }
            let experiment = self.experiment;
            if node.stage == Stage::CreatedAfter {
                stages::created_after::check(experiment)?;
            }
            if node.stage == Stage::Weights {
                let model = &experiment.models[node.subject.model.unwrap_or(0)];
                stages::weights::check(experiment, model, self.store, self.events)?;
            }
        }
        Ok(())
    }

    fn is_done(&self, node: &Node) -> bool {
        folder(self.store, node).join("manifest.json").exists()
    }

    fn stage(&mut self, index: usize) -> Result<()> {
        let (plan, ranks) = (self.plan, self.ranks);
        let node = &plan.nodes[index];
        let folder = folder(self.store, node);
        // Held by the first process until the artefact is complete.
        let mut lock = None;
        if !ranks.lead(|| {
            lock = self.begin(node, &folder)?;
            Ok(lock.is_some())
        })? {
            return Ok(());
        }
        let started = Instant::now();
        let context = Context {
            experiment: self.experiment,
            plan,
            node,
            folder: &folder,
            store: self.store,
            ranks,
            events: self.events,
        };
        let work = || {
            let outcome = stages::run(&context);
            self.events.end();
            outcome.with_context(|| format!("stage {node}"))
        };
        let sealed = if node.stage.on_ranks() {
            work()?
        } else {
            ranks.lead(work)?
        };
        ranks.lead(|| self.end(index, started.elapsed().as_secs_f64(), sealed))?;
        self.made += 1;
        Ok(())
    }

    /// The right to make an artefact that is not there yet, with its folder ready and its inputs checked.
    fn begin(&mut self, node: &Node, folder: &Path) -> Result<Option<Lock>> {
        let store = self.store;
        let found = |sentence: &str| {
            let fields = json!({ "stage": node.to_string(), "key": node.key, "state": "found" });
            self.events
                .tell("stage", fields, &format!("{node}: {sentence}"));
        };
        if store.find(folder)?.is_some() {
            found("done before");
            return Ok(None);
        }
        let lock = store.lock(&node.key, &mut |holder| {
            let sentence = format!("{node}: waiting for {holder}, which makes it now");
            self.events.tell(
                "waiting",
                json!({ "stage": node.to_string(), "holder": holder }),
                &sentence,
            );
        })?;
        if store.find(folder)?.is_some() {
            found("done by another process");
            return Ok(None);
        }
        for &input in &node.inputs {
            if self.verified.insert(input) {
                store.verify(&self.folder(input))?;
            }
        }
        store.begin(folder)?;
        let fields = json!({ "stage": node.to_string(), "key": node.key, "state": "started" });
        self.events
            .tell("stage", fields, &format!("{node}: {}", node.does));
        Ok(Some(lock))
    }

    /// Checks the inputs again and declares the artefact complete.
    fn end(&mut self, index: usize, seconds: f64, sealed: Value) -> Result<()> {
        let node = &self.plan.nodes[index];
        let store = self.store;
        for &input in &node.inputs {
            store.find(&self.folder(input))?;
        }
        store.finish(&self.folder(index), self.manifest(node, seconds, sealed))?;
        self.verified.insert(index);
        let done = json!({
            "stage": node.to_string(), "key": node.key, "state": "done", "seconds": seconds,
        });
        self.events
            .tell("stage", done, &format!("{node}: done in {seconds:.1} s"));
        Ok(())
    }

    fn folder(&self, index: usize) -> PathBuf {
        folder(self.store, &self.plan.nodes[index])
    }

    fn manifest(&self, node: &Node, seconds: f64, sealed: Value) -> Manifest {
        let experiment = self.experiment;
        let model = node.subject.model.map(|model| &experiment.models[model]);
        let layout = experiment.layout(model);
        let grid = &layout.grid;
        let input = |&index: &usize| {
            let node = &self.plan.nodes[index];
            (node.stage.name().to_owned(), node.key.clone())
        };
        Manifest {
            stage: node.stage.name().to_owned(),
            version: node.stage.version(),
            key: node.key.clone(),
            subject: node.to_string(),
            settings: node.settings.clone(),
            inputs: node.inputs.iter().map(input).collect(),
            files: std::collections::BTreeMap::new(),
            program: env!("AXMEM_VERSION").to_owned(),
            seed: experiment.seed,
            grid: [grid.x, grid.y, grid.z, grid.data],
            ranks: node.stage.on_ranks().then(|| RanksRecord {
                back_end: self.ranks.back_end().to_owned(),
                processes: self.ranks.processes(),
                order: grid.order,
                schedule: layout.schedule(experiment.train.recompute),
            }),
            dtype: plan::dtype(experiment, node).name().to_owned(),
            host: store::host(),
            seconds,
            peak_memory_bytes: store::peak_memory_bytes(),
            sealed,
        }
    }
}

/// Puts the report where people look for it and says where that is.
fn finish(request: &Request, plan: &Plan, events: &Events, made: usize) -> Result<()> {
    let published = request.store.published(&request.experiment.name);
    files::create_dir_all(&published)?;
    for index in plan.of(Stage::Report) {
        for path in files::list(folder(&request.store, &plan.nodes[index]))? {
            let name = path.file_name().unwrap_or_default();
            if name == "manifest.json" || name == "stat.json" {
                continue;
            }
            let target = published.join(name);
            let bytes = files::read(&path)?;
            if !target.exists() || files::read(&target)? != bytes {
                files::write_atomic(&target, &bytes)?;
            }
        }
    }
    let report = published.join("report.html");
    let fields = json!({
        "report": report, "summary": published.join("summary.json"), "stages_made": made,
    });
    let what = if made == 0 {
        "nothing to do, the report"
    } else {
        "the report"
    };
    events.tell(
        "finished",
        fields,
        &format!("{what} is {}", report.display()),
    );
    Ok(())
}
