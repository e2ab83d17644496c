//! Artefacts of a store: their manifests against their keys and against the plan, and the list of files to hash.

use std::path::{Path, PathBuf};

use anyhow::Result;
use axmem_datasets::files;
use serde_json::{Value, json};

use super::compare::{self, Change};
use super::hashes::Recorded;
use super::problem::Problems;
use crate::digest::digest;
use crate::plan::{Node, Plan, Stage};
use crate::store::{MANIFEST, Manifest, Store};
use crate::weights::{REFERENCE, Reference};

/// What is known of an artefact before it is read.
pub(super) struct Expected<'a> {
    /// Its folder.
    pub(super) folder: PathBuf,
    /// Its key.
    pub(super) key: &'a str,
    /// What it is in the plan, if there is one.
    pub(super) node: Option<(&'a Plan, &'a Node)>,
    /// Hash of its manifest when the report was made, if that is known.
    pub(super) manifest: Option<&'a str>,
}

/// Checks the manifest of an artefact and adds its files to those that are to be hashed.
pub(super) fn look(
    store: &Store,
    expected: &Expected<'_>,
    recorded: &mut Vec<Recorded>,
    problems: &mut Problems<'_>,
) -> Result<Option<Manifest>> {
    let path = expected.folder.join(MANIFEST);
    let before = problems.count();
    let manifest = match store.manifest(&expected.folder) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => {
            problems.tell(&path, "is missing, so the artefact does not exist");
            return Ok(None);
        }
        Err(error) => {
            problems.tell(&path, &format!("is damaged ({error})"));
            return Ok(None);
        }
    };
    let changes = against_key(&manifest, expected);
    problems.tell_changes(&path, &changes);
    if before == problems.count()
        && let Some(hash) = expected.manifest
        && files::sha256_file(&path)? != hash
    {
        problems.tell(
            &path,
            "is not the one that the report was made from: it was edited, or the artefact was made again since",
        );
    }
    let on_disk = store.listed(&expected.folder)?;
    for (name, path) in &on_disk {
        if !manifest.files.contains_key(name) {
            problems.tell(path, &format!("is not in {MANIFEST} beside it"));
        }
    }
    recorded.extend(manifest.files.iter().map(|(name, record)| Recorded {
        path: expected.folder.join(name),
        bytes: Some(record.bytes),
        sha256: record.sha256.clone(),
    }));
    reference(&expected.folder, recorded, problems);
    Ok(Some(manifest))
}

/// Where a manifest does not fit its key, which is the hash of stage, version, settings and input keys.
fn against_key(manifest: &Manifest, expected: &Expected<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut field = |name: &str, found: &Value, expected: &Value| {
        if found != expected {
            changes.push(Change::recorded(name, found, expected));
        }
    };
    field("key", &json!(manifest.key), &json!(expected.key));
    // These repeat what is in the settings.
    if let Some(seed) = manifest.settings.get("seed") {
        field("seed", &json!(manifest.seed), seed);
    }
    if let Some(dtype) = manifest.settings.get("dtype") {
        field("dtype", &json!(manifest.dtype), dtype);
    }
    let Some((plan, node)) = expected.node else {
        if key(manifest) != expected.key {
            let place = "key of stage, version, settings and inputs";
            changes.push(Change::recorded(place, key(manifest), expected.key));
        }
        return changes;
    };
    field("stage", &json!(manifest.stage), &json!(node.stage.name()));
    field(
        "version",
        &json!(manifest.version),
        &json!(node.stage.version()),
    );
    // A ladder names the model of a stage and a study of one model does not, so of an artefact that both have it is the name
    // given by the first of them.
    if node.subject.model.is_none() {
        field(
            "subject",
            &json!(manifest.subject),
            &json!(node.to_string()),
        );
    }
    let inputs: Vec<(&str, &str)> = node
        .inputs
        .iter()
        .map(|&input| &plan.nodes[input])
        .map(|input| (input.stage.name(), input.key.as_str()))
        .collect();
    field("inputs", &json!(manifest.inputs), &json!(inputs));
    if node.stage != Stage::Buckets {
        field("sealed", &manifest.sealed, &Value::Null);
    }
    if manifest.settings != node.settings {
        for mut change in compare::json(&manifest.settings, &node.settings) {
            change.place = format!("settings.{}", change.place);
            changes.push(change);
        }
    }
    changes
}

/// The key that a manifest's own fields give.
fn key(manifest: &Manifest) -> String {
    let inputs: Vec<&str> = manifest
        .inputs
        .iter()
        .map(|(_, key)| key.as_str())
        .collect();
    digest(&json!({
        "stage": manifest.stage, "version": manifest.version, "settings": manifest.settings, "inputs": inputs,
    }))
}

/// The files of a published model, which are outside the store.
fn reference(folder: &Path, recorded: &mut Vec<Recorded>, problems: &mut Problems<'_>) {
    let path = folder.join(REFERENCE);
    if !path.exists() {
        return;
    }
    // One that can't be read has another hash than on record, which is told there.
    let Ok(bytes) = files::read(&path) else {
        return;
    };
    let Ok(reference) = serde_json::from_slice::<Reference>(&bytes) else {
        return;
    };
    for (path, bytes, sha256) in reference.hashed() {
        match sha256 {
            Some(sha256) if path.exists() => recorded.push(Recorded {
                path: path.to_path_buf(),
                bytes: Some(bytes),
                sha256: sha256.to_owned(),
            }),
            Some(_) => problems.note(&format!(
                "{} of the published model is not on this machine, and its hash was not compared",
                path.display()
            )),
            None => problems.note(&format!(
                "no hash of {} was recorded, so its content was not compared",
                path.display()
            )),
        }
    }
}
