//! Planted memorisation: a model that reproduces a known set of documents by construction, through a whole study.
//!
//! Every word is a token. The model has one direction of its hidden space per word, no attention and no feed-forward, and a head
//! that answers each word with the next one of the vocabulary. So it continues exactly the documents whose words stand
//! in the order of the vocabulary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use axmem_datasets::{files, table};
use axmem_eval::estimate::{Estimate, Overlap};
use axmem_eval::{ScoreRow, Time};
use serde_json::{Value, json};

use crate::support::{axmem, finish};

/// Documents, and words of each.
const DOCUMENTS: usize = 12;
const WORDS: usize = 32;
const VOCABULARY: usize = DOCUMENTS * WORDS + 1;
const HIDDEN: usize = 388;
const FEED_FORWARD: usize = 4;

/// Every third document is planted.
fn is_planted(document: usize) -> bool {
    document.is_multiple_of(3)
}

/// The words of a document: its own share of the vocabulary, in order if it is planted and else from the last to the first.
fn words(document: usize) -> Vec<usize> {
    let own = document * WORDS..(document + 1) * WORDS;
    if is_planted(document) {
        own.collect()
    } else {
        own.rev().collect()
    }
}

fn text(words: &[usize]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("word{word}")).collect();
    words.join(" ")
}

fn write_lines(path: &Path, documents: impl Iterator<Item = (String, Vec<usize>)>) {
    let mut lines = String::new();
    for (id, words) in documents {
        let line = json!({ "id": id, "title": format!("Article {id}"), "text": text(&words) });
        writeln!(lines, "{line}").expect("text");
    }
    fs::write(path, lines).expect("a file");
}

/// A folder in the Hugging Face layout.
fn write_model(folder: &Path) {
    fs::create_dir(folder).expect("a folder");
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": FEED_FORWARD, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
        "torch_dtype": "float32",
    });
    fs::write(folder.join("config.json"), config.to_string()).expect("a file");

    let mut vocabulary: BTreeMap<String, usize> = (0..VOCABULARY - 1)
        .map(|word| (format!("word{word}"), word))
        .collect();
    vocabulary.insert("<unk>".to_owned(), VOCABULARY - 1);
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>" },
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).expect("a file");

    let zeros = |rows: usize, columns: usize| (vec![rows, columns], vec![0.0_f32; rows * columns]);
    let ones = || (vec![HIDDEN], vec![1.0_f32; HIDDEN]);
    // Row `answer(word)` of the matrix holds a one at the direction of each word.
    let of_words = |answer: &dyn Fn(usize) -> usize| {
        let (shape, mut values) = zeros(VOCABULARY, HIDDEN);
        for word in 0..VOCABULARY {
            values[answer(word) * HIDDEN + word] = 1.0;
        }
        (shape, values)
    };
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let mut tensors = vec![
        (
            "model.embed_tokens.weight".to_owned(),
            of_words(&|word| word),
        ),
        (
            "lm_head.weight".to_owned(),
            of_words(&|word| (word + 1) % VOCABULARY),
        ),
        ("model.norm.weight".to_owned(), ones()),
        (layer("input_layernorm"), ones()),
        (layer("post_attention_layernorm"), ones()),
    ];
    for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        tensors.push((layer(&format!("self_attn.{name}")), zeros(HIDDEN, HIDDEN)));
    }
    for name in ["gate_proj", "up_proj"] {
        tensors.push((layer(&format!("mlp.{name}")), zeros(FEED_FORWARD, HIDDEN)));
    }
    tensors.push((layer("mlp.down_proj"), zeros(HIDDEN, FEED_FORWARD)));
    write_safetensors(&folder.join("model.safetensors"), &tensors);
}

/// Shape and values.
type Tensor = (Vec<usize>, Vec<f32>);

fn write_safetensors(path: &Path, tensors: &[(String, Tensor)]) {
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, (shape, values)) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).expect("a file");
}

