//! A second control from a later dump: what is drawn, what is left out, and why.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use axmem_datasets::background::{PackedRow, RUN, Reason};
use axmem_datasets::created_after::{CreatedAfterSettings, Drawn, Study, draw};
use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{Bos, DocumentSettings, TokenDocument, Windows};
use axmem_datasets::near_duplicates::NearSettings;
use axmem_datasets::reader::Page;
use axmem_datasets::tokenizer::Tokenizer;
use axmem_datasets::{Kind, Result};

/// So many words that no other text has, of several ids each.
fn words(text: &str, count: usize) -> String {
    let words: Vec<String> = (0..count).map(|word| format!("{text}w{word}")).collect();
    words.join(" ")
}

fn article(id: u64, title: &str, text: &str) -> Page {
    Page::Article(Document {
        id: id.to_string(),
        title: title.to_owned(),
        text: text.to_owned(),
        ..Document::default()
    })
}

fn redirect(id: u64, title: &str, target: &str) -> Page {
    Page::Redirect {
        id: id.to_string(),
        title: title.to_owned(),
        target: target.to_owned(),
    }
}

fn tokenizer() -> Tokenizer {
    let texts = (0..40).map(|text| words(&format!("t{text}"), 60));
    Tokenizer::train_bpe(texts, 300).expect("a tokenizer")
}

/// 40 articles with ids up to 400, a redirect and a page of another namespace with the largest id, 500.
fn snapshot() -> Vec<Page> {
    let mut pages: Vec<Page> = (1..=40)
        .map(|page| {
            let text = words(&format!("old{page}"), 120);
            article(10 * page, &format!("Old {page}"), &text)
        })
        .collect();
    pages.push(redirect(410, "Gaul", "Old 3"));
    pages.push(Page::Other("500".to_owned()));
    pages
}

fn settings(size: usize) -> CreatedAfterSettings {
    CreatedAfterSettings {
        size,
        documents: DocumentSettings {
            tokens: 120,
            min_tokens: 100,
            bos: Bos::Always,
            windows: Windows::All,
        },
        near: Some(NearSettings {
            shingle: 8,
            overlap: 0.5,
        }),
        seed: 5,
    }
}

fn drawn(later: &[Page], snapshot: &[Page], size: usize) -> Result<Drawn> {
    drawn_beside(later, snapshot, size, &[], &[])
}

fn drawn_beside(
    later: &[Page],
    snapshot: &[Page],
    size: usize,
    documents: &[TokenDocument],
    background: &[PackedRow],
) -> Result<Drawn> {
    let each = |pages: &[Page], sink: &mut dyn FnMut(Page) -> Result<()>| {
        pages.iter().cloned().try_for_each(sink)
    };
    let study = Study {
        documents,
        background,
        titles: &HashMap::new(),
    };
    draw(
        &|sink| each(later, sink),
        &|sink| each(snapshot, sink),
        &study,
        &tokenizer(),
        &settings(size),
    )
}

fn names(drawn: &Drawn) -> BTreeSet<&str> {
    let documents = drawn.documents.iter();
    documents
        .map(|document| document.document.as_str())
        .collect()
}

/// Twelve new pages, and one of each kind that is no new page; `600` to `611` are the new ones.
fn later() -> Vec<Page> {
    let mut pages = snapshot();
    pages.pop();
    // Numbers up to 500 are older, whatever their text.
    pages.push(article(499, "Between", &words("between", 120)));
    pages.extend((600..612).map(|id| {
        let text = words(&format!("new{id}"), 120);
        article(id, &format!("New {id}"), &text)
    }));
    pages.extend([
        article(700, "old_7", &words("moved", 120)),
        redirect(701, "Old 8", "Older 8"),
        article(702, "Gaul", &words("again", 120)),
        // Of an old page under another title, which became a redirect to the new one.
        article(703, "Merged", &words("merged", 120)),
        redirect(45, "Old 9", "Merged#Part"),
        article(704, "Short", "a few words"),
        article(
            705,
            "Quoting",
            &format!("{} {}", words("before", 3), &words("old12", 60)[..400]),
        ),
        article(706, "Copied", &every_fifth_changed(&words("old14", 120))),
        article(
            707,
            "Twin of New 600",
            &every_fifth_changed(&words("new600", 120)),
        ),
    ]);
    pages
}

