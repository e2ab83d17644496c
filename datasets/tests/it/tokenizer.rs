//! The tokenizer's contract, each symptom with its id.

use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{Bos, DocumentSettings, Windows, tokenize};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_datasets::{Kind, files};

const TEXTS: [&str; 6] = [
    "The river runs past the old mill and the river never stops.",
    "An old mill stands by the river; its wheel turns 40 times an hour.",
    "\"Never,\" said the miller, 'never stop the wheel' !",
    "Über den Fluß führt eine Brücke — 東京 and the naïve café.",
    "A word, the word, another word: words upon words.",
    "   Three spaces begin this line\n\n\tand a tab the next.",
];

fn trained() -> Tokenizer {
    Tokenizer::train_bpe(TEXTS.iter().map(|&text| text.to_owned()), 320).unwrap()
}

#[test]
fn training_twice_gives_the_same_bytes_and_the_promised_ids() {
    let (one, two) = (trained(), trained());
    assert_eq!(one.hash(), two.hash());
    assert_eq!(one.vocab_size(), 320);
    assert_eq!((one.bos(), one.eos()), (Some(0), Some(1)));
    assert_eq!(one.decode(&[0, 1, 2]).unwrap(), "<bos><eos><pad>");
}

#[test]
fn a_saved_tokenizer_is_the_same_when_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let tokenizer = trained();
    tokenizer.save(&path).unwrap();
    let read = Tokenizer::from_file(&path).unwrap();
    assert_eq!(read.hash(), tokenizer.hash());
    assert_eq!(read.hash(), files::sha256_file(&path).unwrap());
    assert_eq!(
        read.encode(TEXTS[0]).unwrap(),
        tokenizer.encode(TEXTS[0]).unwrap()
    );
}

#[test]
fn t07_spaces_before_punctuation_and_quotes_survive() {
    let tokenizer = trained();
    for text in [
        "x != y",
        "the word 'social'",
        "hello !",
        "do n't , please .",
    ] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}

#[test]
fn t08_leading_spaces_survive() {
    let tokenizer = trained();
    for text in ["   three", " one", "\n\n  two", TEXTS[3], TEXTS[5]] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}

#[test]
fn t09_suffix_is_sliced_from_the_whole() {
    let tokenizer = trained();
    let (prefix, suffix) = ("The riv", "er runs past the old mill");
    let whole = tokenizer.encode(&format!("{prefix}{suffix}")).unwrap();
    let cut = tokenizer.encode(prefix).unwrap().len();
    // The text after a cut inside a word has other ids by itself: ids are sliced, not re-encoded.
    assert_ne!(
        whole[cut.min(whole.len())..],
        tokenizer.encode(suffix).unwrap()
    );
    // So are the windows of an article.
    let article = Document {
        text: format!("{prefix}{suffix}"),
        ..Document::default()
    };
    let settings = DocumentSettings {
        tokens: 4,
        min_tokens: 1,
        bos: Bos::Always,
        windows: Windows::All,
    };
    let windows = tokenize(&[article], "test", &tokenizer, &settings).unwrap();
    assert!(windows.len() > 2);
    let joined: Vec<u32> = windows
        .iter()
        .flat_map(|window| &window.ids[1..])
        .copied()
        .collect();
    assert_eq!(joined, whole);
}

#[test]
fn t12_control_strings_in_a_text_are_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    trained().save(&path).unwrap();
    // The same tokenizer with the control strings of other families as added special tokens.
    let mut json: serde_json::Value = serde_json::from_slice(&files::read(&path).unwrap()).unwrap();
    let mut control = vec![0, 1, 2];
    for (index, token) in ["<s>", "</s>", "<|endoftext|>"].iter().enumerate() {
        let id = 320 + index;
        control.push(id as u32);
        json["added_tokens"]
            .as_array_mut()
            .unwrap()
            .push(serde_json::json!({
                "id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true
            }));
    }
    files::write_atomic(&path, json.to_string().as_bytes()).unwrap();
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    assert_eq!(tokenizer.vocab_size(), 323);
    let text = "An article about </s>, <s>, <bos>, <eos>, <pad> and <|endoftext|> tokens.";
    let ids = tokenizer.encode(text).unwrap();
    assert!(ids.iter().all(|id| !control.contains(id)), "{ids:?}");
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
}

#[test]
fn the_post_processor_names_the_beginning_and_adds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    trained().save(&path).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&files::read(&path).unwrap()).unwrap();
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<pad>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<pad>": {"id": "<pad>", "ids": [2], "tokens": ["<pad>"]}}
    });
    json["truncation"] = serde_json::json!({
        "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0
    });
    files::write_atomic(&path, json.to_string().as_bytes()).unwrap();
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    assert_eq!(tokenizer.bos(), Some(2));
    // Neither the template's token nor the file's truncation touches a text.
    assert_eq!(
        tokenizer.encode(TEXTS[0]).unwrap(),
        trained().encode(TEXTS[0]).unwrap()
    );
}

#[test]
fn a_broken_tokenizer_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    for content in [
        "",
        "{",
        "[]",
        "{\"model\": {\"type\": \"BPE\"}}",
        "{\"version\": \"1.0\"}",
    ] {
        files::write_atomic(&path, content.as_bytes()).unwrap();
        let error = Tokenizer::from_file(&path).err().unwrap();
        assert_eq!(error.kind(), Kind::Model);
        assert!(error.to_string().contains("tokenizer.json"), "{error}");
    }
}

#[test]
fn ids_and_sizes_that_do_not_fit_are_told() {
    assert_eq!(trained().decode(&[320]).unwrap_err().kind(), Kind::Model);
    let error = Tokenizer::train_bpe(std::iter::empty(), 100).err().unwrap();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains("259"), "{error}");
}
