//! Buckets: disjoint, of the asked size, rotated, and independent of the input's order.

use std::collections::{BTreeMap, BTreeSet};

use axmem_datasets::Kind;
use axmem_datasets::bucket::{Assignment, BucketSettings, assign};
use axmem_datasets::cluster::Clusters;
use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{TokenDocument, hashes};
use proptest::prelude::*;

fn window(article: &str, window: usize, cluster: &str) -> TokenDocument {
    TokenDocument {
        document: format!("{article}#{window}"),
        article: article.to_owned(),
        title: article.to_owned(),
        cluster: cluster.to_owned(),
        origin: "test".to_owned(),
        ids: vec![1, 2, 3],
        length: 3,
        eligible: true,
        reason: None,
    }
}

/// `clusters` clusters of one to three windows each.
fn corpus(clusters: usize) -> Vec<TokenDocument> {
    (0..clusters)
        .flat_map(|number| {
            let name = number.to_string();
            (0..=number % 3).map(move |index| window(&name, index, &name))
        })
        .collect()
}

fn settings(size: usize, epochs: &[u32], trials: u32, seed: u64) -> BucketSettings {
    BucketSettings {
        size,
        epochs: epochs.to_vec(),
        trials,
        seed,
    }
}

proptest! {
    #[test]
    fn buckets_are_disjoint_whole_and_rotate(
        size in 1_usize..6,
        levels in 1_u32..5,
        extra in 0_usize..10,
        seed: u64,
    ) {
        let epochs: Vec<u32> = (0..levels).collect();
        let documents = corpus(size * levels as usize + extra);
        let rows = assign(&documents, &settings(size, &epochs, levels, seed)).unwrap();
        let mut levels_of: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for trial in 0..levels {
            let mut level_of: BTreeMap<&str, u32> = BTreeMap::new();
            let mut windows: BTreeMap<&str, usize> = BTreeMap::new();
            for row in rows.iter().filter(|row| row.trial == trial) {
                // A cluster is never split over buckets.
                let level = level_of.entry(&row.cluster).or_insert(row.epochs);
                prop_assert_eq!(*level, row.epochs);
                *windows.entry(&row.cluster).or_default() += 1;
            }
            for (cluster, count) in windows {
                prop_assert_eq!(count, 1 + cluster.parse::<usize>().unwrap() % 3);
            }
            for &level in &epochs {
                prop_assert_eq!(level_of.values().filter(|&&other| other == level).count(), size);
            }
            for (cluster, level) in level_of {
                prop_assert!(levels_of.entry(cluster).or_default().insert(level));
            }
        }
        // With as many trials as levels every drawn cluster was once at each level.
        prop_assert_eq!(levels_of.len(), size * levels as usize);
        prop_assert!(levels_of.values().all(|seen| seen.len() == levels as usize));
    }

    #[test]
    fn l06_shuffled_input_gives_the_same_sample(
        documents in Just(corpus(30)).prop_shuffle(),
        seed: u64,
    ) {
        let settings = settings(5, &[0, 1, 4], 2, seed);
        prop_assert_eq!(
            assign(&documents, &settings).unwrap(),
            assign(&corpus(30), &settings).unwrap()
        );
    }
}

#[test]
fn d07_near_copies_land_in_one_bucket() {
    let documents: Vec<Document> = (0..12)
        .map(|number| Document {
            id: number.to_string(),
            text: format!("text {number}"),
            ..Document::default()
        })
        .collect();
    for seed in 0..20 {
        let mut clusters = Clusters::of_texts(&[&documents]).unwrap();
        clusters.join("3", "7").unwrap();
        let mut windows: Vec<TokenDocument> = (0..12)
            .map(|number| {
                let mut one = window(&number.to_string(), 0, "");
                one.ids = vec![number; 3];
                one
            })
            .collect();
        let hashes = hashes(&windows);
        clusters.label(&mut windows, &hashes).unwrap();
        let rows = assign(&windows, &settings(5, &[0, 1], 1, seed)).unwrap();
        let groups = |name: &str| -> Vec<u32> {
            let of_name = |row: &&Assignment| row.document == name;
            rows.iter().filter(of_name).map(|row| row.group).collect()
        };
        assert_eq!(groups("3#0"), groups("7#0"));
    }
}

#[test]
fn the_first_window_of_a_cluster_is_its_primary() {
    let documents: Vec<_> = (0..12).rev().map(|index| window("a", index, "a")).collect();
    let rows = assign(&documents, &settings(1, &[0], 1, 0)).unwrap();
    let names: Vec<_> = rows.iter().map(|row| row.document.as_str()).collect();
    assert_eq!(names[..3], ["a#0", "a#1", "a#2"]);
    assert_eq!(names[11], "a#11");
}

#[test]
fn impossible_settings_name_the_remedy() {
    let documents = corpus(11);
    for (settings, expected) in [
        (
            settings(3, &[0, 1, 4, 6], 1, 0),
            "needs 12 clusters of eligible documents, 11 are there; the largest possible size is 2",
        ),
        (settings(1, &[1, 4], 1, 0), "has no level 0"),
        (settings(1, &[0, 4, 4], 1, 0), "names the level 4 twice"),
        (settings(1, &[0, 0], 1, 0), "names the level 0 twice"),
        (settings(0, &[0, 1], 1, 0), "size must be at least 1"),
        (
            settings(1, &[0, 1], 3, 0),
            "from 1 to the number of levels, 2",
        ),
        (settings(1, &[0, 1], 0, 0), "trials is 0"),
    ] {
        let error = assign(&documents, &settings).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains(expected), "{error}");
    }
}
