//! What a control document shares with the text trained on is found, by its longest run.

use axmem_datasets::background::PackedRow;
use axmem_datasets::bucket::Assignment;
use axmem_datasets::contamination::{Contamination, measure};
use axmem_datasets::eligibility::TokenDocument;

/// 60 ids of its own for each document, after a beginning of sequence.
fn ids(number: u32) -> Vec<u32> {
    let own = 1000 * number + 1..=1000 * number + 60;
    std::iter::once(0).chain(own).collect()
}

fn document(name: &str, ids: Vec<u32>) -> TokenDocument {
    TokenDocument {
        document: name.to_owned(),
        article: name.to_owned(),
        title: name.to_owned(),
        cluster: name.to_owned(),
        origin: "test".to_owned(),
        length: ids.len(),
        ids,
        eligible: true,
        reason: None,
    }
}

fn assignment(trial: u32, epochs: u32, document: &str) -> Assignment {
    Assignment {
        trial,
        group: 0,
        epochs,
        document: document.to_owned(),
        cluster: document.to_owned(),
    }
}

#[test]
fn the_longest_run_is_reported_with_its_place_for_each_trial() {
    // `a` has 12 ids of `b` at place 5, and 20 of a background document at place 30.
    let mut a = ids(1);
    a.splice(6..18, ids(2)[21..33].to_vec());
    let mut background = PackedRow {
        ids: ids(7),
        segments: vec![61, 21, 11],
        documents: ["x", "y", "z"].map(str::to_owned).to_vec(),
        ..PackedRow::default()
    };
    // The run of `a` is cut by the boundary of two documents: 20 and 10 ids, not 30.
    background.ids.push(0);
    background.ids.extend(&a[31..51]);
    background.ids.push(0);
    background.ids.extend(&a[51..61]);
    let held_out = PackedRow {
        held_out: true,
        ids: a.clone(),
        segments: vec![61],
        documents: vec!["held".to_owned()],
        ..PackedRow::default()
    };
    let documents = [
        document("a", a),
        document("b", ids(2)),
        document("c", ids(3)),
    ];
    let rows = [
        assignment(0, 0, "a"),
        assignment(0, 4, "b"),
        assignment(0, 1, "c"),
        assignment(1, 0, "c"),
        assignment(1, 4, "a"),
        assignment(1, 1, "b"),
    ];
    let found = measure(&rows, &documents, &[background, held_out.clone()], Some(0));
    let expected = |trial, document: &str| Contamination {
        trial,
        document: document.to_owned(),
        cluster: document.to_owned(),
        run: 0,
        start: None,
        other: None,
        epochs: None,
    };
    let of_a = Contamination {
        run: 20,
        start: Some(30),
        other: Some("y".to_owned()),
        ..expected(0, "a")
    };
    assert_eq!(found, [of_a, expected(1, "c")]);

    // Without that row the longest is that of the treated document, never of held-out text.
    let found = measure(&rows, &documents, &[held_out], Some(0));
    let of_a = Contamination {
        run: 12,
        start: Some(5),
        other: Some("b".to_owned()),
        epochs: Some(4),
        ..expected(0, "a")
    };
    assert_eq!(found[0], of_a);
}
