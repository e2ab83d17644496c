//! What each model of a ladder may have for itself.

use super::*;

const LADDER: &str = include_str!("../../../../experiments/smoke-ladder.yaml");

fn ladder(sets: &[&str]) -> Experiment {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    from_text(LADDER, "ladder.yaml", &sets).expect("it resolves")
}

#[test]
fn a_model_may_have_its_own_batch() {
    let experiment = ladder(&["model.1.batch=8", "model.2.micro_batch=2"]);
    let [small, middle, large] = &experiment.models[..] else {
        panic!("three models");
    };
    let of = |model| (experiment.batch(model), experiment.micro_batch(model));
    assert_eq!([of(small), of(middle), of(large)], [(4, 4), (8, 8), (4, 2)]);
    let rows = |sets: &[&str]| ladder(&[&["background.rows=~"], sets].concat());
    let (alone, with) = (rows(&[]), rows(&["model.1.batch=8"]));
    assert_eq!(alone.background.rows, 10 * 4);
    assert_eq!(
        with.background.rows,
        10 * 8,
        "as many as the largest batch takes"
    );
    // The micro-batch of all holds for a model that names none.
    let shared = ladder(&["train.micro_batch=2", "model.1.batch=8"]);
    assert_eq!(shared.micro_batch(&shared.models[1]), 2);
}

#[test]
fn a_model_may_have_its_own_grid() {
    // Four along X do not divide the two heads of the first model.
    let experiment = ladder(&["model.2.grid={x: 4, z: 2}"]);
    let ranks = |model: &Model| experiment.layout(Some(model)).grid.ranks();
    let all: Vec<usize> = experiment.models.iter().map(ranks).collect();
    assert_eq!(all, [1, 1, 8]);
    assert_eq!(experiment.layout(None).grid.ranks(), 1);
    // The grid of the study is not that of a model with its own.
    let sets = ["grid={x: 4}", "model.0.grid=auto", "model.1.grid=auto"];
    assert_eq!(ladder(&sets).grid.grid.x, 4);
}

#[test]
fn what_a_model_cannot_have_is_said_of_that_model() {
    for (set, words) in [
        ("model.1.batch=0", "model.1.batch: 0 is not from 1"),
        (
            "model.1.micro_batch=5",
            "model.1.micro_batch: 5 is not from 1 to the batch, 4",
        ),
        ("model.2.grid={x: 3}", "model.2.grid"),
        ("model.2.grid={w: 3}", "model.2.grid: unknown key `w`"),
        (
            "model.1.grid.timeout=0",
            "model.1.grid.timeout: 0 is not from 1",
        ),
    ] {
        let message = refusal(LADDER, &[set]);
        assert!(message.contains(words), "{set}: {message}");
    }
    let message = refusal(LADDER, &["train.micro_batch=4", "model.0.batch=2"]);
    assert!(
        message
            .contains("model.0.micro_batch: 4 (train.micro_batch) is not from 1 to the batch, 2"),
        "{message}"
    );
    let message = refusal(SMOKE, &["model.batch=0"]);
    assert!(message.contains(": model.batch: 0"), "{message}");
}

#[test]
fn a_ladder_without_own_settings_is_written_down_as_before() {
    let record = serde_json::to_value(ladder(&[])).expect("JSON");
    for model in record["models"].as_array().expect("models") {
        let keys = model.as_object().expect("a mapping");
        assert!(
            ["batch", "micro_batch", "grid"]
                .iter()
                .all(|key| !keys.contains_key(*key))
        );
    }
    let own = ladder(&["model.1.batch=8", "model.1.grid={z: 2}"]);
    let record = serde_json::to_value(&own).expect("JSON");
    let again: Experiment = serde_json::from_value(record).expect("an experiment");
    assert_eq!(again, own);
}
