//! The tables of one run together, with the questions the report asks of them.
//!
//! Owns: reading all inputs, the order of models, arms and levels, and look-ups by key. It picks
//! rows; it may not compute anything from them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use axmem_datasets::contamination::Contamination;
use axmem_datasets::created_after::{Counts, SnapshotRun};
use axmem_datasets::files;
use axmem_datasets::near_duplicates::NearDuplicate;
use axmem_datasets::table::{self, Record};
use axmem_eval::coverage::bootstrap_deviation;
use axmem_eval::estimate::{Curve, Hazard, Threshold};
use serde_json::Value;

use super::tables::{
    self, Contrast, Estimate, Exclusion, Exposure, Overlap, Score, Step, Timing, TokenRow,
    Transition, Validation,
};
use super::{Inputs, Joined};

/// The measure of exact match in the table of contrasts.
pub(super) const EXACT: &str = "exact";
/// The kind of contrast between neighbouring models.
pub(super) const SIZE: &str = "size";
/// The measure of the suffix's log-probability.
pub(super) const LOG_PROBABILITY: &str = "log_probability";

/// The analysis settings the summary is built on.
#[derive(Clone, Debug)]
pub(super) struct Primary {
    pub from: String,
    pub to: String,
    pub suffix: u32,
    pub prefix: String,
    /// Nominal exposures of the treated bucket.
    pub exposures: u32,
    /// Name of that bucket in the tables.
    pub bucket: String,
    /// Kind of the primary contrast, e.g. `did`.
    pub contrast: String,
    /// What it compares: `exact` or `log_probability`.
    pub measure: String,
    pub level: f64,
    pub margin: f64,
    /// Resamples of an interval, and permutations of a test.
    pub resamples: u64,
}

/// All tables, read.
#[derive(Clone, Debug)]
pub(super) struct Study {
    pub estimates: Vec<Estimate>,
    pub contrasts: Vec<Contrast>,
    pub thresholds: Vec<Threshold>,
    pub hazards: Vec<Hazard>,
    pub curves: Vec<Curve>,
    pub overlap: Vec<Overlap>,
    pub transitions: Vec<Transition>,
    pub scores: Vec<Score>,
    pub steps: Vec<Step>,
    pub timings: Vec<Timing>,
    pub validation: Vec<Validation>,
    /// One ledger per training run.
    pub exposures: Vec<Vec<Exposure>>,
    pub tokens: Vec<TokenRow>,
    pub exclusions: Vec<Exclusion>,
    pub near_duplicates: Vec<NearDuplicate>,
    pub contamination: Vec<Contamination>,
    pub created_after: Option<CreatedAfter>,
    /// Title of each document and window.
    pub titles: BTreeMap<String, String>,
    /// Documents of the corpus by origin.
    pub origins: BTreeMap<String, u64>,
    /// From small to large.
    pub models: Vec<String>,
    /// Trained arms, in the order of the tables, the reference first.
    pub arms: Vec<String>,
    /// Nominal exposures with their bucket name, rising; 0 is the control.
    pub levels: Vec<(u32, String)>,
    /// Prefixes that were scored, in the order of the tables.
    pub prefixes: Vec<String>,
    pub primary: Primary,
    /// The arm that the others are compared with, if it is in the tables.
    pub reference: Option<String>,
    /// Arms of the Goldfish loss.
    pub goldfish: Vec<String>,
    /// Power of the smallest detectable effects.
    pub power: f64,
    /// Training started from random weights, so that `initial` is no baseline.
    pub random: bool,
    /// Models have peak rates of their own.
    pub rates_differ: bool,
    /// The studies that are joined; none in the report of one study.
    pub joined: Vec<Joined>,
}

/// The tables of the second control, which is in none of the others.
#[derive(Clone, Debug)]
pub(super) struct CreatedAfter {
    pub estimates: Vec<Estimate>,
    pub exclusions: Vec<Exclusion>,
    pub snapshot_runs: Vec<SnapshotRun>,
    pub contamination: Vec<Contamination>,
    pub counts: Counts,
}

impl CreatedAfter {
    /// Reads them; the titles of the documents join those of the study.
    fn read(inputs: &super::CreatedAfter, titles: &mut BTreeMap<String, String>) -> Result<Self> {
        let documents = tables::token_rows(&inputs.documents)?.into_iter();
        titles.extend(documents.map(|row| (row.document, row.title)));
        let counts = files::read_to_string(&inputs.counts)?;
        Ok(Self {
            estimates: tables::estimates(&inputs.estimates)?,
            exclusions: tables::exclusions(&inputs.exclusions)?,
            snapshot_runs: records(&inputs.snapshot_runs)?,
            contamination: records(&inputs.contamination)?,
            counts: serde_json::from_str(&counts)
                .with_context(|| format!("{} can't be read", inputs.counts.display()))?,
        })
    }
}

