//! The readers, from files made here to documents.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, LargeStringArray, RecordBatch, StringArray};
use axmem_datasets::document::Document;
use axmem_datasets::reader::{ReadReport, read_documents};
use axmem_datasets::source::{Source, SourceOptions, fetch};
use axmem_datasets::{Error, Kind, files};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

fn read(path: &Path) -> Result<(Vec<Document>, ReadReport), Error> {
    let source = Source::Local(path.to_path_buf());
    let found = fetch(&source, &SourceOptions::default(), Path::new("unused"))?;
    let mut documents = Vec::new();
    let report = read_documents(&found, &mut |document| {
        documents.push(document);
        Ok(())
    })?;
    Ok((documents, report))
}

fn written(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    files::write_atomic(&path, content.as_ref()).unwrap();
    (folder, path)
}

fn page(title: &str, namespace: &str, id: u32, rest: &str) -> String {
    format!("<page><title>{title}</title>{namespace}<id>{id}</id>{rest}</page>\n")
}

fn revision(text: &str) -> String {
    format!(
        "<revision><id>900</id><contributor><id>7</id></contributor><text>{text}</text></revision>"
    )
}

/// A redirect, an empty page, a disambiguation page, a title with a colon, another namespace and
/// a plain article.
fn six_pages(namespaces: bool) -> String {
    let ns = |number: u32| {
        if namespaces {
            format!("<ns>{number}</ns>")
        } else {
            String::new()
        }
    };
    let pages = [
        page(
            "AccessibleComputing",
            &ns(0),
            10,
            &revision("#Redirect [[Computer accessibility|x]]"),
        ),
        page(
            "Empty",
            &ns(0),
            11,
            "<revision><id>901</id><text /></revision>",
        ),
        page(
            "Mercury",
            &ns(0),
            12,
            &revision("'''Mercury''' may be:\n* [[a]]\n{{disambig|x}}"),
        ),
        page(
            "Trek: Next",
            &ns(0),
            13,
            &revision("It is &lt;b&gt;a&lt;/b&gt; show &amp;amp; {{x|y}} more."),
        ),
        page("Help:Editing", &ns(12), 14, &revision("How to edit.")),
        page("Last", &ns(0), 15, &revision("The last article.")),
    ];
    format!(
        "<mediawiki><siteinfo><base>https://en.wikipedia.org/wiki/Main_Page</base><namespaces>\
         <namespace key=\"0\" /><namespace key=\"12\">Help</namespace></namespaces></siteinfo>\n{}\
         </mediawiki>",
        pages.concat()
    )
}

fn check_six_pages(path: &Path) {
    let (documents, report) = read(path).unwrap();
    let seen: Vec<_> = documents
        .iter()
        .map(|document| {
            (
                document.id.as_str(),
                document.title.as_str(),
                document.text.as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("13", "Trek: Next", "It is a show & more."),
            ("15", "Last", "The last article."),
        ]
    );
    let expected = ReadReport {
        pages: 6,
        articles: 2,
        redirects: 1,
        disambiguation: 1,
        other_namespaces: 1,
        empty: 1,
        templates_removed: 1,
        redirect_titles: vec![(
            "AccessibleComputing".into(),
            "Computer accessibility".into(),
        )],
    };
    assert_eq!(report, expected);
}

fn bzip2(text: &str) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn d17_six_page_dump_with_namespace_numbers() {
    let (_folder, path) = written("dump.xml", six_pages(true));
    check_six_pages(&path);
}

#[test]
fn d17_six_page_dump_with_namespace_names_only() {
    let (_folder, path) = written("dump.xml", six_pages(false));
    check_six_pages(&path);
}

#[test]
fn d17_six_page_dump_in_two_bzip2_streams_without_an_ending() {
    let dump = six_pages(true);
    let (start, end) = dump.split_at(dump.len() / 2);
    let (_folder, path) = written("dump.xml-p1p15", [bzip2(start), bzip2(end)].concat());
    check_six_pages(&path);
}

#[test]
fn a_bzip2_cut_in_the_middle_is_an_error_with_file_and_place() {
    let long = format!("{}<!-- ", six_pages(true)) + &"x1y2z3 ".repeat(300_000);
    let bytes = bzip2(&long);
    let (_folder, path) = written("cut.xml.bz2", &bytes[..bytes.len() / 2]);
    let error = read(&path).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    let message = error.to_string();
    assert!(
        message.contains("cut.xml.bz2") && message.contains("byte"),
        "{message}"
    );
}

#[test]
fn a_bzip2_with_a_changed_byte_is_an_error() {
    let mut bytes = bzip2(&six_pages(true));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    let (_folder, path) = written("bad.xml.bz2", bytes);
    assert_eq!(read(&path).unwrap_err().kind(), Kind::Data);
}

#[test]
fn broken_xml_names_the_page() {
    for (broken, told) in [
        (
            six_pages(true).replace("</title><ns>0</ns><id>15", "</titel><ns>0</ns><id>15"),
            "page",
        ),
        (
            six_pages(true).replace("</page>\n</mediawiki>", ""),
            "cut short",
        ),
        (six_pages(true).replace("The last", "&nothing;"), "Last"),
        ("<html></html>".to_owned(), "not a MediaWiki dump"),
    ] {
        let (_folder, path) = written("broken.xml", broken);
        let message = read(&path).unwrap_err().to_string();
        assert!(
            message.contains("broken.xml") && message.contains(told),
            "{message}"
        );
    }
}

fn shard(path: &Path, first: usize, rows: usize) {
    let column = |name: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            (first..first + rows).map(|row| format!("{name} {row}")),
        ))
    };
    let long: ArrayRef = Arc::new(LargeStringArray::from_iter_values(
        (first..first + rows).map(|row| format!("text {row}")),
    ));
    let batch = RecordBatch::try_from_iter([
        ("title", column("title")),
        ("id", column("id")),
        ("url", column("url")),
        ("text", long),
    ])
    .unwrap();
    write_batch(path, &batch);
}

