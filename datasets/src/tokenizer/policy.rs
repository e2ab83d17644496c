//! What a tokenizer's own files say of the beginning and end of a sequence.
//!
//! Two files speak: the post-processor in `tokenizer.json`, and the flags and names in
//! `tokenizer_config.json`. Where the first says something it is what Transformers does, whatever
//! the flags say; a disagreement is told.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::Tokenizer;
use crate::error::{Error, Result};
use crate::files;

/// The names of the tokens that begin and end a sequence, where a file gives them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
}

/// What a post-processor puts around a single text.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    /// Whether it says what stands around a text; without a post-processor nothing is said.
    pub(super) is_told: bool,
    pub(super) first: Option<u32>,
    pub(super) last: Option<u32>,
}

impl Around {
    /// Reads the post-processor of a `tokenizer.json`.
    pub(super) fn read(tokenizer: &Value, ids: &HashMap<String, u32>) -> Self {
        let none = Value::Null;
        let processor = tokenizer.get("post_processor").unwrap_or(&none);
        let steps = match processor.get("processors").and_then(Value::as_array) {
            Some(steps) => steps.as_slice(),
            None => std::slice::from_ref(processor),
        };
        let mut around = Self {
            is_told: !processor.is_null(),
            ..Self::default()
        };
        let id = |name: Option<&Value>| ids.get(name?.as_str()?).copied();
        for step in steps {
            match step.get("type").and_then(Value::as_str) {
                Some("TemplateProcessing") => {
                    let single = step.get("single").and_then(Value::as_array);
                    let named = |part: Option<&Value>| id(part?.pointer("/SpecialToken/id"));
                    around.first = single.and_then(|parts| named(parts.first()));
                    around.last = single.and_then(|parts| named(parts.last()));
                }
                Some("RobertaProcessing" | "BertProcessing") => {
                    around.first = id(step.pointer("/cls/0"));
                    around.last = id(step.pointer("/sep/0"));
                }
                Some("ByteLevel") => {}
                _ => around.is_told = false,
            }
        }
        around
    }
}

/// What `tokenizer_config.json` says.
struct Config {
    ends: Ends,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
}

impl Config {
    fn read(path: &Path) -> Result<Self> {
        let text = files::read(path)?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| {
            Error::input(
                path,
                format!("line {}", error.line()),
                "is not JSON; fetch the file again, or remove it",
            )
        })?;
        let name = |key: &str| {
            let token = value.get(key)?;
            let token = token.get("content").unwrap_or(token);
            token.as_str().map(str::to_owned)
        };
        let flag = |key: &str| value.get(key).and_then(Value::as_bool);
        Ok(Self {
            ends: Ends {
                bos: name("bos_token"),
                eos: name("eos_token"),
            },
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
        })
    }
}

impl Tokenizer {
    /// Reads the tokenizer of a model folder: `tokenizer.json`, and the names and flags of
    /// `tokenizer_config.json` if there is one. [`Tokenizer::notes`] tells where they disagree.
    ///
    /// The class that `tokenizer_config.json` names plays no part: `tokenizer.json` says how a
    /// text is encoded.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join("tokenizer.json");
        if !path.is_file() {
            return Err(Error::Tokenizer {
                name: path.display().to_string(),
                message: absent(folder),
            });
        }
        let config = folder.join("tokenizer_config.json");
        if !config.is_file() {
            return Self::from_file(&path);
        }
        let config = Config::read(&config)?;
        let mut tokenizer = Self::from_json_with(
            path.display().to_string(),
            files::read(&path)?,
            &config.ends,
        )?;
        tokenizer.apply(&config);
        Ok(tokenizer)
    }

    /// Takes the flags where the post-processor says nothing, and tells where they disagree.
    fn apply(&mut self, config: &Config) {
        for (what, flag, token, adds) in [
            (
                "add_bos_token",
                config.add_bos,
                &config.ends.bos,
                &mut self.adds_bos,
            ),
            (
                "add_eos_token",
                config.add_eos,
                &config.ends.eos,
                &mut self.adds_eos,
            ),
        ] {
            let Some(flag) = flag else { continue };
            match *adds {
                None => *adds = Some(flag),
                Some(does) if does != flag => self.notes.push(format!(
                    "tokenizer_config.json says {what}: {flag}, but the post-processor of \
                     tokenizer.json {} {}; the post-processor counts",
                    if does { "adds" } else { "does not add" },
                    token.as_deref().unwrap_or("a token there"),
                )),
                Some(_) => {}
            }
        }
    }
}

/// Why a folder gives no tokenizer, and what to do.
fn absent(folder: &Path) -> String {
    // No maintained reader of this format in Rust gives what a tokenizer.json holds, and
    // Transformers converts it without loss.
    if folder.join("tokenizer.model").is_file() {
        return format!(
            "is absent; a tokenizer.model alone is not read: convert it once in Python with \
             transformers.AutoTokenizer.from_pretrained(\"{0}\").save_pretrained(\"{0}\")",
            folder.display()
        );
    }
    "is absent; put the model's tokenizer.json there, or name a tokenizer of its own".to_owned()
}
