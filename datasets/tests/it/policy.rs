//! What a model's own files say of its tokenizer, each symptom with its id.

use std::path::Path;

use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{Bos, DocumentSettings, Windows, tokenize};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_datasets::{Kind, Result, files};
use serde_json::{Value, json};
use tempfile::TempDir;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

/// A model folder with the committed tokenizer and this post-processor and configuration.
fn folder(processor: Option<Value>, config: Option<&Value>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let original = files::read(Path::new(FIXTURES).join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&original).unwrap();
    if let Some(processor) = processor {
        tokenizer["post_processor"] = processor;
    }
    files::write_atomic(path, tokenizer.to_string().as_bytes()).unwrap();
    if let Some(config) = config {
        let path = folder.path().join("tokenizer_config.json");
        files::write_atomic(path, config.to_string().as_bytes()).unwrap();
    }
    folder
}

fn read(processor: Option<Value>, config: &Value) -> Tokenizer {
    Tokenizer::from_folder(folder(processor, Some(config)).path()).unwrap()
}

fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
}

#[test]
fn t04_the_post_processor_counts_and_a_flag_against_it_is_told() {
    let agrees = read(None, &json!({"add_bos_token": true, "bos_token": "<bos>"}));
    assert_eq!(
        (agrees.adds_bos(), agrees.adds_eos()),
        (Some(true), Some(false))
    );
    assert!(agrees.notes().is_empty(), "{:?}", agrees.notes());

    let against = read(
        None,
        &json!({"add_bos_token": false, "add_eos_token": true}),
    );
    assert_eq!(
        (against.adds_bos(), against.adds_eos()),
        (Some(true), Some(false))
    );
    let notes = against.notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("add_bos_token: false"), "{notes:?}");
    assert!(notes[1].contains("add_eos_token: true"), "{notes:?}");

    // One that adds nothing counts too; without any, the flag does.
    let adds_none = read(Some(byte_level()), &json!({"add_bos_token": true}));
    assert_eq!(adds_none.adds_bos(), Some(false));
    assert_eq!(adds_none.notes().len(), 1);
    for (flag, adds) in [
        (json!(true), Some(true)),
        (json!(false), Some(false)),
        (Value::Null, None),
    ] {
        let silent = read(Some(Value::Null), &json!({"add_bos_token": flag}));
        assert_eq!(silent.adds_bos(), adds);
        assert!(silent.notes().is_empty());
    }
}

#[test]
fn the_named_ends_are_used_unless_the_post_processor_names_others() {
    let silent = read(
        Some(Value::Null),
        &json!({"bos_token": {"content": "<eos>", "lstrip": false}, "eos_token": "<bos>"}),
    );
    assert_eq!((silent.bos(), silent.eos()), (Some(1), Some(0)));

    let against = read(None, &json!({"bos_token": "<eos>", "eos_token": "<none>"}));
    assert_eq!(against.bos(), Some(0));
    let notes = against.notes().join("\n");
    assert!(notes.contains("puts \"<bos>\""), "{notes}");
    assert!(
        notes.contains("\"<none>\", which the vocabulary does not have"),
        "{notes}"
    );
}

#[test]
fn t02_t03_one_beginning_under_always_whatever_the_post_processor_adds() {
    let tokenizer = read(None, &json!({"add_bos_token": true}));
    let ids = |bos| {
        let settings = DocumentSettings {
            tokens: 64,
            min_tokens: 1,
            bos,
            windows: Windows::First,
        };
        let document = Document {
            text: "<bos>The river runs.".to_owned(),
            ..Document::default()
        };
        tokenize(&[document], "test", &tokenizer, &settings).unwrap()[0]
            .ids
            .clone()
    };
    let (with, without) = (ids(Bos::Always), ids(Bos::Never));
    // T06: what was asked for is what is there.
    assert_eq!(with[0], 0);
    assert_eq!(with[1..], without);
    assert!(!without.contains(&0));
}

#[test]
fn t14_the_class_named_beside_plays_no_part() {
    let labelled = read(
        None,
        &json!({"tokenizer_class": "LlamaTokenizer", "legacy": true}),
    );
    let plain = Tokenizer::from_folder(folder(None, None).path()).unwrap();
    for text in ["  two spaces", "the word 'social' !", "naïve 東京"] {
        assert_eq!(labelled.encode(text).unwrap(), plain.encode(text).unwrap());
        assert_eq!(labelled.lossy_at(text).unwrap(), None);
    }
}

#[test]
fn t11_ids_are_those_of_the_python_package() {
    let tokenizer = Tokenizer::from_folder(FIXTURES).unwrap();
    let golden = files::read(Path::new(FIXTURES).join("golden.json")).unwrap();
    let golden: Vec<Value> = serde_json::from_slice(&golden).unwrap();
    assert_eq!(golden.len(), 50);
    for item in golden {
        let text = item["text"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(item["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.lossy_at(text).unwrap(), None, "{text:?}");
    }
}

#[test]
fn a_folder_without_a_tokenizer_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = Tokenizer::from_folder(folder.path()).err().unwrap();
    assert_eq!(error.kind(), Kind::Model);
    assert!(
        error.to_string().contains("tokenizer.json there"),
        "{error}"
    );
    files::write_atomic(folder.path().join("tokenizer.model"), b"").unwrap();
    let error = Tokenizer::from_folder(folder.path()).err().unwrap();
    assert!(error.to_string().contains("save_pretrained"), "{error}");
}

#[test]
fn a_broken_configuration_is_named() {
    let folder = folder(None, None);
    let path = folder.path().join("tokenizer_config.json");
    files::write_atomic(path, b"{\n\"a\": ").unwrap();
    let error = Tokenizer::from_folder(folder.path()).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("tokenizer_config.json at line 2"),
        "{error}"
    );
}

/// A byte-level tokenizer of four tokens with a change to its model.
fn changed(change: impl Fn(&mut Value)) -> Result<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": { "a": 0, "b": 1, "ab": 2 }, "merges": ["a b"],
        },
    });
    change(&mut json["model"]);
    std::fs::write(&path, json.to_string()).unwrap();
    Tokenizer::from_file(&path)
}

#[test]
fn merges_of_tokens_that_are_not_there_are_refused() {
    assert_eq!(changed(|_| {}).unwrap().encode("ab").unwrap(), [2]);
    for merge in [json!(["a c"]), json!(["b a"]), json!([["a"]]), json!([1])] {
        let error = changed(|model| model["merges"] = merge.clone())
            .err()
            .unwrap();
        assert!(error.to_string().contains("the merge"), "{error}");
    }
    let error = changed(|model| model["continuing_subword_prefix"] = "##".into())
        .err()
        .unwrap();
    assert!(error.to_string().contains("the merge"), "{error}");
}

#[test]
fn dropout_is_taken_out_and_told() {
    let tokenizer = changed(|model| model["dropout"] = 0.5.into()).unwrap();
    assert!(tokenizer.notes()[0].contains("dropout of 0.5"));
    assert!((0..50).all(|_| tokenizer.encode("abab").unwrap() == [2, 2]));
}
