//! Where documents are cut.

use axmem_eval::{Kind, Prefix};

use super::toy::probe;

const BOS: u32 = 0;

#[test]
fn l01_a_suffix_longer_than_the_document_names_it_and_the_numbers() {
    let error = probe("Anarchism", 0..40)
        .cut(50, Prefix::All, 50, None)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    let text = error.to_string();
    for part in ["Anarchism", "50", "40"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn l04_a_suffix_as_long_as_the_document_leaves_no_prefix_and_is_an_error() {
    // Also where no shortest prefix is asked for.
    for min_prefix in [0, 1] {
        let error = probe("a", 0..50)
            .cut(50, Prefix::All, min_prefix, None)
            .unwrap_err();
        assert!(error.to_string().contains("leave 0 before"), "{error}");
    }
}

#[test]
fn l05_a_prefix_shorter_than_asked_is_an_error() {
    for (length, fits) in [(50, false), (51, false), (99, false), (100, true)] {
        let cut = probe("a", 0..length).cut(50, Prefix::All, 50, None);
        assert_eq!(cut.is_ok(), fits, "{length} ids");
    }
}

#[test]
fn prefix_all_shows_everything_before_the_suffix() {
    let cut = probe("a", 0..10).cut(4, Prefix::All, 1, Some(BOS)).unwrap();
    assert_eq!(cut.prefix(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(cut.suffix(), [6, 7, 8, 9]);
}

#[test]
fn t02_a_prefix_of_p_ids_has_one_bos_and_never_two() {
    let document = probe("a", 0..10); // begins with BOS
    for tokens in 1..=5 {
        let cut = document
            .cut(4, Prefix::Tokens(tokens), 1, Some(BOS))
            .unwrap();
        assert_eq!(cut.prefix().len(), tokens + 1);
        assert_eq!(cut.prefix()[0], BOS);
        assert_eq!(cut.prefix().iter().filter(|&&id| id == BOS).count(), 1);
        assert_eq!(cut.suffix(), [6, 7, 8, 9]);
    }
    // Its 5 ids of text are the most that a prefix can ask for.
    assert!(document.cut(4, Prefix::Tokens(6), 1, Some(BOS)).is_err());
    // Without a BOS policy nothing is prepended, and id 0 is text.
    let cut = document.cut(4, Prefix::Tokens(6), 1, None).unwrap();
    assert_eq!(cut.prefix(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_prefix_reads_as_it_prints() {
    for prefix in [Prefix::All, Prefix::Tokens(50)] {
        assert_eq!(prefix.to_string().parse::<Prefix>().unwrap(), prefix);
    }
    for text in ["", "0", "-1", "All", "1.5"] {
        let error = text.parse::<Prefix>().unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{text}");
    }
}
