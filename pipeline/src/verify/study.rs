//! A study: all artefacts of its plan, the tables of `estimate`, and the report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::files;
use axmem_datasets::table::{self, Record as Row};
use axmem_eval::ScoreRow;
use serde_json::{Value, json};

use super::artefacts::{self, Expected};
use super::compare::{self, Change};
use super::hashes::{self, Recorded};
use super::problem::Problems;
use super::records::{self, Documents};
use super::{Looked, SUMMARY, bytes_of, json_of, shown};
use crate::certify;
use crate::experiment::Time;
use crate::plan::{Node, Plan, Stage};
use crate::record::{RECORD, Record};
use crate::report;
use crate::run;
use crate::stages::estimate::{self, Tables};
use crate::stages::report::inputs;
use crate::stages::training;
use crate::stages::{self, Context, Teller};
use crate::store::{MANIFEST, Manifest, Store};

/// Files of the artefacts that the tables of `estimate` are computed from.
const OF_TABLES: [&str; 8] = [
    "scores.parquet",
    "buckets.parquet",
    "schedule.parquet",
    "probes.parquet",
    "config.json",
    "tokens.parquet",
    "tokenizer.json",
    stages::created_after::DOCUMENTS,
];
/// Files of the artefacts that the report needs besides.
const OF_REPORT: [&str; 8] = [
    "manifest.json",
    "documents.parquet",
    "exclusions.parquet",
    "steps.parquet",
    "timings.parquet",
    "validation.parquet",
    stages::created_after::SNAPSHOT_RUNS,
    stages::created_after::COUNTS,
];

/// Verifies the study whose report is in `folder`.
pub(super) fn verify(folder: &Path, problems: &mut Problems<'_>) -> Result<Looked> {
    let root = folder.parent().unwrap_or(folder);
    let store = Store::new(root);
    let Some(record) = find_record(&store, folder, problems)? else {
        return without_record(&store, folder, problems);
    };
    problems.made_by(&record.program);
    let plan = Plan::new(&record.experiment);
    let study = Study {
        folder,
        plan: &plan,
        record: &record,
        store: &store,
    };
    let mut recorded = Vec::new();
    let manifests = study.look(&mut recorded, problems)?;
    let files = recorded.len();
    let bytes = hashes::check(recorded, problems);
    let temporary = tempfile::tempdir().context("a folder for what is computed again")?;
    let again = if study.tables(temporary.path(), problems)? {
        let rendered = study.render(&manifests, temporary.path(), problems);
        study.published(&manifests, rendered.as_deref(), problems);
        match rendered {
            Some(_) => {
                "all tables of rates, intervals and tests, the figures and the report made again"
            }
            None => "all tables of rates, intervals and tests computed again, but not the report",
        }
    } else {
        study.published(&manifests, None, problems);
        "nothing computed again"
    };
    Ok(Looked {
        files,
        bytes,
        again,
    })
}

/// The record beside the report, or else the one that the artefact of the report keeps: the first whose plan leads to a
/// report in the store.
fn find_record(
    store: &Store,
    folder: &Path,
    problems: &mut Problems<'_>,
) -> Result<Option<Record>> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    // Several studies may have had this name; the one with this summary is meant.
    let summary = files::read(folder.join(SUMMARY)).ok();
    let is_other = |place: &PathBuf| files::read(place.join(SUMMARY)).ok() != summary;
    let mut places = store.artefacts()?;
    places.retain(|place| place.join(RECORD).exists());
    places.sort_by_cached_key(is_other);
    places.insert(0, folder.to_path_buf());
    let mut found = None;
    for place in places {
        let is_published = place == folder;
        if is_published && !place.join(RECORD).exists() {
            problems.tell(
                &place.join(RECORD),
                "is missing: it was removed, or the report was made by a version of axmem that wrote none",
            );
            continue;
        }
        let record = match Record::read(&place) {
            Ok(record) => record,
            Err(error) => {
                if is_published {
                    problems.tell(&place.join(RECORD), &format!("can't be used ({error})"));
                }
                continue;
            }
        };
        let plan = Plan::new(&record.experiment);
        let leads = plan
            .of(Stage::Report)
            .all(|index| run::folder(store, &plan.nodes[index]).is_dir());
        if leads && record.experiment.name == name {
            found = Some(record);
            break;
        }
        if is_published {
            problems.made_by(&record.program);
            problems.tell(
                &place.join(RECORD),
                "leads to no report in the store: the settings in it were edited, the folder was renamed or moved out of its \
                 store, or this version of axmem gives its stages other keys",
            );
        }
    }
    Ok(found)
}

