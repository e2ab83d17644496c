//! Models fetched from a small server that speaks the hub's file API.

mod server;

use std::cell::RefCell;
use std::time::Duration;

use hf_hub::Cache;
use tempfile::TempDir;

use self::server::{COMMIT, Request, Server, Trick};
use super::client::{Hub, Patience};
use super::fetch_from;
use super::model::fetch_model_from;
use crate::error::{Error, Kind, Result};
use crate::files;
use crate::source::{ModelFiles, ModelOptions, Source, SourceOptions};

const TOKEN: &str = "hf_secretsecret";
const WEIGHTS: &[u8] = &[7; 100_000];
const SMALL: [(&str, &[u8]); 2] = [("config.json", b"{}"), ("tokenizer.json", b"{\"t\": 1}")];

fn whole() -> Vec<(&'static str, &'static [u8])> {
    let others: [(&str, &[u8]); 3] = [
        ("model.safetensors", WEIGHTS),
        ("pytorch_model.bin", b"never"),
        ("original/consolidated.00.pth", b"never"),
    ];
    SMALL.into_iter().chain(others).collect()
}

fn hub(endpoint: &str, home: &TempDir) -> Hub {
    let patience = Patience {
        tries: 3,
        first: Duration::from_millis(1),
        longest: Duration::from_millis(20),
    };
    Hub::new(
        endpoint,
        Cache::new(home.path().join("hub")),
        Some(TOKEN.to_owned()),
        "the test".to_owned(),
        patience,
    )
}

fn fetch(server: &Server, home: &TempDir) -> Result<ModelFiles> {
    let hub = hub(&server.endpoint, home);
    fetch_model_from(&hub, "org/name", COMMIT, None, &ModelOptions::default())
}

fn plain(_: &Request, _: usize) -> Option<Trick> {
    None
}

/// The message of a failed fetch, which never holds the token.
fn message(server: &Server) -> String {
    let home = tempfile::tempdir().unwrap();
    let error = fetch(server, &home).unwrap_err();
    assert_eq!(error.kind(), Kind::Data, "{error}");
    let text = format!("{error} {error:?}");
    assert!(!text.contains(TOKEN), "{text}");
    assert!(text.replace("--", "/").contains("org/name"), "{text}");
    error.to_string()
}

fn refusing(status: u16, code: &'static str) -> Server {
    Server::start(&whole(), &[], move |_, _| {
        Some(Trick::Status(status, vec![("x-error-code", code.into())]))
    })
}

#[test]
fn a_model_is_fetched_and_then_needs_no_network() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&whole(), &[], plain);
    let model = fetch(&server, &home).unwrap();
    let names: Vec<_> = model.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(
        names,
        ["config.json", "model.safetensors", "tokenizer.json"]
    );
    assert_eq!(model.label, format!("hf:org/name@{COMMIT}"));
    assert_eq!(model.revision.as_deref(), Some(COMMIT));
    let expected = home
        .path()
        .join("hub/models--org--name/snapshots")
        .join(COMMIT);
    assert_eq!(model.path, expected);
    let hash = files::sha256(WEIGHTS);
    assert_eq!(model.files[1].sha256.as_deref(), Some(hash.as_str()));
    assert_eq!(files::read(&model.files[1].path).unwrap(), WEIGHTS);
    assert!(server.loads(".bin").is_empty() && server.loads(".pth").is_empty());
    let told = server.requests()[0].headers["authorization"].clone();
    assert_eq!(told, format!("Bearer {TOKEN}"));

    // Nobody listens there: what is missing in the cache is known not to exist.
    let gone = hub("http://127.0.0.1:1", &home);
    for offline in [false, true] {
        let options = ModelOptions {
            offline,
            hash: true,
            ..ModelOptions::default()
        };
        let again = fetch_model_from(&gone, "org/name", COMMIT, None, &options).unwrap();
        assert_eq!(again, model);
    }
}

