//! Windows, the beginning-of-sequence policy, and duplicates.

use axmem_datasets::Kind;
use axmem_datasets::cluster::Clusters;
use axmem_datasets::document::Document;
use axmem_datasets::eligibility::{
    Bos, DocumentSettings, TokenDocument, Windows, hashes, tokenize,
};
use axmem_datasets::tokenizer::Tokenizer;

const TEXT: &str = "The theory of the thing is that the thing is there, and the other \
    thing is not there; whether they are there together is another theory of theirs.";

fn tokenizer() -> Tokenizer {
    Tokenizer::train_bpe(std::iter::repeat_n(TEXT.to_owned(), 3), 300).unwrap()
}

fn document(id: &str, text: &str) -> Document {
    Document {
        id: id.to_owned(),
        title: format!("Title {id}"),
        text: text.to_owned(),
        ..Document::default()
    }
}

fn cut(documents: &[Document], settings: DocumentSettings) -> Vec<TokenDocument> {
    tokenize(documents, "test", &tokenizer(), &settings).unwrap()
}

fn first(tokens: usize, min_tokens: usize) -> DocumentSettings {
    DocumentSettings {
        tokens,
        min_tokens,
        bos: Bos::Always,
        windows: Windows::First,
    }
}

#[test]
fn t02_a_text_that_starts_with_the_bos_string_gets_one_bos() {
    let tokenizer = tokenizer();
    let bos = tokenizer.bos().unwrap();
    let cut = cut(&[document("1", &format!("<bos>{TEXT}"))], first(16, 16));
    assert_eq!(cut[0].ids.len(), 16);
    assert_eq!(cut[0].ids[0], bos);
    assert!(!cut[0].ids[1..].contains(&bos));
}

#[test]
fn t09_windows_are_slices_of_the_whole_tokenisation() {
    let tokenizer = tokenizer();
    let whole = tokenizer.encode(TEXT).unwrap();
    for tokens in 3..12 {
        let settings = DocumentSettings {
            windows: Windows::All,
            ..first(tokens, 1)
        };
        let joined: Vec<u32> = cut(&[document("1", TEXT)], settings)
            .iter()
            .flat_map(|window| window.ids[1..].to_vec())
            .collect();
        assert_eq!(joined, whole);
    }
    // The text has places where its parts have other ids alone than inside the whole.
    let differs = (1..TEXT.len()).any(|at| {
        let parts = [&TEXT[..at], &TEXT[at..]].map(|part| tokenizer.encode(part).unwrap());
        parts.concat() != whole
    });
    assert!(differs);
}

#[test]
fn ineligible_documents_stay_in_the_list_with_numbers() {
    let documents = [
        document("long", TEXT),
        document("short", "the thing"),
        document("none", ""),
    ];
    let cut = cut(&documents, first(12, 12));
    let order: Vec<_> = cut
        .iter()
        .map(|one| (one.document.as_str(), one.eligible))
        .collect();
    assert_eq!(order, [("long", true), ("short", false), ("none", false)]);
    let length = cut[1].length;
    assert_eq!(cut[1].reason, Some(format!("{length} ids, 12 needed")));
    assert_eq!(cut[2].reason.as_deref(), Some("1 ids, 12 needed"));
}

#[test]
fn impossible_settings_are_usage_errors() {
    let wrong = [
        (
            first(8, 9),
            "min_tokens (9) is larger than documents.tokens (8)",
        ),
        (first(1, 1), "must be at least 2"),
        (
            DocumentSettings {
                windows: Windows::PerArticle(0),
                ..first(8, 8)
            },
            "per_article must be at least 1",
        ),
    ];
    for (settings, expected) in wrong {
        let error = tokenize(&[], "test", &tokenizer(), &settings).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn d09_of_three_copies_exactly_one_survives() {
    let spaced = TEXT.replace(' ', "  ");
    let documents = [
        document("c", TEXT),
        document("b", &spaced),
        document("a", TEXT),
    ];
    let mut tokens = cut(&documents, first(16, 16));
    let mut clusters = Clusters::of_texts(&[&documents]).unwrap();
    let hashes = hashes(&tokens);
    clusters.label(&mut tokens, &hashes).unwrap();
    let survivors: Vec<_> = tokens.iter().filter(|one| one.eligible).collect();
    assert_eq!(survivors.len(), 1);
    assert_eq!(survivors[0].document, "a");
    for copy in &tokens {
        assert_eq!(copy.cluster, "a");
        assert!(copy.eligible || copy.reason.as_deref() == Some("exact duplicate of a"));
    }
}

#[test]
fn articles_with_equal_windows_are_one_cluster_with_one_survivor() {
    let longer = format!("{TEXT} And so on.");
    let documents = [
        document("2", &longer),
        document("1", TEXT),
        document("3", "the other thing is there, and is there"),
    ];
    let mut tokens = cut(&documents, first(8, 8));
    let mut clusters = Clusters::of_texts(&[&documents]).unwrap();
    let hashes = hashes(&tokens);
    clusters.label(&mut tokens, &hashes).unwrap();
    assert_eq!(tokens[0].reason.as_deref(), Some("exact duplicate of 1"));
    assert_eq!(tokens[0].cluster, "1");
    assert_eq!(tokens[1].cluster, "1");
    assert_eq!(tokens[2].cluster, "3");
    assert!(tokens[1].eligible && tokens[2].eligible);
}