/// No long run is left, most shingles are.
fn every_fifth_changed(text: &str) -> String {
    let words = text.split(' ').enumerate();
    let words: Vec<&str> = words
        .map(|(place, word)| if place % 5 == 4 { "zz" } else { word })
        .collect();
    words.join(" ")
}

#[test]
fn pages_above_the_largest_id_are_drawn_and_older_text_among_them_is_left_out_with_its_reason() {
    let drawn = drawn(&later(), &snapshot(), 12).expect("twelve are possible");
    let counts = drawn.counts;
    assert_eq!(counts.largest_id, 500, "of all pages, articles or not");
    assert_eq!((counts.older_articles, counts.same_articles), (41, 40));
    assert_eq!((counts.pages_above, counts.looked_at), (20, 20));
    let expected: BTreeSet<String> = (600..612).map(|id| format!("created_after/{id}")).collect();
    assert_eq!(names(&drawn), expected.iter().map(String::as_str).collect());
    let found: Vec<(&str, Reason, &str)> = drawn
        .excluded
        .iter()
        .map(|row| (row.document.as_str(), row.reason, row.other.as_str()))
        .collect();
    // In the order of the draw, in which 600 comes before its twin.
    let expected = [
        ("created_after/705", Reason::Run, "120"),
        ("created_after/704", Reason::Short, ""),
        ("created_after/703", Reason::Title, "90"),
        ("created_after/701", Reason::Redirect, "Older 8"),
        ("created_after/702", Reason::Title, "30"),
        ("created_after/700", Reason::Title, "70"),
        ("created_after/707", Reason::NearCopy, "created_after/600"),
        ("created_after/706", Reason::NearCopy, "140"),
    ];
    assert_eq!(found, expected);
    assert_eq!(drawn.excluded[0].ids.len(), RUN);
    assert!(drawn.shared.iter().all(|row| (row.run as usize) < RUN));
}

#[test]
fn the_snapshot_is_read_again_until_there_are_enough() {
    let quoting = (0..40).map(|page| {
        let text = format!("{} {}", words(&format!("q{page}"), 2), words("old9", 120));
        article(1000 + page, &format!("Quoting {page}"), &text)
    });
    let new = (0..5).map(|page| {
        let text = words(&format!("fresh{page}"), 120);
        article(2000 + page, &format!("Fresh {page}"), &text)
    });
    let later: Vec<Page> = quoting.chain(new).collect();
    let (snapshot, reads) = (snapshot(), Cell::new(0));
    let study = Study {
        documents: &[],
        background: &[],
        titles: &HashMap::new(),
    };
    let drawn = draw(
        &|sink| later.iter().cloned().try_for_each(sink),
        &|sink| {
            reads.set(reads.get() + 1);
            snapshot.iter().cloned().try_for_each(sink)
        },
        &study,
        &tokenizer(),
        &settings(5),
    )
    .expect("five are possible");
    assert_eq!(drawn.documents.len(), 5);
    assert!(
        names(&drawn)
            .iter()
            .all(|name| name.starts_with("created_after/20"))
    );
    assert!(drawn.excluded.iter().all(|row| row.reason == Reason::Run));
    assert!(reads.get() >= 3, "for its numbers, and for two pools");
}

#[test]
fn every_reason_is_found_when_more_are_asked_for_than_there_are() {
    let error = drawn(&later(), &snapshot(), 13).expect_err("twelve are possible");
    assert_eq!(error.kind(), Kind::Usage);
    let message = error.to_string();
    assert!(
        message.contains("asks for 13 documents, 12 are possible"),
        "{message}"
    );
    assert!(
        message.contains(
            "8 are excluded (near-copy: 2, redirect: 1, run of 50 ids: 1, title: 3, too short: 1)"
        ),
        "{message}"
    );
}

