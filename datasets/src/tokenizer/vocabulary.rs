//! The tokenizer of a GGUF file, rebuilt as a `tokenizer.json`.
//!
//! A GGUF file holds the vocabulary and names the rest: the kind of model and, for byte-level
//! vocabularies, the way of splitting a text into words (`pre`). Each name that is known here
//! gives the settings that the published `tokenizer.json` of that family has; any other is
//! refused, since a wrong split gives wrong ids without a sign.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::Tokenizer;
use crate::error::{Error, Result};

/// The kinds of a token, as GGUF files number them.
mod kind {
    pub(super) const NORMAL: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const CONTROL: u32 = 3;
    pub(super) const USER_DEFINED: u32 = 4;
    pub(super) const BYTE: u32 = 6;
}

/// How Llama 3 splits a text: contractions, words with one mark before them, up to three digits,
/// marks, line ends, spaces.
const LLAMA3_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How Qwen 2 splits a text: as Llama 3, but digit by digit.
const QWEN2_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The mark that SentencePiece writes for a space.
/// The longest token that is taken apart, in bytes.
const LONGEST_PIECE: usize = 1024;

const SPACE: &str = "\u{2581}";

/// The vocabulary of a GGUF file, as its metadata give it (`tokenizer.ggml.*`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vocabulary {
    /// The kind of tokenizer: `gpt2` (byte-level pairs) or `llama` (SentencePiece pairs).
    pub model: String,
    /// The way of splitting a text, for `gpt2`; without one GPT-2's own.
    pub pre: Option<String>,
    /// The tokens in the order of their ids.
    pub tokens: Vec<String>,
    /// The kind of each token: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    /// If empty, all are normal.
    pub types: Vec<u32>,
    /// The score of each token, for `llama`: the higher, the earlier it is put together.
    pub scores: Vec<f32>,
    /// The pairs to join, `LEFT RIGHT`, for `gpt2`: the first first.
    pub merges: Vec<String>,
    /// The id that begins a sequence.
    pub bos: Option<u32>,
    /// The id that ends a sequence.
    pub eos: Option<u32>,
    /// The id of what the vocabulary does not hold.
    pub unknown: Option<u32>,
    /// Whether the model's tokenizer puts `bos` before a text. If the file does not say, it does
    /// for `llama` and for Llama 3, and does not otherwise, as in llama.cpp.
    pub add_bos: Option<bool>,
    /// Whether `llama` puts a space before a text; it does if the file does not say.
    pub add_space_prefix: Option<bool>,
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file; `name` says in errors where it came from.
    ///
    /// The [`Tokenizer::hash`] is that of the `tokenizer.json` built here, equal for equal
    /// vocabularies. Fails with [`Error::Tokenizer`] for a kind of tokenizer or a way of splitting
    /// that is not known, and for lists that do not fit each other.
    pub fn from_vocabulary(name: &str, vocabulary: &Vocabulary) -> Result<Self> {
        let json = build(vocabulary).map_err(|message| Error::Tokenizer {
            name: name.to_owned(),
            message,
        })?;
        let text = |id: Option<u32>| id.map(|id| vocabulary.tokens[id as usize].clone());
        let ends = super::Ends {
            bos: text(vocabulary.bos),
            eos: text(vocabulary.eos),
        };
        Self::from_json_with(name.to_owned(), json.to_string().into_bytes(), &ends)
    }
}

fn build(vocabulary: &Vocabulary) -> std::result::Result<Value, String> {
    let ids = ids(vocabulary)?;
    let parts = match vocabulary.model.as_str() {
        "gpt2" => byte_level(vocabulary, &ids)?,
        "llama" => sentence_piece(vocabulary, &ids)?,
        other => {
            return Err(format!(
                "is of the kind {other:?}; known are gpt2 and llama, so give the model's \
                 tokenizer.json instead"
            ));
        }
    };
    let added: Vec<_> = vocabulary
        .tokens
        .iter()
        .enumerate()
        .filter_map(|(id, token)| {
            let kind = kind_of(vocabulary, id);
            let is_end = [vocabulary.bos, vocabulary.eos].contains(&Some(id as u32));
            let special = is_end || matches!(kind, kind::CONTROL | kind::UNKNOWN);
            (special || kind == kind::USER_DEFINED).then(|| {
                json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": special,
                })
            })
        })
        .collect();
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": parts.normalizer,
        "pre_tokenizer": parts.pre_tokenizer,
        "post_processor": parts.post_processor,
        "decoder": parts.decoder,
        "model": parts.model,
    }))
}

