//! `axmem plan`: the stages of the experiments of a file and how far each is. Makes nothing.

use std::collections::HashSet;

use anyhow::Result;
use serde_json::json;

use crate::events::print;
use crate::experiment::Experiment;
use crate::plan::Node;
use crate::run;
use crate::store::{PARTIAL, Store};

/// Prints every stage with its state in the store. What an earlier experiment of the list makes too is `shared`.
///
/// # Errors
/// An unreadable local source.
pub fn show(experiments: Vec<Experiment>, store: &Store, as_json: bool) -> Result<()> {
    let of = experiments.len();
    let mut known = HashSet::new();
    let mut all = 0;
    for mut experiment in experiments {
        let plan = run::plan(&mut experiment, store)?;
        all += plan.nodes.len();
        if !as_json {
            print(&format!(
                "{}: {} stages, store {}",
                experiment.name,
                plan.nodes.len(),
                store.root().display()
            ));
        }
        for node in &plan.nodes {
            let state = match state(store, node) {
                "to do" if known.contains(&node.key) => "shared",
                state => state,
            };
            known.insert(node.key.clone());
            if as_json {
                let line = json!({
                    "event": "plan", "experiment": experiment.name, "stage": node.to_string(),
                    "key": node.key, "does": node.does, "state": state,
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
    }
    if of > 1 && !as_json {
        print(&format!(
            "{of} experiments, {} stages; {} are shared and made once",
            known.len(),
            all - known.len()
        ));
    }
    Ok(())
}

fn state(store: &Store, node: &Node) -> &'static str {
    let folder = run::folder(store, node);
    if folder.join("manifest.json").exists() {
        "done"
    } else if folder.join(PARTIAL).is_dir() {
        "begun"
    } else {
        "to do"
    }
}
