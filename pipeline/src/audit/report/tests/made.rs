//! Made-up findings; their intervals are no one's.

use axmem_eval::estimate::{Contrast, ContrastKind, Estimate, Measure, Overlap};
use axmem_eval::record::Time;

use crate::audit::findings::{
    Difference, Findings, ModelFacts, Rate, Scored, Settings, Shown, TextFacts, TokenizerFacts,
};

const HOSTILE: &str = "</script><img onerror=\"alert(1)\" src=x>\u{202e}\u{7f}\u{0}&amp;";

fn model(name: &str) -> ModelFacts {
    ModelFacts {
        name: name.to_owned(),
        source: format!("models/{name}"),
        revision: None,
        parameters: 134_515_008,
        shape: "30 layers, hidden 576, 9 heads".to_owned(),
        stored: "bf16".to_owned(),
        files: vec![("model.safetensors".to_owned(), "ab".repeat(32))],
        notes: Vec::new(),
        tolerance: 1e-4,
    }
}

fn set(path: &str, documents: usize) -> TextFacts {
    TextFacts {
        path: path.to_owned(),
        sha256: "cd".repeat(32),
        read: documents + 60,
        scored: documents,
        clusters: documents,
        cut: 7,
        left_out: (0..60)
            .map(|index| {
                let reason = "has 40 ids, fewer than 100".to_owned();
                (format!("short-{index}"), reason)
            })
            .collect(),
        notes: Vec::new(),
    }
}

/// The rate of one cell, under each method; intervals are made up.
fn rates(
    set: &'static str,
    model: &'static str,
    prefix: &str,
    hits: u64,
    documents: u64,
) -> Vec<Rate> {
    let rate = hits as f64 / documents as f64;
    ["wilson", "clopper_pearson", "bootstrap"]
        .into_iter()
        .map(|method| Rate {
            set,
            model,
            estimate: Estimate {
                model: "smollm2".to_owned(),
                parameters: 134_515_008,
                family: String::new(),
                tokenizer: "tokenizer".to_owned(),
                arm: "audit".to_owned(),
                trial: "0".to_owned(),
                bucket: if set == "documents" { "1" } else { "control" }.to_owned(),
                exposures_nominal: 0,
                exposures_ledger: None,
                time: Time::After,
                suffix: 50,
                prefix: prefix.to_owned(),
                documents,
                clusters: documents,
                hits,
                fragile: 1,
                hits_without_fragile: hits.saturating_sub(1),
                hits_with_fragile: hits,
                token_accuracy: 0.41,
                mean_log_probability: -141.2,
                rate,
                low: (rate - 0.02).max(0.0),
                high: (rate + 0.05).min(1.0),
                level: 0.95,
                method: method.to_owned(),
                dtype: "f32".to_owned(),
            },
        })
        .collect()
}

fn shown(document: &str, exact: bool) -> Shown {
    let text = " the river bends twice before it meets\nthe sea, and the old mill stands";
    let (same, rest) = text.split_at(if exact { text.len() } else { 24 });
    let other = if exact { "" } else { "rice at the ford, where" };
    Shown {
        set: "documents",
        document: document.to_owned(),
        cluster: document.to_owned(),
        exact,
        fragile: !exact,
        matched_prefix: if exact { 50 } else { 31 },
        suffix: 50,
        log_probability: if exact { -0.9 } else { -812.0 },
        p_z: if exact { 0.406 } else { 0.0 },
        p_z_top_k: if exact { 0.41 } else { 0.0 },
        queries: if exact { 1.33 } else { f64::INFINITY },
        edit_distance: Some(if exact { 0 } else { 19 }),
        rouge_l_words: Some(if exact { 1.0 } else { 0.52 }),
        prefix_text: " and south of the last village".to_owned(),
        target_same: same.to_owned(),
        target_rest: rest.to_owned(),
        generated_same: same.to_owned(),
        generated_rest: other.to_owned(),
        prefix_elided: true,
        same_elided: false,
        target_elided: true,
        generated_elided: true,
    }
}

