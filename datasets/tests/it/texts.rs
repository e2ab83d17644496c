//! The documents of an audit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use axmem_datasets::reader::{Text, read_texts};
use axmem_datasets::{Kind, files};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

fn written(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    files::write_atomic(&path, content.as_ref()).unwrap();
    (folder, path)
}

fn text(id: &str, text: &str, cluster: Option<&str>) -> Text {
    Text {
        id: id.to_owned(),
        text: text.to_owned(),
        cluster: cluster.map(str::to_owned),
    }
}

/// The message of a refused file, which names it.
fn refused(name: &str, content: impl AsRef<[u8]>) -> String {
    let (_folder, path) = written(name, content);
    let error = read_texts(&path, None).unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
    error.to_string()
}

fn parquet(columns: Vec<(&str, ArrayRef)>) -> (TempDir, PathBuf) {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    written("audit.parquet", bytes)
}

fn strings(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn json_lines_give_id_text_and_cluster() {
    let content = "\u{feff}{\"id\": \"a\", \"text\": \" One.\", \"cluster\": \"k\", \"extra\": 1}\n\n\
        {\"id\": 2, \"text\": \"Two.\", \"cluster\": 7, \"title\": \"T\", \"extra\": [1]}\n\
        {\"id\": \"3\", \"text\": \"Three.\", \"cluster\": null, \"other\": 0}";
    let (_folder, path) = written("audit.jsonl", content);
    let read = read_texts(&path, None).unwrap();
    assert_eq!(
        read.documents,
        [
            text("a", " One.", Some("k")),
            text("2", "Two.", Some("7")),
            text("3", "Three.", None)
        ]
    );
    assert_eq!(read.sha256, files::sha256_file(&path).unwrap());
    assert_eq!(read.notes.len(), 1, "{:?}", read.notes);
    assert!(
        read.notes[0].contains("\"extra\" (in 2), \"other\" (in 1)"),
        "{:?}",
        read.notes
    );

    let two = read_texts(&path, Some(2)).unwrap();
    assert_eq!(two.documents, read.documents[..2]);
    assert_eq!(two.sha256, read.sha256);
    let error = read_texts(&path, Some(0)).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}

#[test]
fn arrays_and_objects_of_titles_are_read_too() {
    let (_folder, path) = written(
        "audit.json",
        "[{\"id\": 1, \"text\": \"One.\"},\n{\"id\": 2, \"text\": \"Two.\"}]",
    );
    let expected = [text("1", "One.", None), text("2", "Two.", None)];
    assert_eq!(read_texts(&path, None).unwrap().documents, expected);
    assert_eq!(read_texts(&path, Some(1)).unwrap().documents, expected[..1]);

    let summaries = "{\"Ada\": \"One.\", \"Bell\": {\"extract\": \"Two.\", \"id\": 5}}";
    let (_folder, path) = written("summaries.json", summaries);
    assert_eq!(
        read_texts(&path, None).unwrap().documents,
        [text("Ada", "One.", None), text("5", "Two.", None)]
    );
}

#[test]
fn a_wrong_line_is_named_with_its_number_id_and_remedy() {
    let first = "{\"id\": \"a\", \"text\": \"One.\"}\n";
    for (second, parts) in [
        (
            "{\"id\": \"a\", \"text\": \"Two.\"}",
            ["line 2", "\"a\"", "already given at line 1"],
        ),
        (
            "{\"text\": \"Two.\"}",
            ["line 2", "no \"id\"", "give each document"],
        ),
        ("{\"id\": \"b\"}", ["line 2", "\"b\"", "no \"text\""]),
        (
            "{\"id\": \"b\", \"text\": \" \"}",
            ["line 2", "\"b\"", "empty text"],
        ),
        (
            "{\"id\": \"\", \"text\": \"Two.\"}",
            ["line 2", "empty id", "its own"],
        ),
        (
            "{\"id\": \"b\", \"text\": 5}",
            ["line 2", "\"b\"", "\"text\" is a number"],
        ),
        (
            "{\"id\": 1.5, \"text\": \"x\"}",
            ["line 2", "\"id\" is a number", "whole number"],
        ),
        (
            "{\"id\": \"b\", \"text\": \"x\", \"cluster\": []}",
            ["line 2", "\"b\"", "an array"],
        ),
        ("[1]", ["line 2", "is an array", "must be an object"]),
        ("{\"id\": \"b\", ", ["line 2", "is not JSON", "column"]),
    ] {
        let error = refused("audit.jsonl", format!("{first}{second}\n"));
        for part in parts {
            assert!(error.contains(part), "{second}: {error}");
        }
    }
    let mut bytes = first.as_bytes().to_vec();
    bytes.extend(b"{\"id\": \"b\", \"text\": \"\xff\"}\n");
    let error = refused("audit.jsonl", bytes);
    assert!(
        error.contains("line 2") && error.contains("UTF-8"),
        "{error}"
    );
    let error = refused("audit.jsonl", "");
    assert!(error.contains("no document"), "{error}");
    let error = refused("audit.json", "[{\"id\": 1, \"text\": \"\"}]");
    assert!(
        error.contains("entry 1") && error.contains("empty text"),
        "{error}"
    );
    let error = refused("audit.json", "[{\"id\": 1, \"text\": \"x\"}");
    assert!(error.contains("line 1"), "{error}");
}

#[test]
fn rows_give_the_same_and_name_what_is_wrong() {
    let (_folder, path) = parquet(vec![
        ("id", Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef),
        ("text", strings(&[Some("One."), Some("Two.")])),
        ("cluster", strings(&[Some("k"), None])),
        ("url", strings(&[Some("u"), None])),
        ("score", strings(&[None, None])),
    ]);
    let read = read_texts(&path, None).unwrap();
    assert_eq!(
        read.documents,
        [text("7", "One.", Some("k")), text("8", "Two.", None)]
    );
    assert_eq!(read.notes.len(), 1);
    assert!(read.notes[0].ends_with("score"), "{:?}", read.notes);
    assert_eq!(read_texts(&path, Some(1)).unwrap().documents.len(), 1);

    let ids = || strings(&[Some("a"), Some("b")]);
    for (columns, part) in [
        (vec![("id", ids())], "no column \"text\""),
        (vec![("text", ids())], "no column \"id\""),
        (
            vec![("id", ids()), ("text", strings(&[Some("x"), None]))],
            "row 1: document \"b\"",
        ),
        (
            vec![("id", ids()), ("text", strings(&[Some("x"), Some("")]))],
            "row 1: document \"b\"",
        ),
        (
            vec![("id", strings(&[Some("a"), Some("a")])), ("text", ids())],
            "already given at row 0",
        ),
        (
            vec![
                ("id", ids()),
                ("text", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
            ],
            "strings are needed",
        ),
    ] {
        let (_folder, path) = parquet(columns);
        let error = read_texts(&path, None).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_folder_gives_its_text_files_in_order_and_names_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("b.txt", "Two."), ("a.b.txt", "One."), ("notes.md", "No.")] {
        files::write_atomic(folder.path().join(name), content.as_bytes()).unwrap();
    }
    let read = read_texts(folder.path(), None).unwrap();
    assert_eq!(
        read.documents,
        [text("a.b", "One.", None), text("b", "Two.", None)]
    );
    assert!(
        read.notes[0].contains("1 (\"notes.md\")"),
        "{:?}",
        read.notes
    );
    let lines = format!(
        "{}  a.b.txt\n{}  b.txt\n",
        files::sha256(b"One."),
        files::sha256(b"Two.")
    );
    assert_eq!(read.sha256, files::sha256(lines.as_bytes()));
    let one = read_texts(folder.path(), Some(1)).unwrap();
    assert_eq!((one.documents.len(), one.sha256), (1, read.sha256));

    files::write_atomic(folder.path().join("c.txt"), b"\xff").unwrap();
    let error = read_texts(folder.path(), None).unwrap_err().to_string();
    assert!(
        error.contains("c.txt") && error.contains("UTF-8"),
        "{error}"
    );
    let empty = tempfile::tempdir().unwrap();
    let error = read_texts(empty.path(), None).unwrap_err().to_string();
    assert!(error.contains("no .txt file"), "{error}");
    let error = read_texts(Path::new("/no/such"), None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("/no/such"), "{error}");
}

#[test]
fn one_text_file_is_one_document_and_a_dump_many() {
    let (_folder, path) = written("article.txt", "Text.");
    assert_eq!(
        read_texts(&path, None).unwrap().documents,
        [text("article", "Text.", None)]
    );

    let page = |id: u32, body: &str| {
        format!(
            "<page><title>T{id}</title><ns>0</ns><id>{id}</id><revision><id>9</id>\
             <text>{body}</text></revision></page>"
        )
    };
    let pages = [
        page(1, "One."),
        page(2, "#REDIRECT [[T1]]"),
        page(3, "Three."),
    ]
    .concat();
    let (_folder, path) = written("dump.xml", format!("<mediawiki>{pages}</mediawiki>"));
    let read = read_texts(&path, None).unwrap();
    assert_eq!(
        read.documents,
        [text("1", "One.", None), text("3", "Three.", None)]
    );
    assert!(read.notes[0].contains("1 redirects"), "{:?}", read.notes);
    assert_eq!(read_texts(&path, Some(1)).unwrap().documents.len(), 1);
}