#[test]
fn a_branch_becomes_a_commit_and_the_cache_serves_when_the_hub_is_away() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&whole(), &[], plain);
    let options = ModelOptions::default();
    let fetch = |hub: &Hub| fetch_model_from(hub, "org/name", "main", None, &options);
    let model = fetch(&hub(&server.endpoint, &home)).unwrap();
    assert_eq!(model.revision.as_deref(), Some(COMMIT));
    assert!(model.notes.is_empty());

    let again = fetch(&hub("http://127.0.0.1:1", &home)).unwrap();
    assert_eq!(again.files, model.files);
    assert!(again.notes[0].contains("was not reached"), "{again:?}");
}

#[test]
fn shards_are_those_of_the_index() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "parts/model-2.safetensors",
        "c": "model-1.safetensors"}}"#;
    let mut repository = SMALL.to_vec();
    repository.push(("model.safetensors.index.json", index));
    repository.push(("model-1.safetensors", b"one"));
    repository.push(("parts/model-2.safetensors", b"two"));
    repository.push(("model-3.safetensors", b"of another model"));
    let home = tempfile::tempdir().unwrap();
    let model = fetch(&Server::start(&repository, &[], plain), &home).unwrap();
    let names: Vec<_> = model.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "config.json",
            "model-1.safetensors",
            "model.safetensors.index.json",
            "parts/model-2.safetensors",
            "tokenizer.json"
        ]
    );
    assert_eq!(files::read(&model.files[3].path).unwrap(), b"two");

    repository.retain(|(name, _)| *name != "model-1.safetensors");
    let error = message(&Server::start(&repository, &[], plain));
    assert!(error.contains("model-1.safetensors"), "{error}");
}

#[test]
fn an_index_that_leaves_the_folder_is_refused() {
    for evil in ["../evil.safetensors", "/evil.safetensors", "evil.pickle"] {
        let index = format!(r#"{{"weight_map": {{"a": "{evil}"}}}}"#);
        let mut repository = SMALL.to_vec();
        repository.push(("model.safetensors.index.json", index.as_bytes()));
        repository.push((evil, b"evil"));
        let error = message(&Server::start(&repository, &[], plain));
        assert!(
            error.contains(evil) && error.contains("tensor a"),
            "{error}"
        );
    }
}

#[test]
fn one_gguf_file_is_fetched_alone() {
    let mut repository = whole();
    repository.push(("sub/small.gguf", b"GGUF"));
    let server = Server::start(&repository, &[], plain);
    let home = tempfile::tempdir().unwrap();
    let hub = hub(&server.endpoint, &home);
    let options = ModelOptions::default();
    let get = |file| fetch_model_from(&hub, "org/name", COMMIT, Some(file), &options);
    let model = get("sub/small.gguf").unwrap();
    assert_eq!(files::read(&model.path).unwrap(), b"GGUF");
    assert_eq!(model.label, format!("hf:org/name@{COMMIT}/sub/small.gguf"));
    assert_eq!(model.files.len(), 1);
    assert!(server.loads(".safetensors").is_empty());
    let error = get("other.gguf").unwrap_err().to_string();
    assert!(error.contains("it has sub/small.gguf"), "{error}");
}

#[test]
fn a_cut_connection_is_resumed_where_it_broke() {
    let server = Server::start(&whole(), &[], |request, before| {
        let content = request.method == "GET" && request.path.ends_with(".safetensors");
        (content && before == 0).then_some(Trick::Cut(40_000))
    });
    let home = tempfile::tempdir().unwrap();
    let seen = RefCell::new(Vec::new());
    let progress = |name: &str, bytes: u64, all: Option<u64>| {
        seen.borrow_mut().push((name.to_owned(), bytes, all));
    };
    let options = ModelOptions {
        progress: Some(&progress),
        ..ModelOptions::default()
    };
    let hub = hub(&server.endpoint, &home);
    let model = fetch_model_from(&hub, "org/name", COMMIT, None, &options).unwrap();
    assert_eq!(files::read(&model.files[1].path).unwrap(), WEIGHTS);
    let loads = server.loads(".safetensors");
    assert_eq!(loads.len(), 2);
    assert!(!loads[0].headers.contains_key("range"));
    assert_eq!(loads[1].headers["range"], "bytes=40000-");
    let last = seen.borrow().last().cloned();
    assert_eq!(
        last,
        Some(("model.safetensors".to_owned(), 100_000, Some(100_000)))
    );
}

#[test]
fn a_later_run_goes_on_and_a_part_that_cannot_go_on_begins_anew() {
    let home = tempfile::tempdir().unwrap();
    let cutting = Server::start(&whole(), &[], |request, before| {
        let content = request.method == "GET" && request.path.ends_with(".safetensors");
        content.then_some(Trick::Cut(if before == 0 { 30_000 } else { 0 }))
    });
    let error = fetch(&cutting, &home).unwrap_err().to_string();
    for part in ["model.safetensors", "run again", "byte 30000"] {
        assert!(error.contains(part), "{error}");
    }
    // This server gives the whole file, whatever part is asked for.
    let server = Server::start(&whole(), &[], |request, _| {
        (request.method == "GET" && request.path.ends_with(".safetensors")).then_some(Trick::Whole)
    });
    let model = fetch(&server, &home).unwrap();
    assert_eq!(files::read(&model.files[1].path).unwrap(), WEIGHTS);
    assert_eq!(
        server.loads(".safetensors")[0].headers["range"],
        "bytes=30000-"
    );
}

#[test]
fn a_wrong_content_is_removed_and_named_with_both_hashes() {
    let promised = "a".repeat(64);
    let server = Server::start(&whole(), &[("model.safetensors", &promised)], plain);
    let home = tempfile::tempdir().unwrap();
    let error = fetch(&server, &home).unwrap_err();
    assert!(matches!(error, Error::Hash { .. }), "{error:?}");
    let error = error.to_string();
    for part in ["model.safetensors", &promised, &files::sha256(WEIGHTS)] {
        assert!(error.contains(part), "{error}");
    }
    let blobs = home.path().join("hub/models--org--name/blobs");
    let left = files::list(blobs).unwrap();
    assert!(
        left.iter().all(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            !name.starts_with(&promised) || name == format!("{promised}.lock")
        }),
        "{left:?}"
    );
}