/// An audit of 100 documents or fewer without control and baseline.
pub(super) fn findings(hits: u64, documents: u64) -> Findings {
    let scored = (0..documents).map(|index| Scored {
        set: "documents",
        exact: index < hits,
        matched_prefix: if index < hits { 50 } else { index as u32 % 37 },
        log_probability: if index < hits {
            -0.9
        } else {
            -30.0 - 2.3 * index as f64
        },
    });
    let mut texts: Vec<Shown> = (0..hits.min(3))
        .map(|index| shown(&format!("page-{index}"), true))
        .collect();
    if hits < documents {
        let hostile = Shown {
            target_rest: format!("ends {HOSTILE}"),
            generated_rest: HOSTILE.to_owned(),
            prefix_text: format!("  two spaces\t{HOSTILE}"),
            cluster: "pages".to_owned(),
            ..shown(&format!("miss {HOSTILE}"), false)
        };
        texts.extend([hostile, shown("miss-2", false)]);
    }
    Findings {
        version: "0.1.0".to_owned(),
        command: "axmem audit --model models/smollm2 --documents pages.jsonl".to_owned(),
        model: model("smollm2"),
        baseline: None,
        tokenizer: TokenizerFacts {
            source: "models/smollm2/tokenizer.json".to_owned(),
            sha256: "ef".repeat(32),
            ids: 49_152,
            bos: "never (the tokenizer's own policy)".to_owned(),
        },
        documents: set("pages.jsonl", documents as usize),
        control: None,
        settings: Settings {
            suffix: vec![50],
            prefix: vec!["all".to_owned()],
            min_prefix: 50,
            tokens: 512,
            batch: 8,
            grid: "1x1x1x1".to_owned(),
            dtype: "f32".to_owned(),
            level: 0.95,
            resamples: 10_000,
            seed: 0,
            fail_above: None,
            words: Some(25),
        },
        rates: rates("documents", "model", "all", hits, documents),
        differences: Vec::new(),
        contrasts: Vec::new(),
        overlap: Vec::new(),
        scored: scored.collect(),
        reproduced: texts
            .iter()
            .filter(|shown| shown.exact)
            .map(|shown| shown.document.clone())
            .collect(),
        shown: texts,
        not_shown: hits.saturating_sub(3) as usize,
        seconds: 93.4,
    }
}

/// The same with everything that can be asked for.
pub(super) fn full() -> Findings {
    let mut findings = findings(3, 100);
    findings.control = Some(set("control.jsonl", 100));
    findings.baseline = Some(model("smollm2-before"));
    findings.settings.prefix = ["all", "50", "100", "200", "400"]
        .map(str::to_owned)
        .to_vec();
    findings.settings.fail_above = Some(0.005);
    for (prefix, hits) in [("100", 1), ("200", 2), ("400", 3), ("50", 0)] {
        let more = rates("documents", "model", prefix, hits, 100);
        findings.rates.extend(more);
        findings
            .rates
            .extend(rates("control", "model", prefix, 0, 100));
    }
    findings
        .rates
        .extend(rates("control", "model", "all", 0, 100));
    findings
        .rates
        .extend(rates("documents", "baseline", "all", 1, 100));
    findings.scored.extend((0..100).map(|index| Scored {
        set: "control",
        exact: false,
        matched_prefix: index % 11,
        log_probability: -90.0 - f64::from(index),
    }));
    findings.differences = vec![Difference {
        model: "model",
        suffix: 50,
        prefix: "all".to_owned(),
        estimate: 0.03,
        low: -0.008,
        high: 0.084,
        p: 0.246,
        detectable: 0.05,
    }];
    let contrast = |kind, bucket: &str, method: &str| Contrast {
        model: "smollm2".to_owned(),
        arm: "audit".to_owned(),
        bucket: bucket.to_owned(),
        kind,
        measure: Measure::Exact,
        suffix: 50,
        prefix: "all".to_owned(),
        from: "initial".to_owned(),
        to: "after".to_owned(),
        estimate: 0.02,
        low: -0.01,
        high: 0.06,
        level: 0.95,
        p: Some(0.5),
        p_adjusted: Some(1.0),
        family: "secondary".to_owned(),
        method: method.to_owned(),
        detectable: Some(0.06),
        z: None,
        clusters: 100,
    };
    findings.contrasts = vec![
        contrast(ContrastKind::Paired, "1", "bootstrap+mcnemar"),
        contrast(ContrastKind::Paired, "control", "bootstrap+mcnemar"),
        contrast(ContrastKind::Did, "1", "bootstrap+permutation"),
    ];
    findings.overlap = vec![Overlap {
        model: "smollm2".to_owned(),
        arm: "audit".to_owned(),
        trial: "0".to_owned(),
        bucket: "1".to_owned(),
        suffix: 50,
        prefix: "all".to_owned(),
        from: Time::Initial,
        to: Time::After,
        kept: 1,
        gained: 2,
        lost: 0,
        never: 97,
        jaccard: Some(1.0 / 3.0),
    }];
    findings
}
