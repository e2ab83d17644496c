//! `axmem export`: from the artefacts of a study to a folder that other programs read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use axmem_datasets::files;
use serde_json::Value;

use crate::support::{axmem, finish, smoke};

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// The artefacts of one stage.
fn artefacts(store: &Path, stage: &str) -> Vec<PathBuf> {
    files::list(store.join(stage)).expect("artefacts")
}

/// Bytes of values in an exported folder with one file of weights: what follows its header.
fn values(folder: &Path) -> u64 {
    let bytes = fs::read(folder.join("model.safetensors")).expect("a file");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    bytes.len() as u64 - 8 - header
}

fn export(run: &Path, folder: &Path, more: &[&str]) -> (i32, String) {
    finish(
        axmem(&["export"])
            .arg(run)
            .args(["--to", "hf"])
            .arg(folder)
            .args(more),
    )
}

#[test]
fn the_weights_of_a_study_are_exported_with_its_tokenizer() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let mut train = axmem(&["train", "--json"]);
    let sets = ["--set", "buckets.trials=1", "--set", "train.warmup.steps=2"];
    let output: Output = train
        .arg(smoke())
        .arg("--store")
        .arg(&store)
        .args(sets)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    // The last thing that `train` says is where the runs are.
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    let run = Path::new(last["folder"].as_str().expect("a folder"));
    let tokens = artefacts(&store, "tokens-v2").remove(0);
    let tokenizer = json(&tokens.join("tokenizer.json"));

    let mut runs = vec![run.to_path_buf(), run.join("checkpoint")];
    runs.extend(artefacts(&store, "warmup-v1"));
    runs.extend(artefacts(&store, "weights-v1"));
    for (number, run) in runs.iter().enumerate() {
        let out = folder.path().join(format!("out {number}"));
        let (code, text) = export(run, &out, &[]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("with the tokenizer"), "{text}");
        let names = [
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ];
        let expected: Vec<PathBuf> = names.iter().map(|name| out.join(name)).collect();
        assert_eq!(files::list(&out).expect("a list"), expected);
        assert_eq!(json(&out.join("tokenizer.json")), tokenizer);
        let config = json(&out.join("config.json"));
        assert_eq!(config["vocab_size"], 300);
        assert_eq!(config["dtype"], "float32");
        for (name, field) in [("<bos>", "bos_token_id"), ("<eos>", "eos_token_id")] {
            let added = tokenizer["added_tokens"].as_array().expect("a list");
            let token = added.iter().find(|token| token["content"] == name);
            assert_eq!(config[field], token.expect("a control token")["id"]);
        }
        let config = json(&out.join("tokenizer_config.json"));
        assert_eq!(config["bos_token"], "<bos>");
        assert_eq!(config["eos_token"], "<eos>");
    }
    let out = folder.path().join("bf16");
    let output = axmem(&["export", "--json", "--dtype", "bf16", "--shard-mb", "1"])
        .arg(run)
        .arg(&out)
        .output()
        .expect("it starts");
    let said: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(said["event"], "exported");
    assert_eq!(said["files"], 1);
    assert_eq!(json(&out.join("config.json"))["dtype"], "bfloat16");
    assert_eq!(said["bytes"], values(&out));
    assert_eq!(values(&folder.path().join("out 0")), 2 * values(&out));

    // Without its tokenizer a run is still exported; a changed tokenizer is an error.
    fs::write(tokens.join("tokenizer.json"), "{}").expect("a write");
    let out = folder.path().join("changed");
    let (code, text) = export(run, &out, &[]);
    assert_ne!(code, 0);
    assert!(text.contains("tokenizer.json") && !out.exists(), "{text}");
    fs::remove_dir_all(&tokens).expect("a removal");
    let (code, text) = export(run, &out, &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("without a tokenizer"), "{text}");
    assert_eq!(json(&out.join("config.json"))["bos_token_id"], Value::Null);

    refusals(folder.path(), run);
}

fn refusals(folder: &Path, run: &Path) {
    let out = folder.join("refused");
    let refused = |run: &Path, out: &Path, more: &[&str], code: i32, part: &str| {
        let (found, text) = export(run, out, more);
        assert_eq!(found, code, "{text}");
        assert!(text.contains(part) && !text.contains("panicked"), "{text}");
    };
    refused(run, &folder.join("changed"), &[], 2, "is not empty");
    refused(run, &out, &["--shard-mb", "0"], 2, "--shard-mb");
    refused(run, &out, &["--dtype", "f16"], 2, "--dtype");
    refused(&smoke(), &out, &[], 2, "axmem train");
    refused(&folder.join("nothing"), &out, &[], 4, "holds no checkpoint");
    fs::remove_file(run.join("manifest.json")).expect("a removal");
    refused(run, &out, &[], 4, "is not done");
    let checkpoint = run.join("checkpoint");
    assert_eq!(export(&checkpoint, &folder.join("direct"), &[]).0, 0);
    fs::remove_file(checkpoint.join("index.json")).expect("a removal");
    refused(&checkpoint, &out, &[], 4, "holds no checkpoint");
    assert!(!out.exists());
}