#[test]
fn the_draw_follows_the_seed_and_not_the_order_of_the_dump() {
    let mut reversed = later();
    reversed.reverse();
    let forward = drawn(&later(), &snapshot(), 6).expect("six");
    let backward = drawn(&reversed, &snapshot(), 6).expect("six");
    assert_eq!(forward, backward);
    assert_eq!(forward.documents.len(), 6);
    let all = drawn(&later(), &snapshot(), 12).expect("twelve");
    assert_eq!(
        all.documents[..6],
        forward.documents,
        "more of the same draw"
    );
    for document in &forward.documents {
        assert_eq!(document.ids.len(), 120, "one window, cut");
        assert_eq!(document.origin, "created_after");
    }
}

#[test]
fn what_a_document_shares_with_the_snapshot_is_measured_below_the_limit() {
    let snapshot = snapshot();
    let quoted = words("old5", 120);
    let ids = tokenizer().encode(&quoted[..30]).expect("ids").len();
    assert!((8..RUN).contains(&ids), "{ids}");
    let text = format!("{} {}", &quoted[..30], words("own", 120));
    let later = [article(900, "New", &text)];
    let drawn = drawn(&later, &snapshot, 1).expect("one");
    let [shared] = &drawn.shared[..] else {
        panic!("one row");
    };
    assert_eq!(shared.other.as_deref(), Some("50"));
    assert_eq!(shared.start, Some(0));
    assert!(
        (ids as u32 - 2..=ids as u32 + 2).contains(&shared.run),
        "{shared:?}"
    );
}

#[test]
fn text_that_the_study_trains_on_is_as_good_as_the_snapshot() {
    let ids = |text: &str| tokenizer().encode(text).expect("ids");
    let document = TokenDocument {
        document: "b7".to_owned(),
        article: "b7".to_owned(),
        title: "New 601".to_owned(),
        cluster: "b7".to_owned(),
        origin: "corpus".to_owned(),
        ids: ids(&words("else", 20)),
        length: 0,
        eligible: true,
        reason: None,
    };
    let text = ids(&words("new602", 60));
    let row = PackedRow {
        segments: vec![text.len() as u32],
        documents: vec!["background/9".to_owned()],
        ids: text,
        ..PackedRow::default()
    };
    let (documents, rows) = ([document], [row]);
    let drawn = |size: usize| drawn_beside(&later(), &snapshot(), size, &documents, &rows);
    let message = drawn(13).expect_err("ten are possible").to_string();
    assert!(message.contains("10 are possible"), "{message}");
    let drawn = drawn(10).expect("ten");
    for (name, reason, other) in [
        ("created_after/601", Reason::Title, "b7"),
        ("created_after/602", Reason::Run, "background/9"),
    ] {
        let row = drawn.excluded.iter().find(|row| row.document == name);
        let row = row.expect("it was looked at");
        assert_eq!((row.reason, row.other.as_str()), (reason, other));
        assert!(!names(&drawn).contains(name));
    }
}

#[test]
fn sources_that_cannot_tell_what_came_after_are_refused_in_words() {
    let later = [article(900, "New", &words("new", 120))];
    let named = [Page::Other("grammar-0001".to_owned())];
    let message = drawn(&later, &named, 1).expect_err("no number").to_string();
    assert!(message.contains("created_after.snapshot"), "{message}");
    assert!(message.contains("grammar-0001"), "{message}");
    let message = drawn(&named, &snapshot(), 1)
        .expect_err("no number")
        .to_string();
    assert!(message.contains("created_after.corpus"), "{message}");
    let message = drawn(&snapshot(), &snapshot(), 1)
        .expect_err("no later page")
        .to_string();
    assert!(message.contains("above 500"), "{message}");
}
