//! Tables: what is written is read back, equal rows give equal bytes, wrong files are named.

use axmem_datasets::background::{Exclusion, PackedRow, Reason};
use axmem_datasets::bucket::Assignment;
use axmem_datasets::document::{Document, Flag};
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::exposure::Exposure;
use axmem_datasets::schedule::Slot;
use axmem_datasets::table::{self, DocumentRow, Record};
use axmem_datasets::{Error, Kind, files};
use proptest::prelude::*;

/// Writes and reads back, twice, and compares rows and bytes.
fn round_trip<R: Record + PartialEq + std::fmt::Debug>(rows: &[R]) {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    table::write(&first, rows).unwrap();
    let back: Vec<R> = table::read(&first).unwrap();
    assert_eq!(back, rows);
    table::write_with(&second, |push| back.into_iter().try_for_each(push)).unwrap();
    assert_eq!(files::read(&first).unwrap(), files::read(&second).unwrap());
}

fn assignment() -> Assignment {
    Assignment {
        trial: 1,
        group: 2,
        epochs: 4,
        document: "d".to_owned(),
        cluster: "c".to_owned(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn token_tables_round_trip(
        rows in prop::collection::vec(
            (".*", prop::collection::vec(any::<u32>(), 0..9), prop::option::of(".*")),
            0..40,
        ),
    ) {
        let rows: Vec<TokenDocument> = rows
            .into_iter()
            .map(|(name, ids, reason)| TokenDocument {
                document: name.clone(),
                article: name.clone(),
                title: name.clone(),
                cluster: name,
                origin: "o".to_owned(),
                length: ids.len(),
                ids,
                eligible: reason.is_none(),
                reason,
            })
            .collect();
        round_trip(&rows);
    }
}

#[test]
fn every_table_round_trips() {
    let document = Document {
        id: "1".to_owned(),
        title: "T".to_owned(),
        url: String::new(),
        text: "text".to_owned(),
        flags: vec![Flag::TemplatesRemoved],
    };
    let row = DocumentRow::new(document.clone(), "here");
    assert_eq!(row.clone().into_document(), document);
    round_trip(&[row]);
    round_trip(&[PackedRow {
        row: 3,
        held_out: true,
        ids: vec![0, 1, 2],
        segments: vec![1, 2],
        documents: vec!["a".to_owned(), "b".to_owned()],
    }]);
    let exclusion = |reason, start, ids: &[u32]| Exclusion {
        document: "a".to_owned(),
        title: "A".to_owned(),
        reason,
        other: "b".to_owned(),
        start,
        ids: ids.to_vec(),
    };
    round_trip(&[
        exclusion(Reason::Cluster, None, &[]),
        exclusion(Reason::Title, None, &[]),
        exclusion(Reason::Run, Some(7), &[1, 2]),
    ]);
    let slot = |document: Option<&str>, background| Slot {
        trial: 0,
        step: 1,
        row: 2,
        document: document.map(str::to_owned),
        background,
        presentation: 0,
    };
    round_trip(&[slot(Some("a"), None), slot(None, Some(4))]);
    round_trip(&[Exposure {
        model: "m".to_owned(),
        arm: "standard".to_owned(),
        trial: 0,
        step: 1,
        rate: 1e-4,
        document: "a".to_owned(),
        presentation: 1,
        kept_tokens: 127,
        kept_suffix: vec![50, 120],
        suffix: vec![50, 120],
    }]);
    // More rows than are handed to Parquet at a time.
    round_trip(&vec![assignment(); 2500]);
}

#[test]
fn another_table_is_refused_by_file_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets.parquet");
    table::write(&path, &[assignment()]).unwrap();
    let error = table::read::<Slot>(&path).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    let message = error.to_string();
    assert!(
        message.contains("buckets.parquet at column step: is missing"),
        "{message}"
    );
}

#[test]
fn a_truncated_table_is_refused_by_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets.parquet");
    table::write(&path, &vec![assignment(); 100]).unwrap();
    let bytes = files::read(&path).unwrap();
    for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        files::write_atomic(&path, &bytes[..length]).unwrap();
        let error = table::read::<Assignment>(&path).unwrap_err();
        assert_eq!(error.kind(), Kind::Data);
        assert!(
            error
                .to_string()
                .contains("buckets.parquet: is not a whole Parquet table"),
            "{error}"
        );
    }
}

#[test]
fn a_failed_writer_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets.parquet");
    let failed = table::write_with(&path, |push| {
        push(assignment())?;
        Err(Error::data("the source ended early"))
    });
    assert!(failed.is_err());
    assert!(files::list(folder.path()).unwrap().is_empty());
}

/// Over the borders of batches and row groups.
#[test]
fn rows_are_read_by_their_numbers_in_the_order_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets.parquet");
    let rows: Vec<Assignment> = (0..40_000)
        .map(|epochs| Assignment {
            epochs,
            ..assignment()
        })
        .collect();
    table::write(&path, &rows).unwrap();
    let numbers = [39_999, 0, 16_384, 16_383, 7, 1024, 8];
    let read: Vec<Assignment> = table::read_rows(&path, &numbers).unwrap();
    let found: Vec<usize> = read.iter().map(|row| row.epochs as usize).collect();
    assert_eq!(found, numbers);
    assert!(
        table::read_rows::<Assignment>(&path, &[])
            .unwrap()
            .is_empty()
    );
    let error = table::read_rows::<Assignment>(&path, &[3, 40_000]).unwrap_err();
    assert!(error.to_string().contains("fewer rows"), "{error}");
}