fn read_all<T>(
    paths: &[std::path::PathBuf],
    read: impl Fn(&std::path::Path) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(read(path)?);
    }
    Ok(rows)
}

/// Reads a table of the data stages as its own crate does.
fn records<R: Record>(path: &std::path::Path) -> Result<Vec<R>> {
    Ok(table::read(path)?)
}

/// A table that not every study has.
fn optional<R: Record>(path: Option<&std::path::Path>) -> Result<Vec<R>> {
    path.map_or_else(|| Ok(Vec::new()), records)
}

/// Values in the order of their first appearance.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for value in values {
        if !seen.iter().any(|old| old == value) {
            seen.push(value.to_owned());
        }
    }
    seen
}

impl Study {
    /// Reads every table of `inputs`.
    pub(super) fn read(inputs: &Inputs) -> Result<Self> {
        let estimates = tables::estimates(&inputs.estimates)?;
        let tokens = match &inputs.tokens {
            Some(path) => tables::token_rows(path)?,
            None => Vec::new(),
        };
        let mut titles = BTreeMap::new();
        let mut origins = BTreeMap::new();
        if let Some(path) = &inputs.documents {
            for (id, title, origin) in tables::titles(path)? {
                titles.insert(id, title);
                *origins.entry(origin).or_default() += 1;
            }
        }
        for row in &tokens {
            titles.insert(row.document.clone(), row.title.clone());
            if inputs.documents.is_none() {
                *origins.entry(row.origin.clone()).or_default() += 1;
            }
        }
        let created_after = inputs
            .created_after
            .as_ref()
            .map(|inputs| CreatedAfter::read(inputs, &mut titles))
            .transpose()?;
        let exposures = inputs
            .exposures
            .iter()
            .map(|path| tables::exposures(path))
            .collect::<Result<_>>()?;

        let mut levels: Vec<(u32, String)> = Vec::new();
        for row in &estimates {
            if !levels.iter().any(|(_, bucket)| *bucket == row.bucket) {
                levels.push((row.exposures_nominal, row.bucket.clone()));
            }
        }
        levels.sort();
        let primary = Primary::new(&inputs.experiment, &estimates, &levels);
        let mut models = distinct(estimates.iter().map(|row| row.model.as_str()));
        models.sort_by_key(|model| {
            let row = estimates.iter().find(|row| row.model == *model);
            row.map_or(0, |row| row.parameters)
        });
        let prefixes = distinct(estimates.iter().map(|row| row.prefix.as_str()));
        let mut arms = distinct(
            estimates
                .iter()
                .filter(|row| row.time == primary.to)
                .map(|row| row.arm.as_str()),
        );
        let reference = inputs.reference.clone().filter(|arm| arms.contains(arm));
        arms.sort_by_key(|arm| Some(arm) != reference.as_ref());
        Ok(Self {
            contrasts: tables::contrasts(&inputs.contrasts)?,
            overlap: tables::overlap(&inputs.overlap)?,
            transitions: tables::transitions(&inputs.transitions)?,
            thresholds: optional(inputs.thresholds.as_deref())?,
            curves: optional(inputs.curves.as_deref())?,
            hazards: optional(inputs.hazards.as_deref())?,
            scores: read_all(&inputs.scores, tables::scores)?,
            steps: read_all(&inputs.steps, tables::steps)?,
            timings: read_all(&inputs.timings, tables::timings)?,
            validation: read_all(&inputs.validation, tables::validation)?,
            exclusions: match &inputs.exclusions {
                Some(path) => tables::exclusions(path)?,
                None => Vec::new(),
            },
            near_duplicates: read_all(inputs.near_duplicates.as_slice(), records)?,
            contamination: read_all(inputs.contamination.as_slice(), records)?,
            created_after,
            random: is_random(&inputs.experiment),
            rates_differ: rates_differ(&inputs.experiment),
            joined: inputs.joined.clone(),
            estimates,
            exposures,
            tokens,
            titles,
            origins,
            models,
            arms,
            levels,
            prefixes,
            primary,
            reference,
            goldfish: inputs.goldfish.clone(),
            power: inputs.power,
        })
    }

