//! Buckets: which clusters are presented how often, in which trial.
//!
//! The order of the clusters is the order of SHA-256(seed, cluster id): group g is the g-th run
//! of `size` clusters. In trial t group g has the level `epochs[(g + t) mod L]`, L the number of
//! levels, so that with L trials every cluster is once at each level (a Latin square). The
//! sample depends on the seed and on the ids of the clusters, never on the order of the input.

use std::collections::{BTreeMap, BTreeSet};

use crate::eligibility::TokenDocument;
use crate::error::{Error, Result};
use crate::random;

/// How many clusters, at which levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// Clusters of one bucket.
    pub size: usize,
    /// The levels: presentations of a document, all different, 0 (the control) among them.
    pub epochs: Vec<u32>,
    /// Trials, at most the number of levels.
    pub trials: u32,
    /// Seed of the keyed hash.
    pub seed: u64,
}

/// One document of one trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The trial, from 0.
    pub trial: u32,
    /// The group, from 0; it keeps its clusters over the trials.
    pub group: u32,
    /// The level of the group in this trial.
    pub epochs: u32,
    /// The document.
    pub document: String,
    /// Its cluster.
    pub cluster: String,
}

/// Assigns all eligible documents of the drawn clusters. The rows are in the order of trial,
/// group, cluster (keyed) and document; the first document of a cluster is its primary window.
pub fn assign(documents: &[TokenDocument], settings: &BucketSettings) -> Result<Vec<Assignment>> {
    let levels = settings.epochs.len();
    check(settings)?;
    let mut clusters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for document in documents.iter().filter(|document| document.eligible) {
        clusters
            .entry(&document.cluster)
            .or_default()
            .push(&document.document);
    }
    let needed = levels.saturating_mul(settings.size);
    if clusters.len() < needed {
        return Err(Error::usage(format!(
            "buckets.size {} with {levels} levels needs {needed} clusters of eligible documents, \
             {} are there; the largest possible size is {}",
            settings.size,
            clusters.len(),
            clusters.len() / levels
        )));
    }
    for windows in clusters.values_mut() {
        // Shorter names first: `A#2` comes before `A#10`.
        windows.sort_unstable_by_key(|document| (document.len(), *document));
    }
    let names: Vec<&str> = clusters.keys().copied().collect();
    let drawn = random::shuffled(settings.seed, "axmem bucket", names.iter().copied());
    let mut rows = Vec::new();
    for trial in 0..settings.trials {
        for (group, members) in drawn.chunks(settings.size).take(levels).enumerate() {
            let epochs = settings.epochs[(group + trial as usize) % levels];
            for &member in members {
                let cluster = names[member];
                rows.extend(clusters[cluster].iter().map(|&document| Assignment {
                    trial,
                    group: group as u32,
                    epochs,
                    document: document.to_owned(),
                    cluster: cluster.to_owned(),
                }));
            }
        }
    }
    Ok(rows)
}

fn check(settings: &BucketSettings) -> Result<()> {
    let levels = &settings.epochs;
    if !levels.contains(&0) {
        return Err(Error::usage(format!(
            "buckets.epochs {levels:?} has no level 0; the control bucket needs it"
        )));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = levels.iter().find(|&level| !seen.insert(level)) {
        return Err(Error::usage(format!(
            "buckets.epochs {levels:?} names the level {twice} twice; give each level once and \
             raise buckets.size for more documents"
        )));
    }
    if settings.size == 0 {
        return Err(Error::usage("buckets.size must be at least 1"));
    }
    if settings.trials == 0 || settings.trials as usize > levels.len() {
        return Err(Error::usage(format!(
            "buckets.trials is {}, it must be from 1 to the number of levels, {}: a further trial \
             would repeat an earlier one",
            settings.trials,
            levels.len()
        )));
    }
    Ok(())
}
