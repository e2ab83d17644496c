//! Tables written and read back.

use std::fmt::Debug;
use std::fs;

use axmem_datasets::record;
use axmem_datasets::table::{self, Record};
use axmem_eval::estimate::{contrasts, estimates, overlap, transitions};
use axmem_eval::{ScoreRow, Time};

use super::estimate::{analysis, models, row};

/// A table whose times are any text.
struct Text {
    from: String,
}
record!(Text as "overlap" { from: String });

/// The same table as it should be.
struct Word {
    from: Time,
}
record!(Word as "overlap" { from: Time });

fn rows() -> Vec<ScoreRow> {
    let mut rows = Vec::new();
    for (index, document) in ["a", "b", "ç#0", "ç#1"].into_iter().enumerate() {
        let epochs = [0, 4][index % 2];
        rows.push(row("standard", 0, Time::Initial, epochs, document, false));
        rows.push(row(
            "standard",
            0,
            Time::After,
            epochs,
            document,
            index == 1,
        ));
    }
    let score = &mut rows[1].score;
    score.generated = Some(vec![3, 0, u32::MAX]);
    (score.generated_matched, score.generated_accuracy) = (Some(0), Some(0.5));
    (score.edit_distance, score.longest_run) = (Some(3), Some(0));
    (score.rouge_l, score.rouge_l_words) = (Some(1.0), Some(0.0));
    rows[2].score.log_probability = vec![f64::NEG_INFINITY];
    rows[3].score.suffix = vec![50, 10];
    let score = &mut rows[3].score;
    (score.exact, score.fragile) = (vec![true, false], vec![false, true]);
    (score.token_accuracy, score.log_probability) = (vec![0.5, 0.25], vec![-2.0, -1.0]);
    (score.p_z, score.margin) = (vec![0.1, 0.2], vec![-0.5, f32::MIN_POSITIVE]);
    score.matched_prefix = vec![2, 1];
    rows
}

fn survives<R: Record + PartialEq + Debug>(rows: &[R]) {
    assert!(!rows.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let paths = ["first", "second"].map(|name| folder.path().join(name));
    for path in &paths {
        table::write(path, rows).unwrap();
    }
    assert_eq!(table::read::<R>(&paths[0]).unwrap(), rows);
    assert!(
        fs::read(&paths[0]).unwrap() == fs::read(&paths[1]).unwrap(),
        "bytes are equal"
    );
}

#[test]
fn every_table_is_read_back_as_written_and_has_the_same_bytes() {
    let rows = rows();
    survives(&rows);
    // Both windows of an article in one bucket: `ç#0` and `ç#1` differ above to test the table only.
    let mut designed = rows;
    for row in &mut designed {
        if row.score.cluster == "ç" {
            row.epochs = 4;
        }
    }
    designed.retain(|row| row.score.suffix.len() == 1 && row.score.document != "b");
    survives(&estimates(&designed, &models(), None, &analysis()).unwrap());
    survives(&contrasts(&designed, &[], &analysis()).unwrap());
    survives(&overlap(&designed).unwrap());
    survives(&transitions(&designed).unwrap());
}

#[test]
fn a_table_of_another_kind_or_cut_short_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.parquet");
    table::write(&path, &rows()).unwrap();
    let error = table::read::<axmem_eval::estimate::Overlap>(&path).unwrap_err();
    assert!(error.to_string().contains("scores.parquet"), "{error}");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    let error = table::read::<ScoreRow>(&path).unwrap_err();
    assert!(
        error.to_string().contains("not a whole Parquet table"),
        "{error}"
    );
}

#[test]
fn a_word_that_no_one_knows_is_refused_with_its_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overlap.parquet");
    let from = "before".to_owned();
    table::write(&path, &[Text { from }]).unwrap();
    let read = table::read::<Word>(&path).map(|rows| rows.into_iter().map(|row| row.from).next());
    let text = read.unwrap_err().to_string();
    assert!(text.contains("from") && text.contains("`before`"), "{text}");
}
