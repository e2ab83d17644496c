//! Sources: what is cached, what is refused, and what the errors say.

use std::path::Path;

use axmem_datasets::reader::read_documents;
use axmem_datasets::source::{Source, SourceOptions, fetch};
use axmem_datasets::{Error, Kind, files};

fn parsed(text: &str) -> Source {
    text.parse().unwrap()
}

/// A cache that holds one member of a wheel, as a run of pip would have left it.
fn cache_with_member(content: &[u8]) -> tempfile::TempDir {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("pypi/name-1.0/data");
    files::create_dir_all(&folder).unwrap();
    files::write_atomic(folder.join("a.txt"), content).unwrap();
    cache
}

#[test]
fn a_cached_member_with_the_pinned_hash_needs_no_network() {
    let cache = cache_with_member(b"text");
    let options = SourceOptions {
        sha256: Some(files::sha256(b"text")),
        ..SourceOptions::default()
    };
    let found = fetch(&parsed("pypi:name==1.0/data/a.txt"), &options, cache.path()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].label, "pypi:name==1.0/data/a.txt");
    assert_eq!(
        (found[0].bytes, &found[0].sha256),
        (4, &files::sha256(b"text"))
    );
}

#[test]
fn a_wrong_hash_names_file_expected_and_found() {
    let cache = cache_with_member(b"other");
    let options = SourceOptions {
        sha256: Some(files::sha256(b"text")),
        offline: true,
        ..SourceOptions::default()
    };
    let error = fetch(&parsed("pypi:name==1.0/data/a.txt"), &options, cache.path()).unwrap_err();
    assert!(matches!(error, Error::Hash { .. }));
    assert_eq!(error.kind(), Kind::Data);
    let message = error.to_string();
    for part in [
        "data/a.txt",
        &files::sha256(b"text"),
        &files::sha256(b"other"),
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn an_absent_member_offline_says_where_to_put_it() {
    let cache = tempfile::tempdir().unwrap();
    let options = SourceOptions {
        offline: true,
        ..SourceOptions::default()
    };
    let error = fetch(&parsed("pypi:name==1.0/data/a.txt"), &options, cache.path()).unwrap_err();
    assert!(error.to_string().contains("name-1.0/data/a.txt"), "{error}");
}

#[test]
fn a_hub_source_needs_a_revision_and_tells_how_to_bring_the_files() {
    let cache = tempfile::tempdir().unwrap();
    let source = parsed("hf:wikimedia/wikipedia");
    let error = fetch(&source, &SourceOptions::default(), cache.path()).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let options = SourceOptions {
        revision: Some("0123abc".to_owned()),
        config: Some("20231101.en".to_owned()),
        offline: true,
        ..SourceOptions::default()
    };
    let error = fetch(&source, &options, cache.path()).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    let message = error.to_string();
    for part in [
        "wikimedia/wikipedia",
        "0123abc",
        "huggingface-cli download",
        "HF_HOME",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn missing_folders_and_folders_without_text_are_told() {
    let missing = Source::Local("/no/such/folder".into());
    let error = fetch(&missing, &SourceOptions::default(), Path::new("unused")).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let source = Source::Local(empty.path().into());
    let error = fetch(&source, &SourceOptions::default(), Path::new("unused")).unwrap_err();
    assert!(error.to_string().contains("no readable file"), "{error}");
}

#[test]
fn a_file_where_the_cache_folder_should_be_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    files::write_atomic(&file, b"").unwrap();
    let source = parsed("grammar:articles=2,sentences=2,seed=1");
    let error = fetch(&source, &SourceOptions::default(), &file).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn grammar_articles_are_reproduced_and_read() {
    let source = parsed("grammar:articles=5,sentences=3,seed=9");
    let read = || {
        let cache = tempfile::tempdir().unwrap();
        let found = fetch(&source, &SourceOptions::default(), cache.path()).unwrap();
        let mut documents = Vec::new();
        read_documents(&found, &mut |document| {
            documents.push(document);
            Ok(())
        })
        .unwrap();
        (found[0].sha256.clone(), documents)
    };
    let (hash, documents) = read();
    assert_eq!(read(), (hash, documents.clone()));
    let ids: Vec<_> = documents
        .iter()
        .map(|document| document.id.as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "grammar-0001",
            "grammar-0002",
            "grammar-0003",
            "grammar-0004",
            "grammar-0005"
        ]
    );
}