    /// Estimates of one cell at the primary suffix and prefix, one per method. A baseline is
    /// shared by the arms: where the table has it only once, any arm finds it.
    pub(super) fn cell<'a>(
        &'a self,
        model: &str,
        arm: &str,
        trial: &str,
        bucket: &str,
        time: &str,
    ) -> Vec<&'a Estimate> {
        self.cell_behind(&self.primary.prefix, model, arm, trial, bucket, time)
    }

    /// Those of one prefix.
    fn cell_behind<'a>(
        &'a self,
        prefix: &str,
        model: &str,
        arm: &str,
        trial: &str,
        bucket: &str,
        time: &str,
    ) -> Vec<&'a Estimate> {
        let found: Vec<&Estimate> = self
            .estimates
            .iter()
            .filter(|row| {
                row.model == model
                    && row.trial == trial
                    && row.bucket == bucket
                    && row.time == time
                    && row.suffix == self.primary.suffix
                    && row.prefix == prefix
            })
            .collect();
        let own: Vec<&Estimate> = found.iter().filter(|row| row.arm == arm).copied().collect();
        if !own.is_empty()
            || self
                .arms
                .iter()
                .any(|one| found.iter().any(|row| row.arm == *one))
        {
            return own;
        }
        found
    }

    /// The trial label under which a model's cells are summarised: `pooled` where the table has
    /// it, else its only trial.
    pub(super) fn summary_trial(&self, model: &str) -> String {
        let trials = self.trials(model);
        if trials.len() != 1 && self.has_pooled(model) {
            return "pooled".to_owned();
        }
        trials
            .first()
            .cloned()
            .unwrap_or_else(|| "pooled".to_owned())
    }

    fn has_pooled(&self, model: &str) -> bool {
        self.estimates
            .iter()
            .any(|row| row.model == model && row.trial == "pooled")
    }

    /// Labels of the single trials of a model.
    pub(super) fn trials(&self, model: &str) -> Vec<String> {
        distinct(
            self.estimates
                .iter()
                .filter(|row| row.model == model && row.trial != "pooled")
                .map(|row| row.trial.as_str()),
        )
    }

    /// Trials of the model that has most.
    pub(super) fn most_trials(&self) -> usize {
        let trials = self.models.iter().map(|model| self.trials(model).len());
        trials.max().unwrap_or(0)
    }

    /// Whether every document was at every level in turn.
    pub(super) fn is_complete(&self) -> bool {
        self.models
            .iter()
            .all(|model| self.trials(model).len() == self.levels.len())
    }

    /// Place of a model in the order of sizes.
    pub(super) fn model_order(&self, model: &str) -> usize {
        let place = self.models.iter().position(|name| name == model);
        place.unwrap_or(self.models.len())
    }

    /// Mean held-out loss of every trial, nats per token; before training it is that of all arms.
    pub(super) fn held_out(&self, model: &str, arm: &str, time: &str) -> Vec<f64> {
        let rows = self.validation.iter().filter(|row| {
            row.model == model && [arm, ""].contains(&row.arm.as_str()) && row.time == time
        });
        rows.map(|row| row.loss).collect()
    }

    /// The estimate that stands for a cell in sentences and figures: over several trials the
    /// bootstrap over clusters, which holds the trials of a cluster together, unless it covers too
    /// little or too much in simulation; else Wilson; where that one is missing, the first with an
    /// interval.
    pub(super) fn estimate(
        &self,
        model: &str,
        arm: &str,
        bucket: &str,
        time: &str,
    ) -> Option<&Estimate> {
        self.estimate_behind(&self.primary.prefix, model, arm, bucket, time)
    }

    /// That of one prefix.
    pub(super) fn estimate_behind(
        &self,
        prefix: &str,
        model: &str,
        arm: &str,
        bucket: &str,
        time: &str,
    ) -> Option<&Estimate> {
        let trial = self.summary_trial(model);
        let cell = self.cell_behind(prefix, model, arm, &trial, bucket, time);
        let pooled = trial == "pooled" && self.trials(model).len() > 1;
        cell.iter()
            .find(|row| pooled && row.low.is_some() && bootstrap_holds(row))
            .or_else(|| cell.iter().find(|row| row.method == "wilson"))
            .or_else(|| cell.iter().find(|row| row.low.is_some()))
            .or_else(|| cell.first())
            .copied()
    }

    /// The primary contrast of an arm in one measure: the row with an interval, at the primary settings.
    pub(super) fn primary_contrast(
        &self,
        model: &str,
        arm: &str,
        measure: &str,
    ) -> Option<&Contrast> {
        let primary = &self.primary;
        self.contrasts
            .iter()
            .filter(|row| {
                row.model == model
                    && row.arm == arm
                    && row.bucket == primary.bucket
                    && row.kind == primary.contrast
                    && row.measure == measure
                    && row.suffix == primary.suffix
                    && row.prefix == primary.prefix
                    && row.from == primary.from
                    && row.to == primary.to
            })
            .max_by_key(|row| row.low.is_some() && row.high.is_some())
    }

    /// The contrast of one kind and measure between the primary times, of one bucket.
    pub(super) fn contrast(
        &self,
        kind: &str,
        model: &str,
        arm: &str,
        bucket: &str,
        measure: &str,
    ) -> Option<&Contrast> {
        let primary = &self.primary;
        self.contrasts.iter().find(|row| {
            (row.kind.as_str(), row.model.as_str(), row.arm.as_str()) == (kind, model, arm)
                && row.bucket == bucket
                && row.measure == measure
                && row.suffix == primary.suffix
                && row.prefix == primary.prefix
                && row.from == primary.from
                && row.to == primary.to
        })
    }

    /// Number of parameters of a model.
    pub(super) fn parameters(&self, model: &str) -> u64 {
        let row = self.estimates.iter().find(|row| row.model == model);
        row.map_or(0, |row| row.parameters)
    }

    /// Name of the control bucket, if there is one.
    pub(super) fn control(&self) -> Option<&str> {
        self.levels
            .first()
            .filter(|(exposures, _)| *exposures == 0)
            .map(|(_, bucket)| bucket.as_str())
    }

    /// Title of a document, or its id.
    pub(super) fn title<'a>(&'a self, document: &'a str) -> &'a str {
        let article = || document.rsplit_once('#').map_or(document, |(id, _)| id);
        self.titles
            .get(document)
            .or_else(|| self.titles.get(article()))
            .filter(|title| !title.is_empty())
            .map_or(document, String::as_str)
    }
}

