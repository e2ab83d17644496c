//! Where generations leave the text, at positions that a mask drops and at those it keeps.

use std::collections::{BTreeMap, HashMap};

use axmem_eval::estimate::{Masks, hazards};
use axmem_eval::{ScoreRow, Time};

use crate::estimate::{analysis, row};

/// A document of six ids whose generation leaves the text at `at`, if at all.
fn document(name: &str, at: Option<usize>) -> ScoreRow {
    let mut row = row("goldfish", 0, Time::After, 4, name, at.is_none());
    row.score.suffix = vec![6];
    row.score.target = vec![1; 6];
    row.score.predicted = vec![1; 6];
    if let Some(at) = at {
        // What follows the first mismatch doesn't count.
        row.score.predicted[at..].fill(2);
    }
    row
}

fn masks(documents: &[&str], keep: [bool; 6]) -> Masks {
    let of = |name: &&str| ((*name).to_owned(), keep.to_vec());
    let documents: HashMap<String, Vec<bool>> = documents.iter().map(of).collect();
    BTreeMap::from([("goldfish".to_owned(), documents)])
}

#[test]
fn positions_count_until_the_first_mismatch() {
    let rows = [
        document("a", Some(1)),
        document("b", Some(3)),
        document("c", None),
    ];
    // Positions 1, 3 and 5 are dropped.
    let masks = masks(&["a", "b", "c"], [true, false, true, false, true, false]);
    let found = hazards(&rows, &masks, &analysis()).unwrap();
    assert_eq!(found.len(), 1);
    let found = &found[0];
    assert_eq!((found.dropped, found.dropped_left), (1 + 2 + 3, 2));
    assert_eq!((found.kept, found.kept_left), (1 + 2 + 3, 0));
    assert!((found.difference.unwrap() - 1.0 / 3.0).abs() < 1e-12);
    let (low, high) = (found.low.unwrap(), found.high.unwrap());
    assert!(low < 1.0 / 3.0 && 1.0 / 3.0 < high, "{found:?}");
    assert_eq!(hazards(&rows, &masks, &analysis()).unwrap()[0], *found);
}

#[test]
fn a_mask_that_reaches_no_position_has_no_hazard() {
    let rows = [document("a", Some(0))];
    let found = hazards(&rows, &masks(&["a"], [true; 6]), &analysis()).unwrap();
    assert_eq!(found[0].dropped_hazard, None);
    assert_eq!(found[0].kept_hazard, Some(1.0));
    assert_eq!((found[0].difference, found[0].low), (None, None));
    let error = hazards(&rows, &masks(&["b"], [true; 6]), &analysis()).unwrap_err();
    assert!(
        error.to_string().contains("has no mask of arm goldfish"),
        "{error}"
    );
}
