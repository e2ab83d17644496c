//! `report`: hands the tables of the study to the report writer.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Context;
use super::created_after;
use super::estimate::{self, POWER};
use crate::certify;
use crate::experiment::{Arm, Experiment};
use crate::plan::Stage;
use crate::record::Record;
use crate::report::{self, Artefact, Inputs};
use crate::store::Manifest;

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let mut manifests = BTreeMap::new();
    for (index, node) in context.plan.nodes.iter().enumerate() {
        if node.stage != Stage::Report {
            manifests.insert(index, manifest(context, index)?);
        }
    }
    let estimate = context.input(Stage::Estimate);
    let inputs = inputs(context, &manifests, &estimate, env!("AXMEM_VERSION"))?;
    report::write(&inputs, context.folder)?;
    Record::new(context)?.write(context.folder)
}

/// What the report of a study is made from: its artefacts with their manifests, and the folder of the tables of the stage
/// `estimate`, which `verify` has computed again. `version` is that of the program which made the report.
pub(crate) fn inputs(
    context: &Context<'_>,
    manifests: &BTreeMap<usize, Manifest>,
    estimate: &Path,
    version: &str,
) -> Result<Inputs> {
    let experiment = context.experiment;
    let of = |index: usize| {
        let found = manifests.get(&index);
        found.with_context(|| format!("{} is not complete", context.artefact(index).display()))
    };
    let tables = |stages: &[Stage], name: &str| {
        let nodes = context.plan.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| stages.contains(&node.stage))
            .map(|(index, _)| context.artefact(index).join(name))
            .collect::<Vec<_>>()
    };
    let mut artefacts = Vec::new();
    let mut seconds = 0.0;
    for (index, node) in context.plan.nodes.iter().enumerate() {
        if node.stage == Stage::Report {
            continue;
        }
        let dir = context.artefact(index);
        seconds += of(index)?.seconds;
        artefacts.push(Artefact {
            stage: node.to_string(),
            key: node.key.clone(),
            dir,
        });
    }
    let buckets = context.plan.input(context.node, Stage::Buckets);
    let sealed = &of(buckets.context("a report has buckets")?)?.sealed;
    Ok(Inputs {
        name: experiment.name.clone(),
        version: version.to_owned(),
        joined: Vec::new(),
        experiment: serde_json::to_value(experiment).context("the resolved experiment")?,
        reference: experiment
            .train
            .arms
            .iter()
            .find(|arm| **arm == Arm::Standard)
            .map(|arm| arm.name().to_owned()),
        goldfish: experiment
            .train
            .arms
            .iter()
            .filter(|arm| matches!(arm, Arm::Goldfish(_)))
            .map(|arm| arm.name().to_owned())
            .collect(),
        power: POWER,
        artefacts,
        estimates: estimate.join(estimate::ESTIMATES),
        contrasts: estimate.join(estimate::CONTRASTS),
        overlap: estimate.join(estimate::OVERLAP),
        transitions: estimate.join(estimate::TRANSITIONS),
        hazards: Some(estimate.join(estimate::HAZARDS)),
        curves: experiment
            .train
            .probes
            .is_some()
            .then(|| estimate.join(estimate::CURVES)),
        thresholds: experiment
            .analysis
            .threshold
            .is_some()
            .then(|| estimate.join(estimate::THRESHOLDS)),
        scores: vec![estimate.join(estimate::SCORES)],
        steps: tables(&[Stage::Warmup, Stage::Train], "steps.parquet"),
        timings: tables(&[Stage::Warmup, Stage::Train], "timings.parquet"),
        certificate: experiment
            .certificate
            .is_some()
            .then(|| certify::path(context.store, experiment)),
        validation: tables(&[Stage::Score], "validation.parquet"),
        exposures: vec![estimate.join(estimate::EXPOSURES)],
        documents: Some(context.input(Stage::Corpus).join("documents.parquet")),
        tokens: Some(context.input(Stage::Tokens).join("tokens.parquet")),
        tokenizer: Some(context.input(Stage::Tokens).join("tokenizer.json")),
        exclusions: Some(context.input(Stage::Buckets).join("exclusions.parquet")),
        near_duplicates: Some(context.input(Stage::Tokens).join("near_duplicates.parquet")),
        contamination: Some(context.input(Stage::Buckets).join("contamination.parquet")),
        created_after: experiment.created_after.as_ref().map(|_| {
            let drawn = context.input(Stage::CreatedAfter);
            report::CreatedAfter {
                estimates: estimate.join(estimate::CREATED_AFTER_ESTIMATES),
                documents: drawn.join(created_after::DOCUMENTS),
                exclusions: drawn.join(created_after::EXCLUSIONS),
                snapshot_runs: drawn.join(created_after::SNAPSHOT_RUNS),
                contamination: drawn.join(created_after::CONTAMINATION),
                counts: drawn.join(created_after::COUNTS),
            }
        }),
        deviations: deviations(sealed, experiment)?,
        seconds,
    })
}

fn manifest(context: &Context<'_>, index: usize) -> Result<Manifest> {
    let folder = context.artefact(index);
    let found = context.store.find(&folder)?;
    found.with_context(|| format!("{} is not complete", folder.display()))
}

/// Where the analysis is another than the one sealed with the buckets.
fn deviations(sealed: &Value, experiment: &Experiment) -> Result<Vec<String>> {
    let now = serde_json::to_value(&experiment.analysis).context("the analysis")?;
    let mut found = Vec::new();
    differences("analysis", &sealed["analysis"], &now, &mut found);
    Ok(found)
}

fn differences(path: &str, sealed: &Value, now: &Value, found: &mut Vec<String>) {
    match (sealed, now) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in after {
                let old = before.get(key).unwrap_or(&Value::Null);
                differences(&format!("{path}.{key}"), old, value, found);
            }
        }
        _ if sealed != now => {
            found.push(format!(
                "{path} was {sealed} before training and is {now} in this report"
            ));
        }
        _ => {}
    }
}
