//! The scores themselves: whether each follows from its own ids and probabilities, and is about the document it names.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use axmem_datasets::bucket::Assignment;
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::table;
use axmem_eval::ScoreRow;
use axmem_eval::estimate::ProbeRow;

use super::compare::Change;
use super::problem::Problems;

/// Looks for contradictions inside the scores of a file.
pub(super) fn contradictions(path: &Path, rows: &[ScoreRow], problems: &mut Problems<'_>) {
    for (index, row) in rows.iter().enumerate() {
        for contradiction in row.score.contradictions() {
            let place = format!("{}, {}", name(index, row), contradiction.place);
            let (found, follows) = (contradiction.found, contradiction.follows);
            problems.tell_change(path, &Change::computed(place, Some(found), Some(follows)));
        }
    }
}

/// Compares what a training reproduced after its last step with the scores of the weights it left.
pub(super) fn last_probes(
    path: &Path,
    probes: &[ProbeRow],
    scores: &[ScoreRow],
    problems: &mut Problems<'_>,
) {
    let last = probes.iter().map(|row| row.step).max();
    let of_last: HashMap<_, _> = (1..)
        .zip(probes)
        .filter(|(_, row)| Some(row.step) == last)
        .map(|(number, row)| ((&row.document, &row.prefix), (number, row)))
        .collect();
    for row in scores {
        let score = &row.score;
        let Some((number, probe)) = of_last.get(&(&score.document, &score.prefix)) else {
            continue;
        };
        let place = format!("row {number} ({}, last step)", score.document);
        if probe.exact != score.exact {
            let [found, expected] = [&probe.exact, &score.exact].map(|flags| format!("{flags:?}"));
            let place = format!("{place}, exact");
            problems.tell_change(path, &Change::recorded(place, found, expected));
        }
        if probe.log_probability != score.log_probability {
            let [found, expected] =
                [&probe.log_probability, &score.log_probability].map(|logs| format!("{logs:?}"));
            let place = format!("{place}, log_probability");
            problems.tell_change(path, &Change::recorded(place, found, expected));
        }
    }
}

/// What a study knows of the documents that were scored.
pub(super) struct Documents {
    ids: HashMap<String, Vec<u32>>,
    /// Cluster and level by trial and document.
    levels: HashMap<(u32, String), (String, u32)>,
}

impl Documents {
    /// Reads the tables `tokens` and `buckets`.
    pub(super) fn read(tokens: &Path, buckets: &Path) -> Result<Self> {
        let rows: Vec<TokenDocument> = table::read(tokens)?;
        let assignments: Vec<Assignment> = table::read(buckets)?;
        Ok(Self {
            ids: rows
                .into_iter()
                .map(|row| (row.document, row.ids))
                .collect(),
            levels: assignments
                .into_iter()
                .map(|row| ((row.trial, row.document), (row.cluster, row.epochs)))
                .collect(),
        })
    }

    /// Reads the documents of the second control, which are at level 0 in every trial.
    pub(super) fn created_after(path: &Path, trials: u32) -> Result<Self> {
        let rows: Vec<TokenDocument> = table::read(path)?;
        let levels = (0..trials).flat_map(|trial| {
            let rows = rows.iter();
            rows.map(move |row| ((trial, row.document.clone()), (row.cluster.clone(), 0)))
        });
        Ok(Self {
            levels: levels.collect(),
            ids: rows
                .into_iter()
                .map(|row| (row.document, row.ids))
                .collect(),
        })
    }

    /// Compares the scores of a file with the documents that they name.
    pub(super) fn compare(&self, path: &Path, rows: &[ScoreRow], problems: &mut Problems<'_>) {
        for (index, row) in rows.iter().enumerate() {
            let mut field = |field: &str, found: String, expected: String| {
                if found != expected {
                    let place = format!("{}, {field}", name(index, row));
                    problems.tell_change(path, &Change::recorded(place, found, expected));
                }
            };
            let score = &row.score;
            let Some((cluster, epochs)) = self.levels.get(&(row.trial, score.document.clone()))
            else {
                field(
                    "document",
                    score.document.clone(),
                    "in no bucket".to_owned(),
                );
                continue;
            };
            field("cluster", score.cluster.clone(), cluster.clone());
            field("epochs", row.epochs.to_string(), epochs.to_string());
            let ids = self.ids.get(&score.document).map_or(&[][..], Vec::as_slice);
            let suffix = &ids[ids.len().saturating_sub(score.target.len())..];
            field(
                "target",
                format!("{:?}", score.target),
                format!("{suffix:?}"),
            );
        }
    }
}

fn name(index: usize, row: &ScoreRow) -> String {
    let score = &row.score;
    format!(
        "row {} (trial {}, {}, prefix {})",
        index + 1,
        row.trial,
        score.document,
        score.prefix
    )
}
