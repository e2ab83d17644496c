//! Text to token ids and back, under a named tokenizer.
//!
//! Three rules hold for every tokenizer, whatever its file says: a text is encoded whole and
//! once, without truncation, padding or added tokens; a control-token string inside a text
//! (`</s>`, `<|endoftext|>`) is text like any other and never becomes a control id; and decoding
//! neither skips nor tidies anything. The caller puts the beginning-of-sequence id where its
//! policy wants it.

mod policy;
mod vocabulary;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, DecoderWrapper, PostProcessorWrapper, PreTokenizerWrapper};

pub use self::vocabulary::Vocabulary;

use self::policy::{Around, Ends};
use crate::error::{Error, Result};
use crate::files;

/// The control tokens of a tokenizer trained here, in the order of their ids.
const TRAINED_SPECIALS: [&str; 3] = ["<bos>", "<eos>", "<pad>"];

/// Usual spellings of the beginning of a sequence, tried in this order when the post-processor
/// names none. GPT-2 uses `<|endoftext|>` for both ends.
const BOS_NAMES: [&str; 7] = [
    "<bos>",
    "<s>",
    "<|begin_of_text|>",
    "<|begin▁of▁sentence|>",
    "<|startoftext|>",
    "[BOS]",
    "<|endoftext|>",
];

/// Usual spellings of the end of a sequence, tried in this order.
const EOS_NAMES: [&str; 6] = [
    "<eos>",
    "</s>",
    "<|end_of_text|>",
    "<|end▁of▁sentence|>",
    "[EOS]",
    "<|endoftext|>",
];

