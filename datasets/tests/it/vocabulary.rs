//! Tokenizers rebuilt from the vocabulary of a GGUF file.

use axmem_datasets::Kind;
use axmem_datasets::tokenizer::{Tokenizer, Vocabulary};

/// All bytes as a byte-level vocabulary writes them, after three control tokens.
fn byte_level(pre: &str, merges: &[&str]) -> Vocabulary {
    let printable =
        |byte: u32| (33..=126).contains(&byte) || (161..=172).contains(&byte) || byte >= 174;
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut next = 256;
    for byte in 0..256 {
        let code = if printable(byte) { byte } else { next };
        next += u32::from(!printable(byte));
        tokens.push(char::from_u32(code).unwrap().to_string());
    }
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let mut types = vec![1; tokens.len()];
    types[0] = 2;
    types[1] = 3;
    types[2] = 3;
    Vocabulary {
        model: "gpt2".to_owned(),
        pre: Some(pre.to_owned()),
        types,
        tokens,
        merges: merges.iter().map(|&merge| merge.to_owned()).collect(),
        bos: Some(1),
        eos: Some(2),
        ..Vocabulary::default()
    }
}

fn build(vocabulary: &Vocabulary) -> Tokenizer {
    Tokenizer::from_vocabulary("test.gguf", vocabulary).unwrap()
}

fn refused(vocabulary: &Vocabulary) -> String {
    let error = Tokenizer::from_vocabulary("test.gguf", vocabulary)
        .err()
        .unwrap();
    assert_eq!(error.kind(), Kind::Model);
    assert!(error.to_string().contains("test.gguf"), "{error}");
    error.to_string()
}

/// The tokens a text is cut into.
fn pieces(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let ids = tokenizer.encode(text).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    ids.iter()
        .map(|&id| tokenizer.decode(&[id]).unwrap())
        .collect()
}

#[test]
fn the_way_of_splitting_decides_what_is_joined() {
    let merges = ["1 2", "12 3", "123 4", "a a", "Ġ a"];
    for (pre, digits) in [
        ("gpt-2", &["1234"][..]),
        ("default", &["1234"]),
        ("smollm", &["1", "2", "3", "4"]),
        ("llama-bpe", &["123", "4"]),
        ("qwen2", &["1", "2", "3", "4"]),
    ] {
        let tokenizer = build(&byte_level(pre, &merges));
        assert_eq!(pieces(&tokenizer, "1234"), digits, "{pre}");
        assert_eq!(pieces(&tokenizer, "aa a"), ["aa", " a"], "{pre}");
    }
    let error = refused(&byte_level("deepseek-llm", &merges));
    assert!(
        error.contains("\"deepseek-llm\"") && error.contains("qwen2"),
        "{error}"
    );
}

#[test]
fn a_text_in_any_script_comes_back_from_a_byte_level_vocabulary() {
    for pre in ["gpt-2", "smollm", "llama-bpe", "qwen2"] {
        let tokenizer = build(&byte_level(pre, &["a b"]));
        for text in ["  x != y", "naïve 東京 😀", "\n\n\ttab", "<s>ab</s>"] {
            assert_eq!(tokenizer.lossy_at(text).unwrap(), None, "{pre}: {text}");
        }
    }
    // Qwen 2 puts a letter and its accent together, so this text cannot come back.
    let tokenizer = build(&byte_level("qwen2", &["a b"]));
    assert_eq!(tokenizer.lossy_at("cafe\u{301}").unwrap(), Some(3));
}

#[test]
fn the_file_s_own_policy_of_the_beginning_is_carried() {
    for (pre, says, adds) in [
        ("gpt-2", None, false),
        ("smollm", Some(true), true),
        ("llama-bpe", None, true),
        ("llama-bpe", Some(false), false),
    ] {
        let tokenizer = build(&Vocabulary {
            add_bos: says,
            ..byte_level(pre, &["a b"])
        });
        assert_eq!(tokenizer.adds_bos(), Some(adds), "{pre} {says:?}");
        assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
        // It is a policy to follow, not something that happens by itself.
        assert_eq!(tokenizer.encode("ab").unwrap().len(), 1);
    }
    let error = refused(&Vocabulary {
        add_bos: Some(true),
        bos: None,
        ..byte_level("gpt-2", &[])
    });
    assert!(error.contains("names none"), "{error}");
}

