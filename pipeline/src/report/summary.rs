//! `summary.json`: the estimates, contrasts and overlap of a run, for scripts.
//!
//! Owns: the schema of that file. Rows are those of the tables, nothing left out.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::Inputs;
use super::study::{CreatedAfter, Study};
use super::tables::Estimate;

/// The answers of a ladder; null in a study of one model.
fn thresholds(study: &Study) -> Value {
    if study.thresholds.is_empty() {
        return Value::Null;
    }
    let rows = study.thresholds.iter().map(|row| {
        json!({
            "arm": row.arm, "suffix": row.suffix, "prefix": row.prefix, "family": row.family,
            "rate": row.rate, "exposures": row.exposures, "rungs": row.rungs,
            "documents": row.documents, "gained": row.gained,
            "control_documents": row.control_documents, "control_gained": row.control_gained,
            "place": row.place.as_str(), "parameters": row.parameters,
            "rung_below": row.rung_below, "rung_above": row.rung_above,
            "low_place": row.low_place.as_str(), "low": row.low,
            "high_place": row.high_place.as_str(), "high": row.high, "level": row.level,
            "identified": row.identified, "coefficients": row.coefficients,
            "centre": row.centre, "clusters": row.clusters,
        })
    });
    rows.collect()
}

/// Where generations leave the text under the masks of the Goldfish arms.
fn hazards(study: &Study) -> Value {
    let rows = study.hazards.iter().map(|row| {
        json!({
            "model": row.model, "arm": row.arm, "mask": row.mask, "bucket": row.bucket,
            "time": row.time.as_str(), "suffix": row.suffix, "prefix": row.prefix,
            "dropped": row.dropped, "dropped_left": row.dropped_left, "kept": row.kept,
            "kept_left": row.kept_left, "dropped_hazard": row.dropped_hazard,
            "kept_hazard": row.kept_hazard, "difference": row.difference, "low": row.low,
            "high": row.high, "level": row.level, "clusters": row.clusters,
        })
    });
    rows.collect()
}

fn rates(estimates: &[Estimate]) -> Value {
    let rows = estimates.iter().map(|row| {
        json!({
            "model": row.model, "parameters": row.parameters, "family": row.family,
            "tokenizer": row.tokenizer, "arm": row.arm, "trial": row.trial,
            "bucket": row.bucket, "exposures_nominal": row.exposures_nominal,
            "exposures_ledger": row.exposures_ledger, "time": row.time,
            "suffix": row.suffix, "prefix": row.prefix, "documents": row.documents,
            "clusters": row.clusters, "hits": row.hits, "fragile": row.fragile,
            "rate": row.rate, "low": row.low, "high": row.high, "level": row.level,
            "method": row.method, "dtype": row.dtype,
        })
    });
    rows.collect()
}

/// The second control: what it was drawn from, and its rates.
fn created_after(group: &CreatedAfter) -> Result<Value> {
    let mut excluded: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &group.exclusions {
        *excluded.entry(&row.reason).or_default() += 1;
    }
    let counts =
        serde_json::to_value(group.counts).context("what the second control was drawn from")?;
    Ok(json!({
        "documents": group.snapshot_runs.len(), "counts": counts, "excluded": excluded,
        "estimates": rates(&group.estimates),
    }))
}

/// Renders the file; numbers that do not exist are null.
pub(super) fn render(inputs: &Inputs, study: &Study) -> Result<String> {
    let estimates = rates(&study.estimates);
    let contrasts: Vec<Value> = study
        .contrasts
        .iter()
        .map(|row| {
            json!({
                "model": row.model, "arm": row.arm, "bucket": row.bucket, "kind": row.kind,
                "measure": row.measure,
                "suffix": row.suffix, "prefix": row.prefix, "from": row.from, "to": row.to,
                "estimate": row.estimate, "low": row.low, "high": row.high, "level": row.level,
                "p": row.p, "p_adjusted": row.p_adjusted, "family": row.family,
                "method": row.method, "detectable": row.detectable, "z": row.z, "clusters": row.clusters,
            })
        })
        .collect();
    let overlap: Vec<Value> = study
        .overlap
        .iter()
        .map(|row| {
            json!({
                "model": row.model, "arm": row.arm, "trial": row.trial, "bucket": row.bucket,
                "suffix": row.suffix, "prefix": row.prefix, "from": row.from, "to": row.to,
                "kept": row.kept, "gained": row.gained, "lost": row.lost, "never": row.never,
                "jaccard": row.jaccard,
            })
        })
        .collect();
    let artefacts: Map<String, Value> = inputs
        .artefacts
        .iter()
        .map(|artefact| (artefact.stage.clone(), Value::from(artefact.key.clone())))
        .collect();
    let mut summary = json!({
        "experiment": inputs.name,
        "version": inputs.version,
        "estimates": estimates,
        "contrasts": contrasts,
        "overlap": overlap,
        "threshold": thresholds(study),
        "hazards": hazards(study),
        "seconds": inputs.seconds,
        "artefacts": artefacts,
    });
    // Studies without a second control have no such key.
    if let Some(group) = &study.created_after {
        summary["created_after"] = created_after(group)?;
    }
    let mut text =
        serde_json::to_string_pretty(&summary).context("cannot write the summary as JSON")?;
    text.push('\n');
    Ok(text)
}