impl Primary {
    fn new(experiment: &Value, estimates: &[Estimate], levels: &[(u32, String)]) -> Self {
        let at = |pointer: &str| experiment.pointer(pointer);
        let text = |pointer: &str, default: &str| {
            at(pointer)
                .and_then(Value::as_str)
                .unwrap_or(default)
                .to_owned()
        };
        let suffix = at("/analysis/primary/suffix")
            .and_then(Value::as_u64)
            .map(|suffix| suffix as u32)
            .or_else(|| estimates.iter().map(|row| row.suffix).min())
            .unwrap_or(50);
        let largest = levels.last().map_or(0, |(exposures, _)| *exposures);
        let exposures = at("/analysis/primary/exposures")
            .and_then(Value::as_u64)
            .map_or(largest, |exposures| exposures as u32);
        let prefixes = distinct(estimates.iter().map(|row| row.prefix.as_str()));
        Self {
            from: text("/analysis/primary/time/0", "warm"),
            to: text("/analysis/primary/time/1", "after"),
            suffix,
            prefix: if prefixes.iter().any(|prefix| prefix == "all") {
                "all".to_owned()
            } else {
                prefixes.first().cloned().unwrap_or_default()
            },
            exposures,
            bucket: levels
                .iter()
                .find(|(level, _)| *level == exposures)
                .map_or_else(|| exposures.to_string(), |(_, bucket)| bucket.clone()),
            contrast: text("/analysis/primary/contrast", "did"),
            measure: text("/analysis/primary/measure", EXACT),
            level: at("/analysis/level")
                .and_then(Value::as_f64)
                .unwrap_or(0.95),
            margin: at("/analysis/margin")
                .and_then(Value::as_f64)
                .unwrap_or(0.05),
            resamples: at("/analysis/resamples")
                .and_then(Value::as_u64)
                .unwrap_or(10_000),
        }
    }
}

/// Whether a row is a bootstrap interval that covers about what it says, or what stands in for one.
fn bootstrap_holds(row: &Estimate) -> bool {
    match row.method.as_str() {
        "bootstrap" => bootstrap_deviation(row.clusters, row.documents, row.rate).is_none(),
        "bootstrap_wilson" => true,
        _ => false,
    }
}

/// Whether any model of the experiment starts from random weights.
fn is_random(experiment: &Value) -> bool {
    match experiment.get("model").or_else(|| experiment.get("models")) {
        Some(Value::Array(models)) => models.iter().any(|model| model.get("random").is_some()),
        Some(model) => model.get("random").is_some_and(|random| !random.is_null()),
        None => false,
    }
}

fn rates_differ(experiment: &Value) -> bool {
    let models = experiment.get("models").and_then(Value::as_array);
    models.is_some_and(|models| {
        models
            .windows(2)
            .any(|pair| pair[0].get("rate") != pair[1].get("rate"))
    })
}