/// A small SentencePiece vocabulary: the higher the score, the earlier a piece is put together.
fn sentence_piece() -> Vocabulary {
    let pieces: [(&str, f32, u32); 16] = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("▁a", -1.0, 1),
        ("bc", -2.0, 1),
        ("ab", -3.0, 1),
        ("abc", -4.0, 1),
        ("▁abc", -5.0, 1),
        ("<", -6.0, 1),
        ("s", -7.0, 1),
        (">", -8.0, 1),
        ("▁", -9.0, 1),
        ("a", -10.0, 1),
        ("b", -11.0, 1),
        ("c", -12.0, 1),
        ("/", -13.0, 1),
    ];
    let bytes = (0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6));
    let all: Vec<_> = pieces
        .into_iter()
        .map(|(piece, score, kind)| (piece.to_owned(), score, kind))
        .chain(bytes)
        .collect();
    Vocabulary {
        model: "llama".to_owned(),
        tokens: all.iter().map(|(piece, ..)| piece.clone()).collect(),
        scores: all.iter().map(|&(_, score, _)| score).collect(),
        types: all.iter().map(|&(.., kind)| kind).collect(),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        ..Vocabulary::default()
    }
}

#[test]
fn scores_say_what_is_joined_first() {
    let tokenizer = build(&sentence_piece());
    // First "▁a" (-1), then "bc" (-2), then "▁abc" (-5) of both.
    let ids = tokenizer.encode("abc").unwrap();
    assert_eq!(ids, [7]);
    // Without a space before it "bc" (-2) comes before "ab" (-3), then "abc" (-4).
    let bare = build(&Vocabulary {
        add_space_prefix: Some(false),
        ..sentence_piece()
    });
    assert_eq!(bare.encode("abc").unwrap(), [6]);
    assert_eq!(bare.encode("abb").unwrap(), [5, 13]);
    assert_eq!(tokenizer.adds_bos(), Some(true));
}

#[test]
fn spaces_and_bytes_come_back_from_a_sentence_piece_vocabulary() {
    for prefix in [None, Some(false)] {
        let tokenizer = build(&Vocabulary {
            add_space_prefix: prefix,
            ..sentence_piece()
        });
        for text in ["abc abc", "  abc", "ab 東 c", " a", "naïve\n", "a  b "] {
            assert_eq!(
                tokenizer.lossy_at(text).unwrap(),
                None,
                "{text:?} {prefix:?}"
            );
        }
    }
}

#[test]
fn t12_control_pieces_are_never_made_of_text() {
    let tokenizer = build(&sentence_piece());
    let text = "a <s> b </s> <unk>";
    let ids = tokenizer.encode(text).unwrap();
    assert!(ids.iter().all(|&id| id > 2), "{ids:?}");
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
}

#[test]
fn equal_vocabularies_give_equal_files() {
    assert_eq!(
        build(&sentence_piece()).hash(),
        build(&sentence_piece()).hash()
    );
}

#[test]
fn lists_that_do_not_fit_are_refused() {
    let base = sentence_piece;
    let cases = [
        (
            Vocabulary {
                types: vec![1; 3],
                ..base()
            },
            "3 types",
        ),
        (
            Vocabulary {
                scores: vec![0.0; 5],
                ..base()
            },
            "5 scores",
        ),
        (
            Vocabulary {
                scores: vec![],
                ..base()
            },
            "no scores",
        ),
        (
            Vocabulary {
                bos: Some(9999),
                ..base()
            },
            "9999",
        ),
        (
            Vocabulary {
                model: "t5".to_owned(),
                ..base()
            },
            "\"t5\"",
        ),
        (Vocabulary::default(), "no tokens"),
        (
            Vocabulary {
                merges: vec!["a zz".to_owned()],
                ..byte_level("gpt-2", &[])
            },
            "\"a zz\"",
        ),
    ];
    for (vocabulary, part) in cases {
        let error = refused(&vocabulary);
        assert!(error.contains(part), "{part}: {error}");
    }
    let mut twice = base();
    twice.tokens[5] = "bc".to_owned();
    assert!(refused(&twice).contains("twice, as 4 and 5"));
}
