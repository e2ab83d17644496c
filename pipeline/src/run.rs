//! Runs a plan: each stage is found in the store, gone on with, or made.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use serde_json::{Value, json};

use crate::events::{Events, print};
use crate::experiment::{Experiment, GridChoice, Text, TokenizerChoice};
use crate::plan::{self, Node, Plan, Stage};
use crate::stages::{self, Context};
use crate::store::{self, Manifest, PARTIAL, Store};

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// The experiment.
    pub experiment: Experiment,
    /// The store.
    pub store: Store,
    /// The last kind of stage that is wanted.
    pub until: Stage,
}

/// Runs all stages that the wanted one needs.
///
/// # Errors
/// The first stage that fails; what was finished before stays in the store.
pub fn run(mut request: Request, events: &Events) -> Result<()> {
    fill_contents(&mut request)?;
    let plan = Plan::new(&request.experiment);
    let wanted = plan.needed_for(request.until);
    let mut runner = Runner {
        request: &request,
        plan: &plan,
        events,
        verified: HashSet::new(),
        made: 0,
    };
    runner.check_before_start(&wanted)?;
    for &index in &wanted {
        runner.stage(index)?;
    }
    let made = runner.made;
    if request.until == Stage::Report {
        return finish(&request, &plan, events, made);
    }
    for &index in wanted
        .iter()
        .filter(|&&index| plan.nodes[index].stage == request.until)
    {
        let node = &plan.nodes[index];
        let folder = folder(&request.store, node);
        let fields = json!({ "stage": node.to_string(), "folder": folder });
        events.tell("artefact", fields, &format!("{node}: {}", folder.display()));
    }
    Ok(())
}

/// Prints the plan with the state of every stage; makes nothing.
///
/// # Errors
/// An unreadable local source or a damaged manifest.
pub fn show(mut request: Request, as_json: bool) -> Result<()> {
    fill_contents(&mut request)?;
    let plan = Plan::new(&request.experiment);
    if !as_json {
        print(&format!(
            "{}: {} stages, store {}",
            request.experiment.name,
            plan.nodes.len(),
            request.store.root().display()
        ));
    }
    for node in &plan.nodes {
        let folder = folder(&request.store, node);
        let state = if folder.join("manifest.json").exists() {
            "done"
        } else if folder.join(PARTIAL).is_dir() {
            "begun"
        } else {
            "to do"
        };
        if as_json {
            let line = json!({
                "event": "plan", "stage": node.to_string(), "key": node.key, "does": node.does,
                "state": state,
            });
            print(&line.to_string());
        } else {
            print(&format!(
                "{:<26} {}  {state:<6} {}",
                node.to_string(),
                node.short_key(),
                node.does
            ));
        }
    }
    Ok(())
}

/// The folder of a stage's artefact.
pub fn folder(store: &Store, node: &Node) -> PathBuf {
    store.folder(node.stage.name(), node.stage.version(), &node.key)
}

/// Local inputs are part of the keys by their content, so that changed bytes are noticed and
/// rewritten equal bytes are not.
fn fill_contents(request: &mut Request) -> Result<()> {
    let store = &request.store;
    let experiment = &mut request.experiment;
    let texts = [
        Some(&mut experiment.corpus),
        experiment.background.text.as_mut(),
    ];
    for text in texts.into_iter().flatten() {
        fill_text(store, text)?;
    }
    if let TokenizerChoice::File { path, content } = &mut experiment.tokenizer {
        *content = Some(store.content(path.as_ref())?);
    }
    Ok(())
}

fn fill_text(store: &Store, text: &mut Text) -> Result<()> {
    if let Some(path) = text.local() {
        text.content = Some(store.content(&path)?);
    }
    Ok(())
}

struct Runner<'a> {
    request: &'a Request,
    plan: &'a Plan,
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
            if node.stage == Stage::Weights && !self.is_done(node) {
                stages::weights::check(&self.request.experiment, node)?;
            }
        }
        Ok(())
    }

    fn is_done(&self, node: &Node) -> bool {
        folder(&self.request.store, node)
            .join("manifest.json")
            .exists()
    }

    fn stage(&mut self, index: usize) -> Result<()> {
        let node = &self.plan.nodes[index];
        let store = &self.request.store;
        let folder = folder(store, node);
        let fields =
            |state: &str| json!({ "stage": node.to_string(), "key": node.key, "state": state });
        if store.find(&folder)?.is_some() {
            self.events
                .tell("stage", fields("found"), &format!("{node}: done before"));
            return Ok(());
        }
        let _lock = store.lock(&node.key, &mut |holder| {
            let sentence = format!("{node}: waiting for {holder}, which makes it now");
            self.events.tell(
                "waiting",
                json!({ "stage": node.to_string(), "holder": holder }),
                &sentence,
            );
        })?;
        if store.find(&folder)?.is_some() {
            self.events.tell(
                "stage",
                fields("found"),
                &format!("{node}: done by another process"),
            );
            return Ok(());
        }
        for &input in &node.inputs {
            if self.verified.insert(input) {
                store.verify(&self.folder(input))?;
            }
        }
        store.begin(&folder)?;
        self.events.tell(
            "stage",
            fields("started"),
            &format!("{node}: {}", node.does),
        );
        let started = Instant::now();
        let context = Context {
            experiment: &self.request.experiment,
            plan: self.plan,
            node,
            folder: &folder,
            store,
            events: self.events,
        };
        let outcome = stages::run(&context);
        self.events.end();
        let sealed = outcome.with_context(|| format!("stage {node}"))?;
        for &input in &node.inputs {
            store.find(&self.folder(input))?;
        }
        let seconds = started.elapsed().as_secs_f64();
        store.finish(&folder, self.manifest(node, seconds, sealed))?;
        self.verified.insert(index);
        self.made += 1;
        let done = json!({
            "stage": node.to_string(), "key": node.key, "state": "done", "seconds": seconds,
        });
        self.events
            .tell("stage", done, &format!("{node}: done in {seconds:.1} s"));
        Ok(())
    }

    fn folder(&self, index: usize) -> PathBuf {
        folder(&self.request.store, &self.plan.nodes[index])
    }

    fn manifest(&self, node: &Node, seconds: f64, sealed: Value) -> Manifest {
        let experiment = &self.request.experiment;
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
            grid: match &experiment.grid {
                GridChoice::Auto => [1; 4],
                GridChoice::Sizes(sizes) => [sizes.x, sizes.y, sizes.z, sizes.data],
            },
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