/// The parts of a `tokenizer.json` that depend on the kind of tokenizer.
struct Parts {
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Value,
}

fn kind_of(vocabulary: &Vocabulary, id: usize) -> u32 {
    vocabulary.types.get(id).copied().unwrap_or(kind::NORMAL)
}

/// Checks the sizes and gives the id of each token.
fn ids(vocabulary: &Vocabulary) -> std::result::Result<HashMap<&str, usize>, String> {
    let size = vocabulary.tokens.len();
    if size == 0 {
        return Err("holds no tokens; fetch the file again".to_owned());
    }
    for (what, length) in [
        ("types", vocabulary.types.len()),
        ("scores", vocabulary.scores.len()),
    ] {
        if length != 0 && length != size {
            return Err(format!(
                "has {size} tokens but {length} {what}; the file is damaged, fetch it again"
            ));
        }
    }
    for (what, id) in [
        ("beginning", vocabulary.bos),
        ("end", vocabulary.eos),
        ("unknown token", vocabulary.unknown),
    ] {
        if let Some(id) = id.filter(|&id| id as usize >= size) {
            return Err(format!(
                "says that the id of its {what} is {id}, but has {size} tokens; the file is \
                 damaged, fetch it again"
            ));
        }
    }
    let mut ids = HashMap::with_capacity(size);
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if let Some(first) = ids.insert(token.as_str(), id) {
            return Err(format!(
                "has the token {token:?} twice, as {first} and {id}, so that ids are not \
                 certain; give the model's tokenizer.json instead"
            ));
        }
    }
    Ok(ids)
}

fn byte_level(
    vocabulary: &Vocabulary,
    ids: &HashMap<&str, usize>,
) -> std::result::Result<Parts, String> {
    let bytes = |use_regex: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": use_regex,
        })
    };
    let sequence = |first: Value, use_regex: bool| json!({"type": "Sequence", "pretokenizers": [first, bytes(use_regex)]});
    let split = |regex: &str| {
        json!({
            "type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated",
            "invert": false,
        })
    };
    let mut normalizer = Value::Null;
    let mut is_llama3 = false;
    let pre_tokenizer = match vocabulary.pre.as_deref() {
        None | Some("default" | "gpt-2" | "gpt2") => bytes(true),
        Some("smollm") => sequence(json!({"type": "Digits", "individual_digits": true}), true),
        Some("llama-bpe" | "llama3" | "llama-v3") => {
            is_llama3 = true;
            sequence(split(LLAMA3_SPLIT), false)
        }
        Some("qwen2") => {
            normalizer = json!({"type": "NFC"});
            sequence(split(QWEN2_SPLIT), false)
        }
        Some(other) => {
            return Err(format!(
                "splits texts in the way {other:?}; known are gpt-2, smollm, llama-bpe and \
                 qwen2, so give the model's tokenizer.json instead"
            ));
        }
    };
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    for (index, merge) in vocabulary.merges.iter().enumerate() {
        let pair = merge
            .split_once(' ')
            .filter(|(left, right)| ids.contains_key(left) && ids.contains_key(right))
            .ok_or_else(|| {
                format!(
                    "has the merge {merge:?} (number {index}), which is no pair of its tokens; \
                     the file is damaged, fetch it again"
                )
            })?;
        merges.push(json!([pair.0, pair.1]));
    }
    let template = template(vocabulary, is_llama3)?;
    let post_processor = match template {
        Some(template) => {
            json!({"type": "Sequence", "processors": [bytes(true), template]})
        }
        None => bytes(true),
    };
    Ok(Parts {
        normalizer,
        pre_tokenizer,
        post_processor,
        decoder: bytes(true),
        model: json!({
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": is_llama3, "vocab": vocab(vocabulary),
            "merges": merges,
        }),
    })
}