#[test]
fn a_changed_content_in_the_cache_is_found_when_hashed() {
    let home = tempfile::tempdir().unwrap();
    let model = fetch(&Server::start(&whole(), &[], plain), &home).unwrap();
    let blob = model.files[1].path.canonicalize().unwrap();
    files::write_atomic(&blob, b"changed").unwrap();
    let hub = hub("http://127.0.0.1:1", &home);
    let options = ModelOptions {
        hash: true,
        ..ModelOptions::default()
    };
    let error = fetch_model_from(&hub, "org/name", COMMIT, None, &options).unwrap_err();
    assert!(matches!(error, Error::Hash { .. }), "{error}");
}

#[test]
fn redirects_are_followed_and_the_token_stays_with_the_hub() {
    let storage = Server::start(&whole(), &[], plain);
    // Another host by name, though the same machine.
    let away = storage.endpoint.replace("127.0.0.1", "localhost");
    let server = Server::start(&whole(), &[], move |request, _| {
        let location = if request.path.ends_with(".safetensors") {
            format!("{away}{}", request.path)
        } else if request.method == "HEAD" && !request.path.ends_with("?moved") {
            format!("{}?moved", request.path)
        } else {
            return None;
        };
        let hash = format!("\"{}\"", files::sha256(WEIGHTS));
        let headers = vec![
            ("location", location),
            ("x-linked-etag", hash),
            ("x-linked-size", WEIGHTS.len().to_string()),
        ];
        Some(Trick::Status(302, headers))
    });
    let home = tempfile::tempdir().unwrap();
    let model = fetch(&server, &home).unwrap();
    assert_eq!(files::read(&model.files[0].path).unwrap(), b"{}");
    assert_eq!(files::read(&model.files[1].path).unwrap(), WEIGHTS);
    let there = storage.requests();
    assert_eq!(there.len(), 1);
    assert!(!there[0].headers.contains_key("authorization"));
}

