//! Base files, sweeps, and the files that are shipped.

use std::fs;
use std::path::PathBuf;

use super::*;

/// A folder with the smoke study as `base.yaml` and the given files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [&[("base.yaml", SMOKE)], files].concat() {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    folder
}

fn all(text: &str, sets: &[&str]) -> Result<Vec<Experiment>> {
    let folder = folder(&[("study.yaml", text)]);
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    load_all(&folder.path().join("study.yaml"), &sets)
}

fn names(all: &[Experiment]) -> Vec<&str> {
    all.iter()
        .map(|experiment| experiment.name.as_str())
        .collect()
}

/// The sentence of a refusal, without the folder.
fn refused(files: &[(&str, &str)], sets: &[&str]) -> String {
    let folder = folder(files);
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let error = load_all(&folder.path().join("study.yaml"), &sets).expect_err("it is refused");
    assert_eq!(crate::exit::code(&error), 2, "{error:#}");
    let place = format!("{}/", folder.path().display());
    format!("{error:#}").replace(&place, "")
}

#[test]
fn shipped_experiments_resolve() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the shipped files") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let all = load_all(&path, &[]).unwrap_or_else(|error| panic!("{error:#}"));
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if let [one] = &all[..] {
            assert_eq!(
                one.name, name,
                "the report of {name}.yaml is where its name says"
            );
        }
        found.push((name, all.len()));
    }
    found.sort();
    let several = [("sensitivity", 8), ("smoke-threshold", 2), ("threshold", 2)];
    for (name, count) in several {
        assert!(
            found.contains(&(name.to_owned(), count)),
            "{name}: {found:?}"
        );
    }
    let single = found.iter().filter(|(_, count)| *count == 1).count();
    assert_eq!(single + several.len(), found.len(), "{found:?}");
}

#[test]
fn a_file_changes_what_it_names_and_keeps_the_rest_of_its_base() {
    let text =
        "extends: base.yaml\nname: other\ntrain: { batch: 5, arms: [standard] }\nanalysis: ~\n";
    let all = all(text, &["train.clip=0.5"]).expect("it resolves");
    let [other] = &all[..] else {
        panic!("one experiment");
    };
    let base = from_text(SMOKE, "base.yaml", &[]).expect("the base");
    assert_eq!((other.name.as_str(), other.train.batch), ("other", 5));
    assert_eq!(other.train.arms, [Arm::Standard]);
    assert!(
        (0.4..0.6).contains(&other.train.clip),
        "--set comes after base files"
    );
    assert_eq!(other.train.rate, base.train.rate);
    assert_eq!(other.corpus, base.corpus);
    let resamples = (base.analysis.resamples, other.analysis.resamples);
    assert_eq!(resamples, (500, 10_000), "~ takes a key away");
}

#[test]
fn base_files_may_have_base_files_in_other_folders() {
    let folder = folder(&[
        ("study.yaml", "extends: more/middle.yaml\nname: study\n"),
        (
            "more/middle.yaml",
            "extends: ../base.yaml\nname: middle\nseed: 7\n",
        ),
    ]);
    let one = load(&folder.path().join("study.yaml"), &[]).expect("it resolves");
    assert_eq!(
        (one.name.as_str(), one.seed, one.train.batch),
        ("study", 7, 4)
    );
}

#[test]
fn what_is_wrong_in_a_base_file_is_said_of_that_file() {
    let study = ("study.yaml", "# a study\nextends: b.yaml\nname: study\n");
    let typo = SMOKE.replace("  batch: 4", "  bacth: 4");
    let line = 1 + typo
        .lines()
        .position(|line| line.contains("bacth"))
        .expect("a line");
    let message = refused(&[study, ("b.yaml", &typo)], &[]);
    assert!(
        message.starts_with(&format!("b.yaml:{line}: train: unknown key `bacth`")),
        "{message}"
    );
    let large = SMOKE.replace("  batch: 4", "  batch: 400000");
    let message = refused(&[study, ("b.yaml", &large)], &[]);
    assert!(
        message.starts_with(&format!("b.yaml:{line}: train.batch: ")),
        "{message}"
    );
    let message = refused(
        &[(
            "study.yaml",
            "extends: base.yaml\nname: study\ntrain:\n  batch: 400000\n",
        )],
        &[],
    );
    assert!(
        message.starts_with("study.yaml:4: train.batch: "),
        "{message}"
    );
    let message = refused(&[study, ("b.yaml", "a: [")], &[]);
    assert!(message.starts_with("b.yaml:1: not valid YAML"), "{message}");
    let message = refused(&[study, ("b.yaml", "- 1")], &[]);
    assert!(
        message.starts_with("b.yaml:1: expected a mapping"),
        "{message}"
    );
}