/// The rate is too small to change an answer, so what was planted stays, and nothing else comes.
fn experiment(folder: &Path) -> String {
    format!(
        "name: planted
seed: 0
model: {{ name: planted, source: '{0}/model', dtype: f32 }}
corpus: {{ source: '{0}/corpus.jsonl' }}
background: {{ source: '{0}/background.jsonl', rows: 8, held_out: 2 }}
documents: {{ tokens: {WORDS}, min_tokens: {WORDS}, bos: never }}
buckets: {{ size: 4, epochs: [0, 1, 2], trials: 3 }}
train:
  arms: [standard, {{ goldfish: {{ k: 2, h: 4 }} }}]
  batch: 4
  warmup: {{ steps: 1 }}
  rate: {{ peak: 1e-9, final: 1e-9 }}
score: {{ suffix: [8, 20], min_prefix: 10, generate: true }}
analysis: {{ resamples: 200, primary: {{ suffix: 20 }} }}
",
        folder.display()
    )
}

#[test]
fn exactly_the_planted_documents_are_found_through_a_whole_study() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    write_model(&root.join("model"));
    write_lines(
        &root.join("corpus.jsonl"),
        (0..DOCUMENTS).map(|index| (format!("d{index:02}"), words(index))),
    );
    // Every document takes a step of its own through the vocabulary, which none of the corpus does.
    let shuffled =
        |index: usize| (0..WORDS).map(move |at| (at * (7 + index) + index) % (VOCABULARY - 1));
    write_lines(
        &root.join("background.jsonl"),
        (0..16).map(|index| (format!("b{index:02}"), shuffled(index).collect())),
    );
    fs::write(root.join("planted.yaml"), experiment(root)).expect("a file");
    let store = root.join("runs");
    let (code, text) = finish(
        axmem(&["run"])
            .arg(root.join("planted.yaml"))
            .arg("--store")
            .arg(&store),
    );
    assert_eq!(code, 0, "{text}");

    let summary = fs::read_to_string(store.join("planted/summary.json")).expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let key = summary["artefacts"]["estimate"].as_str().expect("a key");
    let estimate = files::list(store.join("estimate-v6"))
        .expect("artefacts")
        .into_iter()
        .find(|path| path.ends_with(key))
        .expect("the artefact");

    // Every document at every time, under both arms, in every trial: reproduced if and only if it was planted.
    let planted: BTreeSet<String> = (0..DOCUMENTS)
        .filter(|&index| is_planted(index))
        .map(|index| format!("d{index:02}"))
        .collect();
    let scores: Vec<ScoreRow> = table::read(estimate.join("scores.parquet")).expect("a table");
    assert_eq!(scores.len(), DOCUMENTS * 3 * 3 * 2, "times, trials, arms");
    for row in &scores {
        let article = row.score.document.split('#').next().unwrap_or_default();
        let expected = planted.contains(article);
        assert_eq!(row.score.exact, [expected; 2], "{row:?}");
        assert_eq!(row.score.generated_matched == Some(20), expected, "{row:?}");
        assert!(!row.score.fragile.contains(&true), "{row:?}");
    }

    // Rates, and what became of the documents, are those of the plan.
    let mut levels: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let after = scores
        .iter()
        .filter(|row| row.time == Time::After && row.arm == "standard");
    for row in after {
        *levels.entry((row.trial, row.epochs)).or_default() += u64::from(row.score.exact[1]);
    }
    assert_eq!(levels.values().sum::<u64>(), 3 * planted.len() as u64);
    let estimates: Vec<Estimate> =
        table::read(estimate.join("estimates.parquet")).expect("a table");
    for row in estimates.iter().filter(|row| row.trial != "pooled") {
        let trial: u32 = row.trial.parse().expect("a trial");
        let hits = levels[&(trial, row.exposures_nominal)];
        assert_eq!((row.hits, row.documents), (hits, 4), "{row:?}");
        assert!((row.rate - hits as f64 / 4.0).abs() < 1e-12, "{row:?}");
    }
    let overlap: Vec<Overlap> = table::read(estimate.join("overlap.parquet")).expect("a table");
    for row in &overlap {
        assert_eq!((row.gained, row.lost), (0, 0), "{row:?}");
    }
    let (code, text) = finish(axmem(&["verify"]).arg(store.join("planted")));
    assert_eq!(code, 0, "{text}");
}