#[test]
fn a_data_set_comes_the_same_way() {
    let shard = "en/train-00000-of-00001.parquet";
    let repository: [(&str, &[u8]); 2] = [(shard, b"PAR1"), ("README.md", b"never")];
    let server = Server::start(&repository, &[], plain);
    let home = tempfile::tempdir().unwrap();
    let source: Source = "hf:org/name".parse().unwrap();
    let options = SourceOptions {
        revision: Some(COMMIT.to_owned()),
        config: Some("en".to_owned()),
        ..SourceOptions::default()
    };
    let get = |endpoint: &str| fetch_from(&hub(endpoint, &home), &source, "org/name", &options);
    let found = get(&server.endpoint).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].label, format!("hf:org/name@{COMMIT}/{shard}"));
    assert_eq!(files::read(&found[0].path).unwrap(), b"PAR1");
    assert!(server.loads("README.md").is_empty());
    assert_eq!(get("http://127.0.0.1:1").unwrap(), found);
}

#[test]
fn refusals_name_the_remedy() {
    for (status, code, parts) in [
        (
            401,
            "RepoNotFound",
            ["the test", "private or does not exist", "login"],
        ),
        (
            403,
            "GatedRepo",
            ["accept its licence", "/org/name", "huggingface-cli login"],
        ),
        (
            401,
            "GatedRepo",
            ["accept its licence", "/org/name", "huggingface-cli login"],
        ),
        (
            404,
            "RepoNotFound",
            ["no repository", "org/name", "check the spelling"],
        ),
        (
            404,
            "RevisionNotFound",
            ["no revision", COMMIT, "commits/main"],
        ),
        (418, "", ["status 418", "org/name", "see"]),
    ] {
        let server = refusing(status, code);
        let error = message(&server);
        for part in parts {
            assert!(error.contains(part), "{status} {code}: {error}");
        }
        assert_eq!(server.requests().len(), 1, "{status} is final");
    }
}

#[test]
fn a_file_that_is_listed_but_refused_is_named() {
    let server = Server::start(&whole(), &[], |request, _| {
        request
            .path
            .ends_with("tokenizer.json")
            .then(|| Trick::Status(404, vec![("x-error-code", "EntryNotFound".to_owned())]))
    });
    let error = message(&server);
    assert!(error.contains("no file tokenizer.json"), "{error}");
}

#[test]
fn what_is_no_transformers_model_says_what_to_take() {
    let error = message(&Server::start(&[("a.gguf", b"GGUF")], &[], plain));
    assert!(
        error.contains("no config.json") && error.contains("a.gguf"),
        "{error}"
    );
    let old: [(&str, &[u8]); 2] = [("config.json", b"{}"), ("pytorch_model.bin", b"x")];
    let error = message(&Server::start(&old, &[], plain));
    assert!(
        error.contains("no safetensors") && error.contains("save_pretrained"),
        "{error}"
    );
}

#[test]
fn a_rate_limit_is_waited_for_a_bounded_number_of_times() {
    let once = Server::start(&whole(), &[], |_, before| {
        // More than the longest wait, which is what is waited.
        (before == 0).then(|| Trick::Status(429, vec![("retry-after", "900".to_owned())]))
    });
    let home = tempfile::tempdir().unwrap();
    assert!(fetch(&once, &home).is_ok());

    let ever = refusing(429, "");
    let error = message(&ever);
    assert!(
        error.contains("rate") && error.contains("3 times"),
        "{error}"
    );
    assert_eq!(ever.requests().len(), 3);
}

#[test]
fn a_hub_that_is_away_is_named_with_another_way() {
    let home = tempfile::tempdir().unwrap();
    let hub = hub("http://127.0.0.1:1", &home);
    for offline in [false, true] {
        let options = ModelOptions {
            offline,
            ..ModelOptions::default()
        };
        let error = fetch_model_from(&hub, "org/name", COMMIT, None, &options).unwrap_err();
        let error = error.to_string();
        for part in ["huggingface-cli download org/name", COMMIT, "HF_HOME"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(error.contains("http://127.0.0.1:1"), !offline, "{error}");
    }
}

#[test]
fn names_that_are_no_repository_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let hub = hub("http://127.0.0.1:1", &home);
    for (name, revision, file) in [
        ("name", COMMIT, None),
        ("org/..", COMMIT, None),
        ("org/name", "../x", None),
        ("org/name", COMMIT, Some("../x.gguf")),
    ] {
        let options = ModelOptions::default();
        let error = fetch_model_from(&hub, name, revision, file, &options).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
    }
}
