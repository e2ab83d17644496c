//! What is accepted, what is refused, and how the refusal reads.

use super::*;

const SMOKE: &str = include_str!("../../../experiments/smoke.yaml");

fn smoke(sets: &[&str]) -> Result<Experiment> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    from_text(SMOKE, "smoke.yaml", &sets)
}

fn refusal(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let error = from_text(text, "study.yaml", &sets).expect_err("it should be refused");
    assert_eq!(crate::exit::code(&error), 2, "{error:#}");
    format!("{error:#}")
}

#[test]
fn shipped_experiments_resolve() {
    for text in [
        SMOKE,
        include_str!("../../../experiments/quickstart.yaml"),
        include_str!("../../../experiments/70b.yaml"),
    ] {
        from_text(text, "shipped", &[]).expect("a shipped file resolves");
    }
}

#[test]
fn a_rate_is_a_number_however_it_is_spelled() {
    for spelled in ["1e-4", "1.0e-4", "0.0001", "1E-4"] {
        let text = SMOKE.replace("final: 1e-3", &format!("final: {spelled}"));
        let experiment = from_text(&text, "study.yaml", &[]).expect(spelled);
        assert_eq!(
            experiment.train.rate.last.to_bits(),
            1e-4_f64.to_bits(),
            "{spelled}"
        );
        let set = smoke(&[&format!("train.rate.final={spelled}")]).expect(spelled);
        assert_eq!(
            set.train.rate.last.to_bits(),
            1e-4_f64.to_bits(),
            "{spelled}"
        );
    }
    let quoted = SMOKE.replace("final: 1e-3", "final: \"1e-4\"");
    let message = refusal(&quoted, &[]);
    assert!(
        message.contains("train.rate.final: expected a number, found the text \"1e-4\""),
        "{message}"
    );
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest_one() {
    let message = refusal(&SMOKE.replace("  batch: 4", "  bacth: 4"), &[]);
    let line = SMOKE
        .lines()
        .position(|line| line.contains("  batch: 4"))
        .expect("a line")
        + 1;
    assert!(
        message.starts_with(&format!("study.yaml:{line}: train: unknown key `bacth`")),
        "{message}"
    );
    assert!(message.ends_with("did you mean `batch`?"), "{message}");
}

#[test]
fn goldfish_has_no_default_k_and_h() {
    let message = refusal(&SMOKE.replace("{ k: 2, h: 4 }", "{ k: 2 }"), &[]);
    assert!(message.contains("the key `h` is missing"), "{message}");
}

#[test]
fn a_suffix_longer_than_the_document_is_refused() {
    let message = refusal(SMOKE, &["score.suffix=[100]"]);
    assert!(
        message.contains("score.suffix: a suffix of 100 ids"),
        "{message}"
    );
    assert!(message.contains("documents.min_tokens is 64"), "{message}");
}

#[test]
fn later_features_are_refused_in_words() {
    for (set, word) in [
        ("extends=base.yaml", "base file"),
        ("matrix={}", "sweeps"),
        ("model=[1]", "list of models"),
    ] {
        let message = refusal(SMOKE, &[set]);
        assert!(
            message.contains(word) && message.contains("not supported yet"),
            "{message}"
        );
    }
}

#[test]
fn settings_replace_branches_of_the_file() {
    let experiment = smoke(&[
        "seed=7",
        "train.arms.1.goldfish.k=3",
        "score.prefix=[all, 10]",
    ])
    .expect("sets");
    assert_eq!(experiment.seed, 7);
    assert_eq!(experiment.score.prefix, [Prefix::All, Prefix::Tokens(10)]);
    let Arm::Goldfish(goldfish) = &experiment.train.arms[1] else {
        panic!("the second arm is Goldfish");
    };
    assert_eq!(goldfish.k, 3);
    assert!(refusal(SMOKE, &["seed"]).contains("expected key=value"));
    assert!(refusal(SMOKE, &["train.arms.5=standard"]).contains("not an item of a list of 2"));
}
