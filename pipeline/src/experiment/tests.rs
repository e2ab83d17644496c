//! What is accepted, what is refused, and how the refusal reads.

use axmem_trainer::{AttentionSplit, Axis, Overlap};

use super::*;

mod files;
mod models;

/// The one experiment of a text.
fn from_text(text: &str, name: &str, sets: &[String]) -> Result<Experiment> {
    let (tree, sources) = extend::of_text(text, Path::new(name))?;
    experiments(tree, &sources, sets).map(|mut all| all.remove(0))
}

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
fn near_duplicates_are_a_mapping_or_off() {
    let near = |set: &str| smoke(&[set]).expect(set).documents.near_duplicates;
    let default = near("seed=1").expect("looked for unless switched off");
    assert_eq!((default.shingle, default.overlap), (8, 0.5));
    assert_eq!(near("documents.near_duplicates=off"), None);
    let set = near("documents.near_duplicates={overlap: 0.8}").expect("a mapping");
    assert_eq!((set.shingle, set.overlap), (8, 0.8));
    for (value, words) in [
        ("{overlapp: 0.8}", "did you mean `overlap`?"),
        ("{overlap: 1.5}", "1.5 is not from 0.1 to 1"),
        ("{shingle: 1}", "1 is not from 2 to 100"),
        ("{shingle: 64}", "has no place in a document"),
        ("never", "`off` or a mapping"),
    ] {
        let message = refusal(SMOKE, &[&format!("documents.near_duplicates={value}")]);
        assert!(message.contains("documents.near_duplicates"), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_second_control_has_the_corpus_for_its_snapshot_unless_another_is_named() {
    assert_eq!(smoke(&[]).expect("it resolves").created_after, None);
    let set = "created_after={corpus: {source: later.xml}, size: 5}";
    let experiment = smoke(&[set]).expect("it resolves");
    let asked = experiment.created_after.expect("a second control");
    assert_eq!(asked.corpus.source, "later.xml");
    assert_eq!((asked.snapshot, asked.size), (experiment.corpus, 5));
    let older = "created_after.snapshot={source: older.xml}";
    let asked = smoke(&[set, older]).expect("it resolves").created_after;
    assert_eq!(
        asked.expect("a second control").snapshot.source,
        "older.xml"
    );
    for (more, words) in [
        (
            "created_after.size=0",
            "created_after.size: 0 is not from 1",
        ),
        ("created_after.sice=3", "unknown key `sice`"),
        (
            "created_after.corpus.source='hf:wikimedia/wikipedia'",
            "created_after.corpus.revision",
        ),
    ] {
        let message = refusal(SMOKE, &[set, more]);
        assert!(message.contains(words), "{message}");
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

#[test]
fn no_number_is_too_large_for_a_sentence() {
    let whole = [
        "model.random.vocab",
        "model.random.hidden",
        "model.random.layers",
        "model.random.heads",
        "model.random.kv_heads",
        "model.random.ffn",
        "model.random.max_positions",
        "tokenizer.bpe.vocab",
        "documents.tokens",
        "documents.min_tokens",
        "documents.windows.per_article",
        "background.rows",
        "background.held_out",
        "buckets.size",
        "buckets.epochs.1",
        "buckets.trials",
        "train.batch",
        "train.micro_batch",
        "train.mix",
        "train.warmup.steps",
        "train.checkpoint.every",
        "train.checkpoint.keep",
        "train.arms.1.goldfish.k",
        "train.arms.1.goldfish.h",
        "grid.x",
        "grid.data",
        "grid.timeout",
        "grid.overlap.all_gather",
        "grid.overlap.row_chunks",
        "grid.overlap.bucket_mb",
        "score.suffix.0",
        "score.prefix",
        "score.min_prefix",
        "score.batch",
        "analysis.primary.suffix",
        "analysis.primary.exposures",
        "analysis.resamples",
    ];
    for field in whole {
        for value in [
            "-1",
            "4294967297",
            "9223372036854775808",
            "18446744073709551615",
        ] {
            let message = refusal(SMOKE, &[&format!("{field}={value}")]);
            // Where a list or a branch holds the number, the branch is named.
            let branch = field.rsplit_once('.').map_or(field, |(branch, _)| branch);
            assert!(message.contains(branch), "{field}={value}: {message}");
        }
    }
    let real = [
        "model.random.rope_theta",
        "model.random.norm_eps",
        "train.rate.peak",
        "train.rate.final",
        "train.clip",
        "train.optimizer.adamw.beta1",
        "train.optimizer.adamw.beta2",
        "train.optimizer.adamw.eps",
        "train.optimizer.adamw.weight_decay",
        "analysis.level",
        "analysis.margin",
    ];
    for field in real {
        for value in ["-1", "1e300", ".inf", ".nan"] {
            let message = refusal(SMOKE, &[&format!("{field}={value}")]);
            assert!(message.contains(field), "{field}={value}: {message}");
        }
    }
}

#[test]
fn products_of_allowed_numbers_are_bounded_too() {
    let cases: [(&[&str], &str); 5] = [
        (
            &[
                "train.batch=100000",
                "documents.tokens=1024",
                "documents.min_tokens=1024",
                "model.random.max_positions=1024",
            ],
            "train.micro_batch: 100000 rows of 1024 ids",
        ),
        (
            &[
                "score.batch=100000",
                "documents.tokens=1024",
                "documents.min_tokens=1024",
                "model.random.max_positions=1024",
            ],
            "score.batch: ",
        ),
        (
            &["buckets.size=10000000", "buckets.epochs=[0, 1000000]"],
            "buckets.epochs: the treated phase would be more than 100000000 rows",
        ),
        (
            &[
                "background.rows=",
                "train.warmup.steps=10000000",
                "train.batch=1000",
            ],
            "train.warmup.steps: the warm-up would be more than 100000000 rows",
        ),
        (
            &["model.random.hidden=65536", "model.random.layers=1000"],
            "model.random: has 12898 billion parameters",
        ),
    ];
    for (sets, sentence) in cases {
        let message = refusal(SMOKE, sets);
        assert!(message.contains(sentence), "{sets:?}: {message}");
    }
}

#[test]
fn the_default_background_is_what_warm_up_and_mix_take() {
    let rows = |sets: &[&str]| {
        let sets = [&["background.rows="], sets].concat();
        smoke(&sets).expect("it resolves").background.rows
    };
    assert_eq!(rows(&[]), 10 * 4);
    assert_eq!(rows(&["train.mix=2"]), 10 * 4 + 2 * (1 + 2) * 6);
    // k / (k - 1) = 2 for the Goldfish arm, which takes most.
    let compensated = [
        "train.mix=2",
        "train.arms.1.goldfish.compensate=presentations",
    ];
    assert_eq!(rows(&compensated), 10 * 4 + 2 * (2 + 4) * 6);

    let windows = ["background.rows=", "documents.windows=all"];
    smoke(&windows).expect("without mix the number is known");
    let message = refusal(SMOKE, &[&windows[..], &["train.mix=1"]].concat());
    assert!(
        message.contains("background.rows: must be given with train.mix"),
        "{message}"
    );
}

#[test]
fn the_report_cannot_take_the_place_of_the_stores_folders() {
    for name in [
        "cache",
        "locks",
        "Cache",
        "train-v1",
        "report-v12",
        "a/b",
        "..",
        "a\\b",
    ] {
        let message = refusal(SMOKE, &[&format!("name='{name}'")]);
        assert!(message.contains("name: "), "{message}");
    }
    for name in ["cached", "llama-v2", "train-v1b", "trains-v1"] {
        smoke(&[&format!("name={name}")]).expect(name);
    }
}

#[test]
fn every_key_of_the_grid_has_a_default() {
    let overlap = |grid: &str| {
        let experiment = smoke(&[&format!("grid={grid}")]).expect(grid);
        experiment.grid.overlap
    };
    let default = Overlap::default();
    assert_eq!(smoke(&[]).expect("it resolves").grid.overlap, default);
    for on in [
        "auto",
        "{}",
        "{overlap: true}",
        "{overlap: {}}",
        "{overlap: {bucket_mb: 25}}",
    ] {
        assert_eq!(overlap(on), default, "{on}");
    }
    assert_eq!(overlap("{overlap: false}"), default.off());
    let ahead = |all_gather| Overlap {
        all_gather,
        ..default
    };
    assert_eq!(overlap("{overlap: {all_gather: false}}"), ahead(0));
    assert_eq!(overlap("{overlap: {all_gather: true}}"), ahead(1));
    assert_eq!(overlap("{overlap: {all_gather: 4}}"), ahead(4));
    let layout = smoke(&["grid={x: 2, z: 3, order: [data, x, y, z], attention: y_sharded}"]);
    let layout = layout.expect("it resolves").grid;
    assert_eq!((layout.grid.ranks(), layout.grid.order[0]), (6, Axis::Data));
    assert_eq!(layout.attention, AttentionSplit::YSharded);
    assert!(!layout.auto && !layout.shard_optimizer && layout.timeout == 600);
}

#[test]
fn the_report_is_about_the_whole_prefix_if_it_is_listed() {
    let primary = |set: &str| smoke(&[set]).expect("an experiment").score.primary_prefix();
    assert_eq!(primary("score.prefix=[10, all]"), Prefix::All);
    assert_eq!(primary("score.prefix=[20, 10]"), Prefix::Tokens(20));
}

#[test]
fn prefixes_are_positive_distinct_and_fit() {
    for (set, sentence) in [
        (
            "score.prefix=[all, all]",
            "score.prefix: names a prefix twice",
        ),
        (
            "score.prefix=[10, 10]",
            "score.prefix: names a prefix twice",
        ),
        ("score.prefix=0", "score.prefix: 0 is not from 1"),
        // 44 + 20 ids and the beginning of sequence are more than 64.
        ("score.prefix=44", "needs documents of at least 65 ids"),
    ] {
        let message = refusal(SMOKE, &[set]);
        assert!(message.contains(sentence), "{message}");
    }
    smoke(&["score.prefix=43"]).expect("43 + 20 + 1 = 64");
    smoke(&["score.prefix=44", "documents.bos=never"]).expect("44 + 20 = 64");
}

#[test]
fn a_goldfish_arm_is_not_called_standard() {
    let arms = "train.arms=[{ goldfish: { name: standard, k: 2, h: 4 } }]";
    let message = refusal(SMOKE, &[arms]);
    assert!(
        message.contains("train.arms.0.goldfish.name: a Goldfish arm can't be called standard"),
        "{message}"
    );
}

#[test]
fn the_primary_comparison_ends_after_training() {
    for contrast in ["did", "paired"] {
        let sets = [
            "analysis.primary.time=[initial, warm]",
            &format!("analysis.primary.contrast={contrast}"),
        ];
        let message = refusal(SMOKE, &sets);
        assert!(message.contains("ends at `after`"), "{message}");
        smoke(&["analysis.primary.time=[initial, after]", sets[1]]).expect(contrast);
    }
}
