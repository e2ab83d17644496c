//! Which stages a changed setting runs again.

use std::collections::BTreeSet;

use axmem::experiment;
use axmem::plan::Plan;

use crate::support::smoke;

/// Names of the stages of the smoke study whose keys differ under `set`.
fn changed(set: &str) -> BTreeSet<String> {
    let plan = |sets: &[String]| Plan::new(&experiment::load(&smoke(), sets).expect("it resolves"));
    let (before, after) = (plan(&[]), plan(&[set.to_owned()]));
    let known: BTreeSet<&str> = before.nodes.iter().map(|node| node.key.as_str()).collect();
    let new = after
        .nodes
        .iter()
        .filter(|node| !known.contains(node.key.as_str()));
    new.map(|node| match node.subject.time {
        Some(time) => format!("{}({})", node.stage.name(), time.name()),
        None => node.stage.name().to_owned(),
    })
    .collect()
}

#[test]
fn r03_r06_a_setting_runs_again_exactly_what_depends_on_it() {
    let all = [
        "corpus",
        "tokens",
        "buckets",
        "weights",
        "grid",
        "score(initial)",
        "warmup",
        "score(warm)",
        "train",
        "score(after)",
        "estimate",
        "report",
    ];
    let from_buckets = &[&all[2..3], &all[5..]].concat()[..];
    let from_train = &all[8..];
    let scores = &[
        "score(initial)",
        "score(warm)",
        "score(after)",
        "estimate",
        "report",
    ][..];
    let from_warmup = &all[6..];
    let table: [(&str, &[&str]); 19] = [
        (
            "corpus.source='grammar:articles=48,sentences=14,seed=9'",
            &all,
        ),
        ("tokenizer.bpe.vocab=310", &all[1..]),
        ("documents.bos=never", &all[1..]),
        ("documents.near_duplicates=off", &all[1..]),
        ("model.random.ffn=96", &all[3..]),
        ("buckets.size=5", from_buckets),
        ("background.held_out=9", from_buckets),
        ("train.warmup.steps=12", from_warmup),
        ("train.batch=5", from_warmup),
        ("train.clip=0.5", from_warmup),
        ("train.rate.final=2e-3", from_train),
        ("train.placement=last", from_train),
        ("train.mix=1", from_train),
        ("score.suffix=[10]", scores),
        ("score.generate=false", scores),
        ("analysis.resamples=600", &["estimate", "report"]),
        ("train.checkpoint.every=7", &[]),
        ("train.recompute=block", &[]),
        ("name=other", &["report"]),
    ];
    for (set, expected) in table {
        let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(changed(set), expected, "--set {set}");
    }
}

#[test]
fn a_second_control_adds_its_own_stages_and_changes_the_tables_alone() {
    let set = "created_after={corpus: {source: later.xml}, size: 5}";
    let expected = [
        "created_after",
        "created_after_score(initial)",
        "created_after_score(warm)",
        "created_after_score(after)",
        "estimate",
        "report",
    ];
    assert_eq!(changed(set), expected.map(str::to_owned).into());
    let plan = |sets: &[String]| Plan::new(&experiment::load(&smoke(), sets).expect("it resolves"));
    let nodes = plan(&[set.to_owned()]).nodes;
    let labels: BTreeSet<String> = nodes.iter().map(ToString::to_string).collect();
    assert_eq!(labels.len(), nodes.len(), "each has a name of its own");
    assert_eq!(nodes.len() - plan(&[]).nodes.len(), 1 + 2 + 2 + 4);
}

#[test]
fn a_changed_arm_trains_that_arm_alone() {
    let plan = |sets: &[String]| Plan::new(&experiment::load(&smoke(), sets).expect("it resolves"));
    let before = plan(&[]);
    let after = plan(&["train.arms.1.goldfish.k=3".to_owned()]);
    for (old, new) in before.nodes.iter().zip(&after.nodes) {
        let goldfish = new.subject.arm.as_deref() == Some("goldfish");
        let last = ["estimate", "report"].contains(&new.stage.name());
        assert_eq!(old.key != new.key, goldfish || last, "{new}");
    }
    let own = plan(&["train.arms.1.goldfish.on=all".to_owned()]);
    let warmups = own
        .nodes
        .iter()
        .filter(|node| node.stage.name() == "warmup");
    assert_eq!(
        warmups.count(),
        4,
        "one shared and one of the arm for each trial"
    );
}

#[test]
fn the_grid_is_in_the_keys_of_all_that_runs_on_it_under_strict_alone() {
    let stages = |strict: bool| {
        let plan = |grid: &str| {
            let sets = [format!("strict={strict}"), format!("grid={grid}")];
            Plan::new(&experiment::load(&smoke(), &sets).expect("it resolves"))
        };
        let (one, two) = (plan("auto"), plan("{z: 2}"));
        let changed = one.nodes.iter().zip(&two.nodes);
        let names = changed
            .filter(|(one, two)| one.key != two.key)
            .map(|(one, _)| one.stage.name());
        names.collect::<BTreeSet<_>>()
    };
    let all = ["grid", "score", "warmup", "train", "estimate", "report"];
    assert_eq!(stages(true), BTreeSet::from(all));
    assert_eq!(stages(false), BTreeSet::from(["grid", "report"]));
    let key = |grid: &str| {
        let sets = ["strict=true".to_owned(), format!("grid={grid}")];
        let plan = Plan::new(&experiment::load(&smoke(), &sets).expect("it resolves"));
        plan.nodes.last().expect("a report").key.clone()
    };
    assert_eq!(key("{z: 2, timeout: 5}"), key("{z: 2}"));
    assert_eq!(key("auto"), key("{z: 1}"));
    for other in [
        "{z: 2, overlap: {row_chunks: 2}}",
        "{z: 2, overlap: {bucket_mb: 1}}",
    ] {
        assert_ne!(key(other), key("{z: 2}"), "{other}");
    }
}

#[test]
fn a_model_with_its_own_batch_or_grid_changes_its_own_stages_alone() {
    let file = smoke().with_file_name("smoke-ladder.yaml");
    let plan = |sets: &[String]| Plan::new(&experiment::load(&file, sets).expect("it resolves"));
    let before = plan(&[]);
    let changed = |set: &str| {
        let after = plan(&[set.to_owned()]);
        let pairs = before.nodes.iter().zip(&after.nodes);
        let names = pairs
            .filter(|(old, new)| old.key != new.key)
            .map(|(_, new)| match new.subject.time {
                Some(time) => format!(
                    "{:?} {}({})",
                    new.subject.model,
                    new.stage.name(),
                    time.name()
                ),
                None => format!("{:?} {}", new.subject.model, new.stage.name()),
            });
        names.collect::<BTreeSet<_>>()
    };
    let of_middle = ["warmup", "score(warm)", "train", "score(after)"];
    let mut expected: BTreeSet<String> = of_middle.map(|name| format!("Some(1) {name}")).into();
    expected.extend(["None estimate", "None report"].map(str::to_owned));
    assert_eq!(changed("model.1.batch=2"), expected);
    assert_eq!(changed("model.1.micro_batch=2"), expected);
    let expected = ["Some(2) grid", "None report"].map(str::to_owned);
    assert_eq!(changed("model.2.grid={z: 2}"), expected.into());
    assert!(changed("model.1.batch=4").is_empty(), "the batch of all");
}