fn write_batch(path: &Path, batch: &RecordBatch) {
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn parquet_shards_are_read_in_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    for number in [2, 0, 1] {
        let path = folder
            .path()
            .join(format!("train-{number:05}-of-00003.parquet"));
        shard(&path, 300 * number, 300);
    }
    let (documents, report) = read(folder.path()).unwrap();
    assert_eq!((report.pages, report.articles), (900, 900));
    assert_eq!(documents[899].id, "id 899");
    assert_eq!(documents[300].text, "text 300");
    assert_eq!(documents[0].url, "url 0");
    assert_eq!(documents[0].title, "title 0");
}

#[test]
fn a_truncated_parquet_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.parquet");
    shard(&path, 0, 500);
    let bytes = files::read(&path).unwrap();
    for kept in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        files::write_atomic(&path, &bytes[..kept]).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.kind(), Kind::Data);
        assert!(error.to_string().contains("train.parquet"), "{error}");
    }
}

#[test]
fn parquet_columns_that_are_missing_or_no_strings_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.parquet");
    let strings = || -> ArrayRef { Arc::new(StringArray::from(vec!["a"])) };
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let columns = [
        ("id", numbers),
        ("url", strings()),
        ("title", strings()),
        ("text", strings()),
    ];
    write_batch(&path, &RecordBatch::try_from_iter(columns.clone()).unwrap());
    let message = read(&path).unwrap_err().to_string();
    assert!(
        message.contains("\"id\"") && message.contains("strings"),
        "{message}"
    );
    write_batch(
        &path,
        &RecordBatch::try_from_iter(columns[..3].to_vec()).unwrap(),
    );
    let message = read(&path).unwrap_err().to_string();
    assert!(message.contains("no column \"text\""), "{message}");
}

#[test]
fn every_json_form_gives_documents() {
    let lines = "{\"id\": 7, \"title\": \"A\", \"text\": \"a\"}\n\n{\"text\": \"b\"}\n";
    let array = "[{\"id\": \"x\", \"text\": \"a\"}, {\"text\": \"b\", \"other\": 1}]";
    let object = "{\"One\": {\"extract\": \"a\", \"topic\": \"t\"},\n \"Two\": \"b\"}";
    for (name, content, ids) in [
        ("c.jsonl", lines, ["7", "c-3"]),
        ("c.json", lines, ["7", "c-3"]),
        ("c.json", array, ["x", "c-2"]),
        ("c.json", object, ["One", "Two"]),
    ] {
        let (_folder, path) = written(name, content);
        let (documents, report) = read(&path).unwrap();
        let seen: Vec<_> = documents
            .iter()
            .map(|document| (document.id.as_str(), document.text.as_str()))
            .collect();
        assert_eq!(seen, [(ids[0], "a"), (ids[1], "b")], "{content}");
        assert_eq!(report.articles, 2);
    }
}

#[test]
fn json_errors_name_the_line() {
    for (name, content, told) in [
        ("c.jsonl", "{\"text\": \"a\"}\n{\"text\": \n", "line 2"),
        (
            "c.jsonl",
            "{\"text\": \"a\"}\n{\"title\": \"b\"}\n",
            "line 2",
        ),
        (
            "c.json",
            "{\"One\": {\"extract\": \"a\"},\n \"Two\": 3}",
            "Two",
        ),
        ("c.json", "[{\"text\": \"a\"},\n {\"text\"", "line 2"),
    ] {
        let (_folder, path) = written(name, content);
        let message = read(&path).unwrap_err().to_string();
        assert!(
            message.contains(told) && message.contains(name),
            "{message}"
        );
    }
}

#[test]
fn an_id_that_occurs_twice_names_both_places() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.jsonl", "b.jsonl"] {
        let path = folder.path().join(name);
        files::write_atomic(path, b"{\"id\": \"same\", \"text\": \"t\"}\n").unwrap();
    }
    let message = read(folder.path()).unwrap_err().to_string();
    for part in ["\"same\"", "a.jsonl", "b.jsonl"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_text_file_is_one_document_and_an_unknown_format_is_told() {
    let (_folder, path) = written("story.txt", "Once upon a time.");
    let (documents, _) = read(&path).unwrap();
    assert_eq!((documents[0].id.as_str(), documents.len()), ("story", 1));
    let (_folder, path) = written("data.bin", [0, 1, 2, 3]);
    let message = read(&path).unwrap_err().to_string();
    assert!(
        message.contains("data.bin") && message.contains(".parquet"),
        "{message}"
    );
}
