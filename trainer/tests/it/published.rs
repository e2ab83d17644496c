//! Published models read by this program give the logits that Transformers gives
//! (`tests/fixtures/tiny_published.py`), on any grid.

use std::path::{Path, PathBuf};

use axmem_trainer::kernels::rotary;
use axmem_trainer::published::gguf;
use axmem_trainer::{Grid, Llama, Published, Rank, RopeScaling, launch};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

const MODELS: [&str; 7] = [
    "llama3_scaled",
    "linear_scaled",
    "untied_sharded",
    "tied",
    "mistral",
    "qwen2",
    "f16",
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn model(name: &str) -> PathBuf {
    fixtures().join("published").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A copy of a model, to be damaged.
fn copy(name: &str) -> TempDir {
    let folder = tempdir().unwrap();
    for entry in std::fs::read_dir(model(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

fn refused(path: &Path) -> String {
    let error = Published::open(path).expect_err("refused");
    assert_eq!(error.kind(), axmem_trainer::Kind::Model, "{error}");
    error.to_string()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn floats(value: &Value) -> Vec<f64> {
    list(value).map(|value| value.as_f64().unwrap()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    list(value).map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The logits `[rows, V]` of whole sequences.
fn logits(llama: &Llama, rank: &Rank, sequences: &[&[u32]]) -> Vec<f32> {
    let hidden = llama.hidden(rank, sequences).unwrap();
    llama.logits(rank, &hidden).unwrap()
}

/// Compares every position of the reference, and the greedy continuation, on one rank of a grid.
fn compare(name: &str, published: &Published, reference: &Value, rank: &Rank) {
    let llama = published.llama(rank).unwrap();
    let vocab = published.config().vocab;
    let sequences: Vec<Vec<u32>> = list(&reference["ids"]).map(ids).collect();
    let at: Vec<usize> = list(&reference["at"])
        .map(|id| id.as_u64().unwrap() as usize)
        .collect();
    for (number, sequence) in sequences.iter().enumerate() {
        let rows = logits(&llama, rank, &[sequence]);
        let expected = &reference["logits"][number];
        let sums = floats(&reference["log_sum_exp"][number]);
        for (position, row) in rows.chunks_exact(vocab).enumerate() {
            let sum = row
                .iter()
                .map(|&logit| f64::from(logit).exp())
                .sum::<f64>()
                .ln();
            let close = |found: f64, expected: f64| {
                (found - expected).abs() <= 1e-4 * expected.abs().max(1.0)
            };
            assert!(
                close(sum, sums[position]),
                "{name} {number} {position}: {sum} {}",
                sums[position]
            );
            for (&id, expected) in at.iter().zip(floats(&expected[position])) {
                let found = f64::from(row[id]);
                assert!(
                    close(found, expected),
                    "{name} {number} {position} {id}: {found} {expected}"
                );
            }
        }
        let mut continued = sequence.clone();
        for _ in list(&reference["continuation"][number]) {
            let rows = logits(&llama, rank, &[&continued]);
            let last = &rows[rows.len() - vocab..];
            let best = (0..vocab)
                .max_by(|&a, &b| last[a].total_cmp(&last[b]))
                .unwrap();
            continued.push(best as u32);
        }
        assert_eq!(
            continued[sequence.len()..],
            ids(&reference["continuation"][number]),
            "{name}"
        );
    }
}

fn on_grid(grid: &Grid, work: impl Fn(&Rank) + Sync) {
    launch::threads(grid, |rank| {
        work(rank);
        Ok(())
    })
    .unwrap();
}

#[test]
fn w01_logits_of_published_models_equal_transformers() {
    for name in MODELS {
        let published = Published::open(&model(name)).unwrap();
        let reference = json(&model(name).join("reference.json"));
        on_grid(&Grid::single(), |rank| {
            compare(name, &published, &reference, rank);
        });
    }
}

#[test]
fn every_rank_reads_its_slices() {
    for (name, grid) in [
        ("untied_sharded", Grid::new(2, 2, 2, 1)),
        ("qwen2", Grid::new(2, 1, 3, 1)),
        ("f16", Grid::new(1, 2, 1, 2)),
    ] {
        let published = Published::open(&model(name)).unwrap();
        let reference = json(&model(name).join("reference.json"));
        on_grid(&grid, |rank| compare(name, &published, &reference, rank));
    }
}

#[test]
fn w04_every_spelling_of_config_json_gives_one_model() {
    for (name, spellings) in [
        (
            "llama3_scaled",
            ["config.v4.json", "config.v4_type.json"].as_slice(),
        ),
        (
            "linear_scaled",
            &["config.v4.json", "config.v4_rope_type.json"],
        ),
        ("mistral", &["config.v4.json"]),
        ("qwen2", &["config.v4.json"]),
    ] {
        let expected = Published::open(&model(name)).unwrap().config().clone();
        for spelling in spellings {
            let folder = copy(name);
            std::fs::rename(
                folder.path().join(spelling),
                folder.path().join("config.json"),
            )
            .unwrap();
            let found = Published::open(folder.path()).unwrap();
            assert_eq!(found.config(), &expected, "{name} {spelling}");
        }
    }
}

#[test]
fn w04_frequencies_of_llama_3_equal_transformers() {
    let reference = json(&fixtures().join("llama3_frequencies.json"));
    for case in list(&reference["frequencies"]) {
        let scaling = RopeScaling::Llama3 {
            factor: case["factor"].as_f64().unwrap(),
            low: 1.0,
            high: 4.0,
            original_positions: 8192,
        };
        let head_dim = case["head_dim"].as_u64().unwrap() as usize;
        let found = rotary::frequencies(head_dim, 500_000.0, Some(&scaling));
        for (found, expected) in found.iter().zip(floats(&case["float64"])) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        }
    }
}

#[test]
fn w01_a_gguf_file_gives_the_logits_of_transformers_on_any_grid() {
    let path = fixtures().join("tiny.gguf");
    let published = Published::open(&path).unwrap();
    assert!(
        published.dtypes().contains("q8_0"),
        "{}",
        published.dtypes()
    );
    let reference = json(&fixtures().join("tiny_gguf.json"));
    for grid in [Grid::single(), Grid::new(2, 1, 2, 1), Grid::new(1, 2, 3, 1)] {
        on_grid(&grid, |rank| {
            compare("tiny.gguf", &published, &reference, rank);
        });
    }
    let tokens = published
        .metadata()
        .unwrap()
        .texts("tokenizer.ggml.tokens")
        .unwrap();
    assert_eq!(tokens.len(), published.config().vocab);
}

#[test]
fn w08_a_missing_shard_is_named() {
    let folder = copy("untied_sharded");
    let shard = "model-00002-of-00003.safetensors";
    std::fs::remove_file(folder.path().join(shard)).unwrap();
    let message = refused(folder.path());
    assert!(
        message.contains(shard) && message.contains("names 3 files, of which 1 are missing"),
        "{message}"
    );
}

#[test]
fn w10_an_index_that_does_not_fit_its_files_is_stale() {
    let stale = |change: &dyn Fn(&mut Value)| {
        let folder = copy("untied_sharded");
        let path = folder.path().join("model.safetensors.index.json");
        let mut index = json(&path);
        change(&mut index);
        std::fs::write(&path, index.to_string()).unwrap();
        refused(folder.path())
    };
    let message = stale(&|index| {
        for part in 4..30 {
            index["weight_map"][format!("extra.{part}")] =
                format!("model-{part:05}-of-00030.safetensors").into();
        }
    });
    assert!(
        message.contains("names 29 files, of which 26 are missing"),
        "{message}"
    );
    let message = stale(&|index| {
        index["weight_map"]["model.norm.weight"] = "model-00001-of-00003.safetensors".into();
    });
    assert!(
        message.contains("model.norm.weight") && message.contains("stale"),
        "{message}"
    );
    let message = stale(&|index| {
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove("model.norm.weight");
    });
    assert!(
        message.contains("does not list model.norm.weight"),
        "{message}"
    );
    for outside in ["../evil.safetensors", "/etc/passwd", "a\\b", ".."] {
        let message = stale(&|index| index["weight_map"]["model.norm.weight"] = outside.into());
        assert!(message.contains("not a file of its folder"), "{message}");
    }
}

/// A folder whose `config.json` says `flag` of the tie, with the named tensors of the tied model in it.
fn with_head(flag: Option<bool>, embedding: bool, head: bool, alias: bool) -> TempDir {
    let folder = copy("tied");
    let mut config = json(&folder.path().join("config.json"));
    config["tie_word_embeddings"] = flag.map_or(Value::Null, Value::from);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    rewrite(
        &folder.path().join("model.safetensors"),
        |tensors, metadata| {
            let place = tensors
                .iter()
                .position(|(name, ..)| name == "model.embed_tokens.weight")
                .unwrap();
            let embedded = tensors[place].clone();
            if !embedding {
                tensors.remove(place);
            }
            if head {
                tensors.push(("lm_head.weight".into(), embedded.1, embedded.2));
            }
            if alias {
                metadata["lm_head.weight"] = "model.embed_tokens.weight".into();
            }
        },
    );
    folder
}

type Tensors = Vec<(String, Value, Vec<u8>)>;

/// Writes a safetensors file again with other tensors.
fn rewrite(path: &Path, change: impl Fn(&mut Tensors, &mut Value)) {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let mut metadata = header["__metadata__"].clone();
    let mut tensors: Tensors = header
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "__metadata__")
        .map(|(name, entry)| {
            let ends: Vec<usize> = list(&entry["data_offsets"])
                .map(|end| end.as_u64().unwrap() as usize)
                .collect();
            let data = bytes[8 + length..][ends[0]..ends[1]].to_vec();
            (name.clone(), entry.clone(), data)
        })
        .collect();
    change(&mut tensors, &mut metadata);
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), metadata);
    let mut offset = 0;
    let mut values = Vec::new();
    for (name, mut entry, data) in tensors {
        entry["data_offsets"] = serde_json::json!([offset, offset + data.len()]);
        offset += data.len();
        values.extend(data);
        header.insert(name, entry);
    }
    std::fs::write(path, file(&Value::Object(header).to_string(), &values)).unwrap();
}

/// A safetensors file of a header and values.
fn file(header: &str, values: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        values,
    ]
    .concat()
}

#[test]
fn w06_flag_and_names_decide_whether_the_head_is_the_embedding() {
    let tied = |flag, embedding, head, alias| {
        let folder = with_head(flag, embedding, head, alias);
        Published::open(folder.path()).map(|published| {
            on_grid(&Grid::single(), |rank| {
                published.llama(rank).unwrap();
            });
            published.config().tied
        })
    };
    for (flag, embedding, head, alias, expected) in [
        (Some(true), true, true, false, true),
        (Some(true), true, false, false, true),
        (Some(true), false, true, false, true),
        (Some(true), true, false, true, true),
        (Some(false), true, true, false, false),
        (Some(false), true, false, true, false),
        (None, true, true, false, false),
        (None, true, false, false, true),
    ] {
        let found = tied(flag, embedding, head, alias).unwrap();
        assert_eq!(found, expected, "{flag:?} {embedding} {head} {alias}");
    }
    for (flag, embedding, head) in [
        (Some(false), true, false),
        (Some(false), false, true),
        (None, false, true),
        (Some(true), false, false),
    ] {
        let message = tied(flag, embedding, head, false).unwrap_err().to_string();
        assert!(message.contains("lacks 1 of the"), "{message}");
    }
    let folder = with_head(Some(true), true, true, false);
    rewrite(&folder.path().join("model.safetensors"), |tensors, _| {
        tensors.last_mut().unwrap().2[0] ^= 1;
    });
    let message = refused(folder.path());
    assert!(
        message.contains("tie_word_embeddings is true") && message.contains("differ"),
        "{message}"
    );
}

#[test]
fn damaged_safetensors_are_refused_before_memory_is_taken() {
    let damaged = |bytes: &[u8]| {
        let folder = copy("tied");
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        refused(folder.path())
    };
    let whole = std::fs::read(model("tied").join("model.safetensors")).unwrap();
    for (cut, fault) in [
        (0, "0 bytes"),
        (7, "7 bytes"),
        (100, "truncated"),
        (whole.len() - 1, "truncated"),
    ] {
        let message = damaged(&whole[..cut]);
        assert!(message.contains(fault), "{cut}: {message}");
    }
    let mut absurd = whole.clone();
    absurd[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    assert!(damaged(&absurd).contains("9223372036854775808 bytes"));
    let longer = [&whole[..], b"rest"].concat();
    assert!(damaged(&longer).contains("4 bytes after its last tensor"));

    let tensor = |name: &str, shape: &str, from: usize, to: usize| {
        format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[{from},{to}]}}")
    };
    let header = |tensors: &[String]| format!("{{{}}}", tensors.join(","));
    let vast = usize::MAX / 8;
    for (tensors, fault) in [
        (
            vec![tensor("a", "[2]", 0, 8), tensor("b", "[2]", 4, 12)],
            "overlap",
        ),
        (vec![tensor("a", "[2]", 4, 12)], "begins at byte 4"),
        (vec![tensor("a", "[2]", 8, 0)], "overlap"),
        (
            vec![tensor("a", "[3]", 0, 12), tensor("a", "[3]", 0, 12)],
            "a is listed twice",
        ),
        (vec![tensor("a", "[4]", 0, 12)], "12 bytes"),
        (
            vec![tensor("a", &format!("[{vast},{vast}]"), 0, 12)],
            "12 bytes",
        ),
        (
            vec![tensor("a", "[1,1,3]", 0, 12)],
            "vectors and matrices only",
        ),
        (
            vec![tensor("a", "[3]", 0, 12).replace("F32", "I64")],
            "type I64",
        ),
    ] {
        let message = damaged(&file(&header(&tensors), &[0; 12]));
        assert!(message.contains(fault), "{fault}: {message}");
    }
    assert!(damaged(&file("{", &[])).contains("bad header"));
}

#[test]
fn tensors_that_are_missing_unknown_or_of_another_shape_are_named() {
    let changed = |change: &dyn Fn(&mut Tensors)| {
        let folder = copy("tied");
        rewrite(&folder.path().join("model.safetensors"), |tensors, _| {
            change(tensors);
        });
        refused(folder.path())
    };
    let message = changed(&|tensors| tensors.retain(|(name, ..)| !name.contains("layers.1.mlp")));
    assert!(
        message.contains("lacks 3 of the") && message.contains("model.layers.1.mlp."),
        "{message}"
    );
    let message = changed(&|tensors| {
        let mut extra = tensors[0].clone();
        extra.0 = "model.layers.0.self_attn.q_norm.weight".into();
        tensors.push(extra);
    });
    assert!(
        message.contains("q_norm.weight") && message.contains("no plain Llama"),
        "{message}"
    );
    let message = changed(&|tensors| {
        for (name, entry, _) in tensors {
            if name.ends_with("layers.0.mlp.down_proj.weight") {
                entry["shape"] = serde_json::json!([entry["shape"][1], entry["shape"][0]]);
            }
        }
    });
    assert!(
        message.contains("layers.0.mlp.down_proj.weight has shape"),
        "{message}"
    );

    let folder = copy("tied");
    let mut config = json(&folder.path().join("config.json"));
    config["num_hidden_layers"] = (1u64 << 40).into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    assert!(refused(folder.path()).contains("files are missing"));
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    std::fs::write(folder.path().join("pytorch_model.bin"), b"").unwrap();
    assert!(refused(folder.path()).contains("pytorch_model.bin"));
}

#[test]
fn damaged_gguf_files_are_refused_before_memory_is_taken() {
    let whole = std::fs::read(fixtures().join("tiny.gguf")).unwrap();
    let folder = tempdir().unwrap();
    let path = folder.path().join("damaged.gguf");
    let damaged = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        refused(&path)
    };
    for cut in [0, 3, 8, 20, 100, whole.len() / 2, whole.len() - 1] {
        let message = damaged(&whole[..cut]);
        assert!(
            message.contains("truncated") || message.contains("damaged"),
            "{cut}: {message}"
        );
    }
    let with = |at: usize, value: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        damaged(&bytes)
    };
    assert!(with(0, b"PK\x03\x04").contains("neither a folder nor a GGUF file"));
    assert!(with(4, &1u32.to_le_bytes()).contains("version 1"));
    assert!(with(4, &3u32.to_be_bytes()).contains("big-endian"));
    assert!(with(8, &u64::MAX.to_le_bytes()).contains("18446744073709551615 tensors"));
    assert!(with(16, &(u64::MAX / 13).to_le_bytes()).contains("settings"));
    // The length of the first key.
    assert!(with(24, &(1u64 << 62).to_le_bytes()).contains("bytes of a text"));
}

/// No input of any kind makes the parser panic.
#[test]
fn changed_bytes_of_a_gguf_header_never_panic() {
    let whole = std::fs::read(fixtures().join("tiny.gguf")).unwrap();
    let header = 4096.min(whole.len());
    for at in 0..header {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let _ = gguf::parse(&mut bytes.as_slice(), bytes.len() as u64);
        }
    }
}