fn sentence_piece(
    vocabulary: &Vocabulary,
    ids: &HashMap<&str, usize>,
) -> std::result::Result<Parts, String> {
    if vocabulary.scores.is_empty() {
        return Err(
            "is of the kind llama but has no scores; the file is damaged, fetch it again"
                .to_owned(),
        );
    }
    let prefix = vocabulary.add_space_prefix.unwrap_or(true);
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let normalizer = if prefix {
        json!({
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": SPACE}, spaces],
        })
    } else {
        spaces
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown = vocabulary
        .unknown
        .map(|id| id as usize)
        .or_else(|| {
            (0..vocabulary.types.len()).find(|&id| kind_of(vocabulary, id) == kind::UNKNOWN)
        })
        .map(|id| vocabulary.tokens[id].as_str());
    let has_bytes = vocabulary.types.contains(&kind::BYTE);
    if unknown.is_none() && !has_bytes {
        return Err(
            "has neither a token for what is unknown nor byte tokens, so some texts would lose \
             characters; give the model's tokenizer.json instead"
                .to_owned(),
        );
    }
    let template = template(vocabulary, true)?;
    Ok(Parts {
        normalizer,
        pre_tokenizer: Value::Null,
        post_processor: template.unwrap_or_else(|| {
            json!({
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                         {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {},
            })
        }),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: json!({
            "type": "BPE", "dropout": null, "unk_token": unknown,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
            "byte_fallback": has_bytes, "ignore_merges": false, "vocab": vocab(vocabulary),
            "merges": pairs(vocabulary, ids),
        }),
    })
}

/// The merges that SentencePiece's scores stand for: every way to put a piece together from two
/// others, pieces of higher score first, and of one piece the longer left part first.
fn pairs(vocabulary: &Vocabulary, ids: &HashMap<&str, usize>) -> Vec<Value> {
    let is_piece = |text: &str| {
        ids.get(text)
            .is_some_and(|&id| kind_of(vocabulary, id) == kind::NORMAL)
    };
    let mut pairs = Vec::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        // SentencePiece makes no piece that is nearly as long; a split of each place in a huge one would take hours.
        if !is_piece(token) || token.len() > LONGEST_PIECE {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if is_piece(left) && is_piece(right) {
                pairs.push((vocabulary.scores[id], left.chars().count(), left, right));
            }
        }
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    pairs
        .into_iter()
        .map(|(_, _, left, right)| json!([left, right]))
        .collect()
}

fn vocab(vocabulary: &Vocabulary) -> Value {
    let ids: Map<String, Value> = vocabulary
        .tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    Value::Object(ids)
}

/// The step that puts the beginning of a sequence before a text, if the model has it.
fn template(vocabulary: &Vocabulary, usual: bool) -> std::result::Result<Option<Value>, String> {
    let asked = vocabulary.add_bos == Some(true);
    let wanted = vocabulary.add_bos.unwrap_or(usual);
    let Some(bos) = vocabulary.bos.filter(|_| wanted) else {
        return if asked {
            Err(
                "is to add a beginning of sequence but names none; the file is damaged, or \
                 give the model's tokenizer.json instead"
                    .to_owned(),
            )
        } else {
            Ok(None)
        };
    };
    let token = &vocabulary.tokens[bos as usize];
    let mut special = Map::new();
    special.insert(
        token.clone(),
        json!({"id": token, "ids": [bos], "tokens": [token]}),
    );
    let begin = |kind: u32| json!({"SpecialToken": {"id": token, "type_id": kind}});
    Ok(Some(json!({
        "type": "TemplateProcessing",
        "single": [begin(0), {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin(0), {"Sequence": {"id": "A", "type_id": 0}},
                 begin(1), {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": special,
    })))
}
