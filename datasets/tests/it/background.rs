//! Background and held-out text keep clear of the buckets, and say what they left out.

use std::collections::BTreeSet;

use axmem_datasets::Kind;
use axmem_datasets::background::{Background, BackgroundSettings, Candidate, RUN, Reason, build};
use axmem_datasets::eligibility::TokenDocument;
use axmem_datasets::near_duplicates::NearSettings;

/// 60 ids of its own for each document.
fn text(number: u32) -> Vec<u32> {
    (1000 * number + 1..=1000 * number + 60).collect()
}

fn candidate(document: &str, title: &str, cluster: &str) -> Candidate {
    Candidate {
        document: document.to_owned(),
        title: title.to_owned(),
        cluster: cluster.to_owned(),
    }
}

fn treated() -> TokenDocument {
    TokenDocument {
        document: "t#0".to_owned(),
        article: "t".to_owned(),
        title: "United Kingdom".to_owned(),
        cluster: "t".to_owned(),
        origin: "test".to_owned(),
        ids: std::iter::once(0).chain(text(99)).collect(),
        length: 61,
        eligible: true,
        reason: None,
    }
}

fn settings(rows: usize, held_out: usize) -> BackgroundSettings {
    BackgroundSettings {
        rows,
        row_tokens: 128,
        bos: Some(0),
        held_out,
        near: None,
        seed: 5,
    }
}

/// `count` harmless candidates, then those of `others` with their texts.
fn build_with(
    count: u32,
    others: Vec<(Candidate, Vec<u32>)>,
    settings: &BackgroundSettings,
) -> axmem_datasets::Result<Background> {
    let mut pool: Vec<Candidate> = (0..count)
        .map(|number| {
            let name = format!("b{number}");
            candidate(&name, &name, &name)
        })
        .collect();
    let mut texts: Vec<Vec<u32>> = (0..count).map(text).collect();
    for (candidate, text) in others {
        pool.push(candidate);
        texts.push(text);
    }
    let redirects = [("UK".to_owned(), "United Kingdom".to_owned())];
    build(
        &pool,
        &|chosen| Ok(chosen.iter().map(|&index| texts[index].clone()).collect()),
        &[&treated()],
        &redirects,
        settings,
    )
}

#[test]
fn d15_exclusions_name_the_reason_the_other_document_and_the_shared_ids() {
    let mut quote = text(50);
    quote.splice(7..7, text(99)[3..3 + RUN].to_vec());
    let mut shorter = text(51);
    shorter.splice(7..7, text(99)[3..2 + RUN].to_vec());
    let others = vec![
        (candidate("t", "United Kingdom", "t"), text(52)),
        (candidate("member", "Other", "t"), text(53)),
        (candidate("redirect", "uk", "redirect"), text(54)),
        (candidate("quote", "Quote", "quote"), quote),
        (candidate("shorter", "Shorter", "shorter"), shorter),
    ];
    // 7 documents are left, two of 61 ids to a row, the longest alone.
    let error = build_with(6, others.clone(), &settings(9, 0)).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let message = error.to_string();
    assert!(message.contains("asks for 9 rows"), "{message}");
    let possible: usize = message
        .split_once("9 rows, ")
        .and_then(|(_, rest)| rest.split_once(" are possible"))
        .and_then(|(number, _)| number.parse().ok())
        .expect("the error says how many rows are possible");

    let background = build_with(6, others, &settings(possible, 0)).unwrap();
    let mut excluded = background.excluded;
    excluded.sort_by_key(|exclusion| exclusion.document.clone());
    let reasons: Vec<_> = excluded
        .iter()
        .map(|one| {
            (
                one.document.as_str(),
                one.reason,
                one.other.as_str(),
                one.start,
            )
        })
        .collect();
    assert_eq!(
        reasons,
        [
            ("member", Reason::Cluster, "t#0", None),
            ("quote", Reason::Run, "t#0", Some(7)),
            ("redirect", Reason::Title, "t#0", None),
        ]
    );
    assert_eq!(excluded[1].ids, text(99)[3..3 + RUN]);
    let used: BTreeSet<_> = background
        .rows
        .iter()
        .flat_map(|row| &row.documents)
        .collect();
    assert!(
        used.iter().any(|name| *name == "shorter"),
        "{} ids may be shared",
        RUN - 1
    );
    assert!(!used.iter().any(|name| *name == "t"));
}

#[test]
fn a_near_copy_of_a_bucket_is_no_background_without_a_long_run_either() {
    let mut copy = text(99);
    for place in [10, 30, 50] {
        copy[place] = 7;
    }
    let others = vec![(candidate("copy", "Copy", "copy"), copy)];
    let mut settings = settings(9, 0);
    settings.near = Some(NearSettings {
        shingle: 8,
        overlap: 0.5,
    });
    // The pool is looked through to its end, since it can't fill the rows.
    let error = build_with(4, others.clone(), &settings).unwrap_err();
    assert!(error.to_string().contains("of which 1 share"), "{error}");
    settings.near = None;
    let error = build_with(4, others, &settings).unwrap_err();
    assert!(error.to_string().contains("of which 0 share"), "{error}");
}

#[test]
fn background_shares_no_run_with_held_out_text() {
    // Every document comes twice under another name, cluster and title.
    let copies = (0..30)
        .map(|number| {
            let name = format!("copy{number}");
            (candidate(&name, &name, &name), text(number))
        })
        .collect();
    let background = build_with(30, copies, &settings(20, 5)).unwrap();
    let held: BTreeSet<u32> = background
        .held_out
        .iter()
        .flat_map(|row| row.ids.clone())
        .collect();
    assert!(background.held_out.iter().all(|row| row.held_out));
    let trained: BTreeSet<u32> = background
        .rows
        .iter()
        .flat_map(|row| row.ids.clone())
        .collect();
    let shared: Vec<_> = held.intersection(&trained).collect();
    assert_eq!(shared, [&0], "only the beginning of sequence");
    assert_eq!(background.rows.len(), 20);
    for (number, row) in background.rows.iter().enumerate() {
        assert_eq!(row.row as usize, number);
        assert_eq!(row.segments.iter().sum::<u32>() as usize, row.ids.len());
    }
}

#[test]
fn too_few_held_out_documents_is_an_error_with_the_possible_number() {
    let error = build_with(4, Vec::new(), &settings(1, 9)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("asks for 9 documents, 4 are possible"),
        "{error}"
    );
}