/// All that can be done where nobody knows the settings: the hashes of the artefacts that the summary names.
fn without_record(store: &Store, folder: &Path, problems: &mut Problems<'_>) -> Result<Looked> {
    problems.note(
        "no settings of the study were found, so nothing can be computed again and only hashes are compared; `axmem run` of \
         its experiment file makes a report with them, and repeats nothing else",
    );
    let summary = json_of(&folder.join(SUMMARY));
    let keys = summary
        .as_ref()
        .and_then(|summary| summary["artefacts"].as_object());
    let Some(keys) = keys else {
        problems.tell(&folder.join(SUMMARY), "names no artefacts");
        return Ok(Looked {
            files: 0,
            bytes: 0,
            again: "nothing computed again",
        });
    };
    let held = store.artefacts()?;
    let mut recorded = Vec::new();
    for (label, key) in keys {
        let key = key.as_str().unwrap_or_default();
        let Some(artefact) = held.iter().find(|held| held.ends_with(key)) else {
            let what = format!("names {label} {key}, which is not in the store");
            problems.tell(&folder.join(SUMMARY), &what);
            continue;
        };
        let expected = Expected {
            folder: artefact.clone(),
            key,
            node: None,
            manifest: None,
        };
        artefacts::look(store, &expected, &mut recorded, problems)?;
    }
    Ok(Looked {
        files: recorded.len(),
        bytes: hashes::check(recorded, problems),
        again: "nothing computed again",
    })
}

struct Study<'a> {
    folder: &'a Path,
    plan: &'a Plan,
    record: &'a Record,
    store: &'a Store,
}

