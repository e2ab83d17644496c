//! `summary.json`: the numbers of an audit, for scripts.

use serde_json::{Value, json};

use super::{set_name, verdict};
use crate::audit::findings::{Findings, Rate};

/// The summary; numbers that do not exist are null.
pub(in crate::audit) fn summary(findings: &Findings) -> Value {
    let contrasts: Vec<Value> = findings
        .contrasts
        .iter()
        .map(|row| {
            json!({
                "set": set_name(&row.bucket), "kind": row.kind.as_str(), "measure": row.measure.as_str(), "suffix": row.suffix,
                "prefix": row.prefix, "from": "baseline", "to": "model",
                "estimate": row.estimate, "low": row.low, "high": row.high, "level": row.level,
                "p": row.p, "p_adjusted": row.p_adjusted, "family": row.family,
                "method": row.method, "detectable": row.detectable, "clusters": row.clusters,
            })
        })
        .collect();
    let overlap: Vec<Value> = findings
        .overlap
        .iter()
        .map(|row| {
            json!({
                "set": set_name(&row.bucket), "suffix": row.suffix, "prefix": row.prefix,
                "from": "baseline", "to": "model", "kept": row.kept, "gained": row.gained,
                "lost": row.lost, "never": row.never, "jaccard": row.jaccard,
            })
        })
        .collect();
    json!({
        "audit": findings.model.name,
        "version": findings.version,
        "command": findings.command,
        "models": { "model": findings.model, "baseline": findings.baseline },
        "tokenizer": findings.tokenizer,
        "documents": findings.documents,
        "control": findings.control,
        "settings": findings.settings,
        "estimates": findings.rates.iter().map(estimate).collect::<Vec<Value>>(),
        "differences": findings.differences,
        "contrasts": contrasts,
        "overlap": overlap,
        "reproduced": findings.reproduced,
        "verdict": verdict(findings).map(|verdict| verdict.as_str()),
        "seconds": findings.seconds,
    })
}

fn estimate(rate: &Rate) -> Value {
    let row = &rate.estimate;
    json!({
        "set": rate.set, "model": rate.model, "parameters": row.parameters,
        "tokenizer": row.tokenizer, "suffix": row.suffix, "prefix": row.prefix,
        "documents": row.documents, "clusters": row.clusters, "hits": row.hits,
        "fragile": row.fragile, "hits_without_fragile": row.hits_without_fragile,
        "hits_with_fragile": row.hits_with_fragile, "token_accuracy": row.token_accuracy,
        "mean_log_probability": row.mean_log_probability, "rate": row.rate, "low": row.low,
        "high": row.high, "level": row.level, "method": row.method, "dtype": row.dtype,
    })
}