#[test]
fn base_files_that_are_missing_or_go_round_are_refused() {
    let study = ("study.yaml", "# a study\nextends: b.yaml\nname: study\n");
    let message = refused(&[study], &[]);
    assert!(message.starts_with("study.yaml:2: extends: "), "{message}");
    assert!(
        message.contains("b.yaml") && message.contains("relative to the folder"),
        "{message}"
    );
    let message = refused(
        &[
            study,
            ("b.yaml", "extends: more/../study.yaml\n"),
            ("more/x", ""),
        ],
        &[],
    );
    assert!(message.starts_with("b.yaml:1: extends: "), "{message}");
    assert!(message.contains("builds on this file"), "{message}");
    let message = refused(&[("study.yaml", "extends: study.yaml\n")], &[]);
    assert!(message.contains("builds on this file"), "{message}");
    let message = refused(&[("study.yaml", "extends: [base.yaml]\n")], &[]);
    assert!(
        message.contains("expected the path of a file, found a list"),
        "{message}"
    );
    let chain: Vec<(String, String)> = (0..10)
        .map(|n| (format!("{n}.yaml"), format!("extends: {}.yaml\n", n + 1)))
        .collect();
    let mut files: Vec<(&str, &str)> = chain
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    files.push(("study.yaml", "extends: 0.yaml\n"));
    let message = refused(&files, &[]);
    assert!(
        message.contains("more than 8 files build on each other"),
        "{message}"
    );
    // Each study has a name of its own, and so a report of its own.
    let message = refused(&[("study.yaml", "extends: base.yaml\n")], &[]);
    assert!(
        message.starts_with("study.yaml:1: the key `name` is missing"),
        "{message}"
    );
    let message = refused(&[study], &["extends=base.yaml"]);
    assert!(message.contains("b.yaml"), "{message}");
    let message = refusal(SMOKE, &["extends=base.yaml"]);
    assert!(
        message.contains("named in the experiment file"),
        "{message}"
    );
}

const SWEEP: &str = "extends: base.yaml
name: sweep
matrix:
  train.rate.peak: [1e-3, 0.02]
  corpus:
    one: { source: \"grammar:articles=48,sentences=14,seed=1\" }
    two: { source: \"grammar:articles=48,sentences=14,seed=5\" }
";

#[test]
fn a_matrix_makes_an_experiment_of_every_combination() {
    let all = all(SWEEP, &["train.rate.final=1e-3"]).expect("it resolves");
    assert_eq!(
        names(&all),
        [
            "sweep-1e-3-one",
            "sweep-1e-3-two",
            "sweep-0.02-one",
            "sweep-0.02-two"
        ]
    );
    assert_eq!(
        (all[0].train.rate.peak, all[0].train.rate.last),
        (1e-3, 1e-3)
    );
    assert!(all[2].train.rate.peak > 0.01);
    assert!(all[3].corpus.source.ends_with("seed=5"));
    assert_eq!(all[1].train.batch, 4);
}

#[test]
fn a_matrix_is_changed_from_the_command_line() {
    let changed = all(SWEEP, &["matrix.train.rate.peak=[0.03]", "name=s"]).expect("it resolves");
    assert_eq!(names(&changed), ["s-0.03-one", "s-0.03-two"]);
    let fewer = all(SWEEP, &["matrix.train.rate.peak=~"]).expect("it resolves");
    assert_eq!(names(&fewer), ["sweep-one", "sweep-two"]);
    let none = all(SWEEP, &["matrix=~"]).expect("it resolves");
    assert_eq!(names(&none), ["sweep"]);
    let seeds = all(SMOKE, &["matrix.seed=[0, 1, 2]"]).expect("it resolves");
    assert_eq!(names(&seeds), ["smoke-0", "smoke-1", "smoke-2"]);
    assert_eq!(seeds[2].seed, 2);
}

#[test]
fn a_matrix_that_cannot_be_is_refused() {
    let study = |matrix: &str| format!("extends: base.yaml\nname: s\nmatrix:\n  {matrix}\n");
    for (matrix, place, words) in [
        (
            "[1]",
            "4: matrix: ",
            "expected a mapping from keys to lists",
        ),
        ("seed: 3", "4: matrix.seed: ", "expected a list of values"),
        ("seed: []", "4: matrix.seed: ", "has no value"),
        (
            "corpus: [{ source: x }]",
            "4: matrix.corpus: ",
            "give the values labels",
        ),
        ("name: [a, b]", "4: matrix.name: ", "cannot be swept"),
        (
            "seed: [1, 1.0]",
            "3: matrix: ",
            "two experiments would be called s-1",
        ),
        (
            "{ train: { a: {} }, train.batch: [4] }",
            "4: matrix.train.batch: ",
            "sweeps what train sweeps too",
        ),
        (
            "train.arms.7: [standard]",
            "4: matrix.train.arms.7: ",
            "not an item of a list of 2",
        ),
        ("train.bacth: [4, 8]", "4: train: ", "did you mean `batch`?"),
        ("train.batch: [4, 0]", "4: train.batch: ", "0 is not from 1"),
        ("train.batch: { a/b: 4 }", "", "is no name"),
    ] {
        let message = refused(&[("study.yaml", &study(matrix))], &[]);
        assert!(
            message.starts_with(&format!("study.yaml:{place}")),
            "{matrix}: {message}"
        );
        assert!(message.contains(words), "{matrix}: {message}");
    }
    let message = refused(&[("study.yaml", &study("train.batch: [4, 0]"))], &[]);
    assert!(message.ends_with("(experiment s-0)"), "{message}");
    let ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let many = study(&format!(
        "seed: {ten}\n  train.batch: {ten}\n  train.clip: [1, 2]"
    ));
    let message = refused(&[("study.yaml", &many)], &[]);
    assert!(message.contains("more than 100 combinations"), "{message}");
    for set in ["corpus.source=other", "train.rate.peak=1"] {
        let message = refused(&[("study.yaml", SWEEP)], &[set]);
        assert!(message.contains("`matrix` gives"), "{message}");
    }
}

#[test]
fn what_takes_one_experiment_refuses_several() {
    let folder = folder(&[("study.yaml", SWEEP)]);
    let error = load(&folder.path().join("study.yaml"), &[]).expect_err("four");
    let message = format!("{error:#}");
    assert!(
        message.contains("makes 4 experiments") && message.contains("matrix=~"),
        "{message}"
    );
}