/// A tokenizer read from a `tokenizer.json`, or trained here.
///
/// ```
/// use axmem_datasets::tokenizer::Tokenizer;
///
/// let texts = ["the cat sat on the mat", "the cat ate"].map(String::from);
/// let tokenizer = Tokenizer::train_bpe(texts.into_iter(), 270)?;
/// let ids = tokenizer.encode("the mat <eos>")?;
/// assert!(!ids.contains(&tokenizer.eos().expect("a trained tokenizer has one")));
/// assert_eq!(tokenizer.decode(&ids)?, "the mat <eos>");
/// # Ok::<(), axmem_datasets::Error>(())
/// ```
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Where it came from, for errors.
    name: String,
    /// The bytes of its `tokenizer.json`.
    json: Vec<u8>,
    hash: String,
    vocab_size: usize,
    /// Ids that no text may encode to.
    control: BTreeSet<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: Option<bool>,
    adds_eos: Option<bool>,
    notes: Vec<String>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`; a file that is not one gives an error with its path.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_json(path.display().to_string(), files::read(path)?)
    }

    /// Trains a byte-level BPE with `vocab` ids in all: `<bos>` 0, `<eos>` 1, `<pad>` 2, the 256
    /// bytes, and merges. Equal texts in equal order give equal bytes.
    pub fn train_bpe(texts: impl Iterator<Item = String> + Send, vocab: usize) -> Result<Self> {
        let name = format!("trained with {vocab} ids");
        let smallest = TRAINED_SPECIALS.len() + ByteLevel::alphabet().len();
        if vocab < smallest {
            return Err(Error::usage(format!(
                "a byte-level vocabulary of {vocab} is too small: the bytes and control tokens \
                 alone are {smallest}"
            )));
        }
        let failed = |error: tokenizers::Error| Error::Tokenizer {
            name: name.clone(),
            message: error.to_string(),
        };
        let specials = TRAINED_SPECIALS.map(|token| AddedToken::from(token, true));
        let mut trainer = TrainerWrapper::from(
            BpeTrainer::builder()
                .vocab_size(vocab)
                .show_progress(false)
                .special_tokens(specials.to_vec())
                .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
                .build(),
        );
        let bytes = ByteLevel::new(false, true, true);
        let mut inner = tokenizers::Tokenizer::new(BPE::default());
        inner
            .with_pre_tokenizer(Some(PreTokenizerWrapper::from(bytes)))
            .with_post_processor(Some(PostProcessorWrapper::from(bytes)))
            .with_decoder(Some(DecoderWrapper::from(bytes)));
        inner.train(&mut trainer, texts).map_err(failed)?;
        let json = inner.to_string(true).map_err(failed)?;
        Self::from_json(name.clone(), json.into_bytes())
    }

    fn from_json(name: String, json: Vec<u8>) -> Result<Self> {
        Self::from_json_with(name, json, &Ends::default())
    }

    /// `named` are the ends that another file gives; what the post-processor adds goes first.
    fn from_json_with(name: String, json: Vec<u8>, named: &Ends) -> Result<Self> {
        let failed = |message: String| Error::Tokenizer {
            name: name.clone(),
            message: format!("is not a usable tokenizer.json: {message}"),
        };
        let value: Value =
            serde_json::from_slice(&json).map_err(|error| failed(error.to_string()))?;
        check_merges(&value).map_err(&failed)?;
        let mut notes = Vec::new();
        // Dropout would encode a text differently each time.
        let mut fixed = value.clone();
        if let Some(dropout) = fixed.pointer_mut("/model/dropout")
            && !dropout.is_null()
        {
            notes.push(format!("its dropout of {dropout} is not used"));
            *dropout = Value::Null;
        }
        let bytes = serde_json::to_vec(&fixed).map_err(|error| failed(error.to_string()))?;
        let mut inner =
            tokenizers::Tokenizer::from_bytes(&bytes).map_err(|error| failed(error.to_string()))?;
        inner
            .with_truncation(None)
            .map_err(|error| failed(error.to_string()))?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(true);

        let ids = inner.get_vocab(true);
        let vocab_size = ids.values().max().map_or(0, |&id| id as usize + 1);
        if vocab_size == 0 {
            return Err(failed("its vocabulary is empty".to_owned()));
        }
        let find = |names: &[&str]| names.iter().find_map(|&name| ids.get(name).copied());
        let around = Around::read(&value, &ids);
        let by_name = |end: &Option<String>| ids.get(end.as_ref()?).copied();
        let (bos_named, eos_named) = (by_name(&named.bos), by_name(&named.eos));
        let bos = around.first.or(bos_named).or_else(|| find(&BOS_NAMES));
        let eos = around.last.or(eos_named).or_else(|| find(&EOS_NAMES));
        for (what, used, other) in [
            ("bos_token", around.first, &named.bos),
            ("eos_token", around.last, &named.eos),
        ] {
            let Some(other) = other else { continue };
            match (used, ids.get(other)) {
                (_, None) => notes.push(format!(
                    "{what} is {other:?}, which the vocabulary does not have"
                )),
                (Some(used), Some(&id)) if used != id => notes.push(format!(
                    "{what} is {other:?}, but the post-processor of tokenizer.json puts {:?} \
                     there; the post-processor counts",
                    inner.id_to_token(used).unwrap_or_default()
                )),
                _ => {}
            }
        }
        let control = inner
            .get_added_tokens_decoder()
            .into_iter()
            .filter_map(|(id, token)| token.special.then_some(id))
            .chain(bos)
            .chain(eos)
            .collect();
        Ok(Self {
            hash: files::sha256(&json),
            inner,
            name,
            json,
            vocab_size,
            control,
            bos,
            eos,
            adds_bos: around.is_told.then_some(around.first.is_some()),
            adds_eos: around.is_told.then_some(around.last.is_some()),
            notes,
        })
    }

    /// The ids of a whole text, without a beginning or end of sequence.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|error| self.error(error.to_string()))?;
        let ids = encoding.get_ids().to_vec();
        if let Some(&id) = ids.iter().find(|id| self.control.contains(id)) {
            let token = self.inner.id_to_token(id).unwrap_or_default();
            return Err(self.error(format!(
                "reads the string {token:?} inside a text as its control token {id}; use a \
                 tokenizer that keeps control tokens out of its ordinary vocabulary"
            )));
        }
        Ok(ids)
    }

    /// The text of some ids, control tokens written out, nothing tidied. Ids that end inside a
    /// character give the replacement character there.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.vocab_size) {
            return Err(self.error(format!(
                "has no id {id}: its vocabulary has {} ids",
                self.vocab_size
            )));
        }
        self.inner
            .decode(ids, false)
            .map_err(|error| self.error(error.to_string()))
    }

    /// One more than the largest id, added tokens included: the rows a model must have.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The id that begins a sequence, if the tokenizer has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The id that ends a sequence, if the tokenizer has one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether the model's own tokenizer puts the beginning of a sequence before a text: what the
    /// post-processor of its `tokenizer.json` says, and where that says nothing, the flag in
    /// `tokenizer_config.json`; `None` if neither does.
    pub fn adds_bos(&self) -> Option<bool> {
        self.adds_bos
    }

    /// Whether the model's own tokenizer puts the end of a sequence behind a text, told as by
    /// [`Tokenizer::adds_bos`].
    pub fn adds_eos(&self) -> Option<bool> {
        self.adds_eos
    }

    /// What a user should know of the tokenizer's files, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The first byte at which a text is not the same after encoding and decoding; `None` if all
    /// of it is.
    pub fn lossy_at(&self, text: &str) -> Result<Option<usize>> {
        let back = self.decode(&self.encode(text)?)?;
        let same = text.bytes().zip(back.bytes()).take_while(|(a, b)| a == b);
        let same = same.count();
        Ok((text != back).then_some(same))
    }

    /// SHA-256 of the `tokenizer.json`, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Writes the `tokenizer.json`, byte for byte the one that [`Tokenizer::hash`] is of.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        files::write_atomic(path, &self.json)
    }

    fn error(&self, message: String) -> Error {
        Error::Tokenizer {
            name: self.name.clone(),
            message,
        }
    }
}

/// Refuses merges of tokens that are not there: the library would panic over them.
fn check_merges(tokenizer: &Value) -> std::result::Result<(), String> {
    let model = &tokenizer["model"];
    let (Some(vocabulary), Some(merges)) = (model["vocab"].as_object(), model["merges"].as_array())
    else {
        return Ok(());
    };
    let before = model["continuing_subword_prefix"].as_str().unwrap_or("");
    for merge in merges {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [left, right] => left.as_str().zip(right.as_str()),
                _ => None,
            },
            _ => None,
        };
        let is_known = pair.is_some_and(|(left, right)| {
            let joined = right
                .strip_prefix(before)
                .map(|right| format!("{left}{right}"));
            let is_token = |text: &str| vocabulary.contains_key(text);
            is_token(left) && is_token(right) && joined.is_some_and(|joined| is_token(&joined))
        });
        if !is_known {
            return Err(format!(
                "the merge {merge} is not of two of its tokens into a third"
            ));
        }
    }
    Ok(())
}