impl Study<'_> {
    fn artefact(&self, node: &Node) -> PathBuf {
        run::folder(self.store, node)
    }

    fn node(&self, stage: Stage) -> Result<&Node> {
        let index = self.plan.of(stage).next();
        Ok(&self.plan.nodes[index.context("a plan has this stage")?])
    }

    /// Manifests of all artefacts, and the files to hash.
    fn look(
        &self,
        recorded: &mut Vec<Recorded>,
        problems: &mut Problems<'_>,
    ) -> Result<BTreeMap<usize, Manifest>> {
        let mut manifests = BTreeMap::new();
        for (index, node) in self.plan.nodes.iter().enumerate() {
            let label = node.to_string();
            let hash = self.record.manifests.get(&label).map(String::as_str);
            if hash.is_none() && node.stage != Stage::Report {
                let what = format!("has no hash of the manifest of {label}");
                problems.tell(&self.folder.join(RECORD), &what);
            }
            let expected = Expected {
                folder: self.artefact(node),
                key: &node.key,
                node: Some((self.plan, node)),
                manifest: hash,
            };
            if let Some(manifest) = artefacts::look(self.store, &expected, recorded, problems)? {
                if node.stage == Stage::Report {
                    let path = self.artefact(node).join(MANIFEST);
                    problems.tell_changes(&path, &self.against_record(&manifest));
                }
                manifests.insert(index, manifest);
            }
        }
        if let Some(hash) = &self.record.experiment.certificate {
            recorded.push(Recorded {
                path: certify::path(self.store, &self.record.experiment),
                bytes: None,
                sha256: hash.clone(),
            });
        }
        Ok(manifests)
    }

    /// Where the manifest of the report, whose hash no other file has, does not fit the record.
    fn against_record(&self, manifest: &Manifest) -> Vec<Change> {
        let experiment = &self.record.experiment;
        let grid = &experiment.grid.grid;
        let pairs = [
            (
                "program",
                json!(manifest.program),
                json!(self.record.program),
            ),
            ("seed", json!(manifest.seed), json!(experiment.seed)),
            (
                "grid",
                json!(manifest.grid),
                json!([grid.x, grid.y, grid.z, grid.data]),
            ),
            ("ranks", json!(manifest.ranks), Value::Null),
            ("dtype", json!(manifest.dtype), json!("f32")),
        ];
        pairs
            .into_iter()
            .filter(|(_, found, expected)| found != expected)
            .map(|(name, found, expected)| Change::recorded(name, found, expected))
            .collect()
    }

    /// The first damaged file of those names, outside the results themselves.
    fn blocked(&self, names: &[&str], problems: &Problems<'_>) -> Option<PathBuf> {
        let results = [Stage::Estimate, Stage::Report];
        let inputs: BTreeSet<PathBuf> = self
            .plan
            .nodes
            .iter()
            .filter(|node| !results.contains(&node.stage))
            .map(|node| self.artefact(node))
            .collect();
        let mut damaged = problems.damaged();
        let is_needed = |path: &&Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| names.contains(&name))
                && path.parent().is_some_and(|folder| inputs.contains(folder))
        };
        damaged.find(is_needed).map(Path::to_path_buf)
    }

    fn context<'b>(&'b self, node: &'b Node, folder: &'b Path, teller: &'b Teller) -> Context<'b> {
        Context {
            experiment: &self.record.experiment,
            plan: self.plan,
            node,
            folder,
            store: self.store,
            ranks: &teller.ranks,
            events: &teller.events,
        }
    }

    /// Computes the tables again into a folder and compares them with those of the store; whether it could.
    fn tables(&self, again: &Path, problems: &mut Problems<'_>) -> Result<bool> {
        if let Some(path) = self.blocked(&OF_TABLES, problems) {
            problems.note(&format!(
                "nothing is computed again, since {} is damaged",
                shown(&path).display()
            ));
            return Ok(false);
        }
        self.records(problems)?;
        let node = self.node(Stage::Estimate)?;
        let teller = Teller::default();
        let folder = self.artefact(node);
        let tables = match Tables::compute(&self.context(node, again, &teller)) {
            Ok(tables) => tables,
            Err(error) => {
                problems.tell(&folder, &format!("can't be computed again: {error:#}"));
                return Ok(false);
            }
        };
        tables.write(again)?;
        let of_rates = [
            "model", "arm", "trial", "bucket", "time", "suffix", "prefix", "method",
        ];
        let of_contrasts = [
            "model", "arm", "bucket", "kind", "measure", "suffix", "prefix", "from", "to", "method",
        ];
        let of_changes = [
            "model", "arm", "trial", "bucket", "document", "suffix", "prefix", "from", "to",
        ];
        let of_scores = ["model", "arm", "trial", "time", "document", "prefix"];
        let of_hazards = ["model", "arm", "mask", "bucket", "time", "suffix", "prefix"];
        let of_thresholds = ["arm", "suffix", "prefix", "family"];
        let of_exposures = ["model", "arm", "trial", "step", "document", "presentation"];
        compare(
            &folder.join(estimate::SCORES),
            &tables.scores,
            &of_scores,
            problems,
        )?;
        compare(
            &folder.join(estimate::EXPOSURES),
            &tables.exposures,
            &of_exposures,
            problems,
        )?;
        compare(
            &folder.join(estimate::ESTIMATES),
            &tables.estimates,
            &of_rates,
            problems,
        )?;
        compare(
            &folder.join(estimate::CONTRASTS),
            &tables.contrasts,
            &of_contrasts,
            problems,
        )?;
        compare(
            &folder.join(estimate::OVERLAP),
            &tables.overlap,
            &of_changes,
            problems,
        )?;
        compare(
            &folder.join(estimate::TRANSITIONS),
            &tables.transitions,
            &of_changes,
            problems,
        )?;
        compare(
            &folder.join(estimate::HAZARDS),
            &tables.hazards,
            &of_hazards,
            problems,
        )?;
        if let Some(curves) = &tables.curves {
            let of_curves = ["model", "arm", "bucket", "prefix", "suffix", "axis", "at"];
            compare(&folder.join(estimate::CURVES), curves, &of_curves, problems)?;
        }
        if let Some(thresholds) = &tables.thresholds {
            compare(
                &folder.join(estimate::THRESHOLDS),
                thresholds,
                &of_thresholds,
                problems,
            )?;
        }
        if let Some(group) = &tables.created_after {
            let path = folder.join(estimate::CREATED_AFTER_SCORES);
            compare(&path, &group.scores, &of_scores, problems)?;
            let path = folder.join(estimate::CREATED_AFTER_ESTIMATES);
            compare(&path, &group.estimates, &of_rates, problems)?;
        }
        Ok(true)
    }

    /// Whether the scores of every stage are about their documents, and follow from the rest of them.
    fn records(&self, problems: &mut Problems<'_>) -> Result<()> {
        let of = |stage, name| Ok::<_, anyhow::Error>(self.artefact(self.node(stage)?).join(name));
        let documents = Documents::read(
            &of(Stage::Tokens, "tokens.parquet")?,
            &of(Stage::Buckets, "buckets.parquet")?,
        )?;
        self.scores(Stage::Score, &documents, problems)?;
        if self.record.experiment.created_after.is_some() {
            let trials = self.record.experiment.buckets.trials;
            let path = of(Stage::CreatedAfter, stages::created_after::DOCUMENTS)?;
            let documents = Documents::created_after(&path, trials)?;
            self.scores(Stage::CreatedAfterScore, &documents, problems)?;
        }
        Ok(())
    }

    fn scores(
        &self,
        stage: Stage,
        documents: &Documents,
        problems: &mut Problems<'_>,
    ) -> Result<()> {
        for index in self.plan.of(stage) {
            let path = self
                .artefact(&self.plan.nodes[index])
                .join(estimate::SCORES);
            let rows: Vec<ScoreRow> = table::read(&path)?;
            records::contradictions(&path, &rows, problems);
            documents.compare(&path, &rows, problems);
            let node = &self.plan.nodes[index];
            if node.subject.time == Some(Time::After)
                && self.record.experiment.train.probes.is_some()
            {
                let trained = &self.plan.nodes[node.inputs[0]];
                let probes = self.artefact(trained).join(training::PROBES);
                records::last_probes(&probes, &table::read(&probes)?, &rows, problems);
            }
        }
        Ok(())
    }

    /// The files of the report, made again from the tables in a folder.
    fn render(
        &self,
        manifests: &BTreeMap<usize, Manifest>,
        again: &Path,
        problems: &mut Problems<'_>,
    ) -> Option<Vec<report::File>> {
        if let Some(path) = self.blocked(&OF_REPORT, problems) {
            problems.note(&format!(
                "the report is not made again, since {} is damaged",
                shown(&path).display()
            ));
            return None;
        }
        let rendered = self.node(Stage::Report).and_then(|node| {
            let teller = Teller::default();
            let context = self.context(node, again, &teller);
            let inputs = inputs(&context, manifests, again, &self.record.program)?;
            report::render(&inputs)
        });
        rendered
            .map_err(|error| {
                let what = format!("can't be made again: {error:#}");
                problems.tell(&self.folder.join("report.html"), &what);
            })
            .ok()
    }

    /// Compares the report, where people read it and in the store, with the one made again, and where that can't be with
    /// the hashes on record.
    fn published(
        &self,
        manifests: &BTreeMap<usize, Manifest>,
        rendered: Option<&[report::File]>,
        problems: &mut Problems<'_>,
    ) {
        for index in self.plan.of(Stage::Report) {
            let kept = self.artefact(&self.plan.nodes[index]);
            let manifest = manifests.get(&index);
            let of_report = rendered.unwrap_or_default().iter();
            let mut names: BTreeSet<&str> = of_report.map(|file| file.name.as_str()).collect();
            names.extend(
                manifest
                    .iter()
                    .flat_map(|it| it.files.keys().map(String::as_str)),
            );
            names.insert(RECORD);
            for name in names {
                let again = rendered
                    .unwrap_or_default()
                    .iter()
                    .find_map(|file| (file.name == name).then_some(file.bytes.as_slice()));
                let path = self.folder.join(name);
                // One that can't be used was told before.
                if name == RECORD && problems.is_damaged(&path) {
                    continue;
                }
                let Some(bytes) = bytes_of(&path, problems) else {
                    continue;
                };
                let before = problems.count();
                if let Some(again) = again {
                    problems.tell_changes(&path, &compare::file(name, &bytes, again));
                    let inside = kept.join(name);
                    if !problems.is_damaged(&inside)
                        && let Ok(bytes) = files::read(&inside)
                    {
                        problems.tell_changes(&inside, &compare::file(name, &bytes, again));
                    }
                }
                let hash = files::sha256(&bytes);
                if before == problems.count()
                    && let Some(file) = manifest.and_then(|manifest| manifest.files.get(name))
                    && file.sha256 != hash
                {
                    let place = "SHA-256 of the content";
                    problems.tell_change(&path, &Change::recorded(place, hash, &file.sha256));
                }
            }
        }
    }
}

/// Compares a table of the store with the one that was computed again.
fn compare<R: Row>(
    path: &Path,
    again: &[R],
    keys: &[&str],
    problems: &mut Problems<'_>,
) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    match table::read::<R>(path) {
        Ok(rows) => {
            let differences = table::differences(&rows, again, keys)?;
            problems.tell_changes(path, &compare::tables(differences));
        }
        Err(error) => problems.tell(path, &format!("can't be compared ({error})")),
    }
    Ok(())
}
