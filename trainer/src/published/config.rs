//! `config.json` of Transformers, read and written.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::checkpoint::Export;
use crate::config::{ModelConfig, RopeScaling};
use crate::error::{Error, Result};

/// The kinds of model (`model_type`) that are a Llama but for biases.
const KINDS: [&str; 3] = ["llama", "mistral", "qwen2"];

/// What a `config.json` says.
pub(super) struct Described {
    /// The model; `tied` is what the file says, or false.
    pub(super) config: ModelConfig,
    /// Whether the file says that the head is the embedding.
    pub(super) tied: Option<bool>,
    /// What a user should know of how the file was read.
    pub(super) notes: Vec<String>,
}

/// Reads the values of one file.
struct Reader<'a> {
    path: &'a Path,
    values: &'a Map<String, Value>,
}

impl Reader<'_> {
    fn refuse(&self, message: impl Into<String>) -> Error {
        Error::checkpoint(self.path, message)
    }

    /// A value that is there and not null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn size(&self, key: &str, default: Option<usize>) -> Result<usize> {
        let Some(value) = self.get(key) else {
            return default.ok_or_else(|| self.refuse(format!("has no {key}")));
        };
        let size = value
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size > 0);
        size.ok_or_else(|| {
            self.refuse(format!(
                "{key} is {value}; it must be a whole number above 0"
            ))
        })
    }

    fn number(&self, key: &str, default: f64) -> Result<f64> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .ok_or_else(|| self.refuse(format!("{key} is {value}; it must be a number"))),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.get(key)
            .map(|value| {
                value.as_bool().ok_or_else(|| {
                    self.refuse(format!("{key} is {value}; it must be true or false"))
                })
            })
            .transpose()
    }

    /// Refuses a model that computes something else than a Llama does.
    fn check_kind(&self) -> Result<&str> {
        let kind = self.get("model_type").and_then(Value::as_str).unwrap_or("");
        if !KINDS.contains(&kind) {
            return Err(self.refuse(format!(
                "model_type is `{kind}`; the models that axmem reads are {}",
                KINDS.join(", ")
            )));
        }
        let activation = self.get("hidden_act").and_then(Value::as_str);
        if activation.is_some_and(|name| name != "silu") {
            return Err(self.refuse(format!(
                "hidden_act is `{}`; only silu is known",
                activation.unwrap_or_default()
            )));
        }
        if self.flag("mlp_bias")? == Some(true) {
            return Err(
                self.refuse("mlp_bias is true; biases of the feed-forward layer are not known")
            );
        }
        if self.get("quantization_config").is_some() {
            return Err(self.refuse(
                "has a quantization_config; give the unquantised weights, or a GGUF file",
            ));
        }
        self.check_rotary_part()?;
        Ok(kind)
    }

    fn check_rotary_part(&self) -> Result<()> {
        let part = self.number("partial_rotary_factor", 1.0)?;
        if part < 1.0 {
            return Err(self.refuse(format!(
                "partial_rotary_factor is {part}; only whole heads are turned"
            )));
        }
        Ok(())
    }

    /// θ and the scaling, under the names of Transformers 4 (`rope_theta`, `rope_scaling`) or 5 (`rope_parameters`).
    fn rope(&self) -> Result<(f64, Option<RopeScaling>)> {
        let mut found = Vec::new();
        for key in ["rope_parameters", "rope_scaling"] {
            if let Some(section) = self.get(key) {
                found.push(self.rope_section(key, section)?);
            }
        }
        match found.as_slice() {
            [] => Ok((self.number("rope_theta", 10_000.0)?, None)),
            [one, other] if one.1 != other.1 => Err(self
                .refuse("rope_parameters and rope_scaling differ; remove the one that is wrong")),
            [first, ..] => Ok(first.clone()),
        }
    }

    fn rope_section(&self, key: &str, section: &Value) -> Result<(f64, Option<RopeScaling>)> {
        let values = section.as_object().ok_or_else(|| {
            self.refuse(format!("{key} is {section}; it must be a list of settings"))
        })?;
        let inner = Reader {
            path: self.path,
            values,
        };
        inner.check_rotary_part()?;
        let theta = inner.number("rope_theta", self.number("rope_theta", 10_000.0)?)?;
        let kind = match ["rope_type", "type"]
            .into_iter()
            .find_map(|name| inner.get(name))
        {
            None if values.values().any(Value::is_object) => {
                return Err(self.refuse(format!(
                    "{key} differs between layers, which no plain Llama's does"
                )));
            }
            None => "default",
            Some(kind) => kind.as_str().ok_or_else(|| {
                self.refuse(format!("{key} is of kind {kind}; it must be a name"))
            })?,
        };
        let needed = |name: &str| {
            inner.get(name).and_then(Value::as_f64).ok_or_else(|| {
                self.refuse(format!("{key} is of kind {kind} and has no number {name}"))
            })
        };
        let scaling = match kind {
            "default" => None,
            "linear" => Some(RopeScaling::Linear {
                factor: needed("factor")?,
            }),
            "llama3" => Some(RopeScaling::Llama3 {
                factor: needed("factor")?,
                low: needed("low_freq_factor")?,
                high: needed("high_freq_factor")?,
                original_positions: inner.size("original_max_position_embeddings", None)?,
            }),
            other => {
                return Err(self.refuse(format!(
                    "{key} is of kind `{other}`; the kinds that axmem knows are default, linear and llama3"
                )));
            }
        };
        Ok((theta, scaling))
    }

    fn describe(&self) -> Result<Described> {
        let kind = self.check_kind()?;
        let hidden = self.size("hidden_size", None)?;
        let heads = self.size("num_attention_heads", None)?;
        let (rope_theta, rope_scaling) = self.rope()?;
        // Qwen2 always has these three biases and says nothing of them.
        let bias = self.flag("attention_bias")?.unwrap_or(false);
        let tied = self.flag("tie_word_embeddings")?;
        let mut notes = Vec::new();
        let mut max_positions = self.size("max_position_embeddings", Some(2048))?;
        let windowed = kind == "mistral" || self.flag("use_sliding_window")? == Some(true);
        if windowed && self.get("sliding_window").is_some() {
            let window = self.size("sliding_window", None)?;
            if window < max_positions {
                notes.push(format!(
                    "attention reaches back {window} tokens (sliding_window), so sequences end there; the file allows {max_positions}"
                ));
                max_positions = window;
            }
        }
        let config = ModelConfig {
            vocab: self.size("vocab_size", None)?,
            hidden,
            layers: self.size("num_hidden_layers", None)?,
            heads,
            kv_heads: self.size("num_key_value_heads", Some(heads))?,
            head_dim: self.size("head_dim", Some(hidden / heads))?,
            ffn: self.size("intermediate_size", None)?,
            max_positions,
            rope_theta,
            norm_eps: self.number("rms_norm_eps", 1e-6)?,
            tied: tied.unwrap_or(false),
            qkv_bias: bias || kind == "qwen2",
            output_bias: bias && kind != "qwen2",
            rope_scaling,
        };
        config
            .validate()
            .map_err(|error| self.refuse(error.to_string()))?;
        Ok(Described {
            config,
            tied,
            notes,
        })
    }
}

/// Reads the text of a `config.json`.
pub(super) fn describe(path: &Path, text: &[u8]) -> Result<Described> {
    let values: Value = serde_json::from_slice(text)
        .map_err(|error| Error::checkpoint(path, format!("is not JSON: {error}")))?;
    let values = values
        .as_object()
        .ok_or_else(|| Error::checkpoint(path, "is not a list of settings"))?;
    Reader { path, values }.describe()
}

/// The `config.json` of a model: what Transformers 4 and 5 need to build it.
///
/// # Errors
/// A model that no kind of Transformers' describes.
pub(crate) fn config_json(model: &ModelConfig, options: &Export) -> Result<Value> {
    let (kind, architecture) = match (model.qkv_bias, model.output_bias) {
        (true, false) => ("qwen2", "Qwen2ForCausalLM"),
        (false, true) => {
            return Err(Error::setting(
                "model.output_bias",
                "a bias of the output projection without those of q, k and v has no published layout",
            ));
        }
        _ => ("llama", "LlamaForCausalLM"),
    };
    let mut rope = json!({ "rope_type": "default", "rope_theta": model.rope_theta });
    match &model.rope_scaling {
        None => {}
        Some(RopeScaling::Linear { factor }) => {
            rope["rope_type"] = json!("linear");
            rope["factor"] = json!(factor);
        }
        Some(RopeScaling::Llama3 {
            factor,
            low,
            high,
            original_positions,
        }) => {
            rope["rope_type"] = json!("llama3");
            rope["factor"] = json!(factor);
            rope["low_freq_factor"] = json!(low);
            rope["high_freq_factor"] = json!(high);
            rope["original_max_position_embeddings"] = json!(original_positions);
        }
        Some(RopeScaling::Each { .. }) => {
            return Err(Error::setting(
                "model.rope_scaling",
                "the frequencies come from the factors of a GGUF file, for which config.json has no place; start from \
                 the model's safetensors instead",
            ));
        }
    }
    let mut config = json!({
        "architectures": [architecture],
        "model_type": kind,
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": model.max_positions,
        "rms_norm_eps": model.norm_eps,
        // Version 4 reads the first, version 5 the second.
        "rope_theta": model.rope_theta,
        "rope_parameters": rope,
        "tie_word_embeddings": model.tied,
        "attention_bias": model.qkv_bias,
        "mlp_bias": false,
        "use_cache": true,
        // Left out, they would be 1 and 2.
        "bos_token_id": options.bos,
        "eos_token_id": options.eos,
        // The older and the newer name of one setting.
        "torch_dtype": options.dtype.name(),
        "dtype": options.dtype.name(),
    });
    if model.rope_scaling.is_some() {
        // Version 4's name of the same.
        config["rope_scaling"] = config["rope_parameters"].clone();
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(changes: &Value) -> Value {
        let mut config = json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 100, "hidden_act": "silu",
        });
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    }

    fn read(changes: &Value) -> Result<Described> {
        let text = serde_json::to_vec(&config(changes)).unwrap();
        describe(Path::new("config.json"), &text)
    }

    fn refused(changes: &Value) -> String {
        read(changes).err().expect("refused").to_string()
    }

    #[test]
    fn what_is_absent_has_transformers_defaults() {
        let read = read(&json!({ "head_dim": null })).unwrap();
        let config = read.config;
        assert_eq!((config.head_dim, config.kv_heads), (16, 4));
        assert_eq!((config.norm_eps, config.rope_theta), (1e-6, 10_000.0));
        assert_eq!((config.max_positions, read.tied), (2048, None));
        assert!(!config.qkv_bias && !config.output_bias && config.rope_scaling.is_none());
    }

    #[test]
    fn w04_all_spellings_of_a_scaling_are_one() {
        let llama3 = |kind: &str| {
            json!({
                kind: "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            })
        };
        let mut version_5 = llama3("rope_type");
        version_5["rope_theta"] = json!(500_000.0);
        let spellings = [
            json!({ "rope_theta": 500_000.0, "rope_scaling": llama3("type") }),
            json!({ "rope_theta": 500_000.0, "rope_scaling": llama3("rope_type") }),
            json!({ "rope_parameters": version_5 }),
        ];
        for spelling in spellings {
            let config = read(&spelling).unwrap().config;
            assert_eq!(config.rope_theta.to_bits(), 500_000.0f64.to_bits());
            let expected = RopeScaling::Llama3 {
                factor: 8.0,
                low: 1.0,
                high: 4.0,
                original_positions: 8192,
            };
            assert_eq!(config.rope_scaling, Some(expected));
        }
    }

    #[test]
    fn kinds_of_model_and_their_biases() {
        let bias = |changes: Value| {
            let config = read(&changes).unwrap().config;
            (config.qkv_bias, config.output_bias)
        };
        assert_eq!(bias(json!({ "attention_bias": true })), (true, true));
        assert_eq!(bias(json!({ "model_type": "qwen2" })), (true, false));
        let mistral = read(&json!({
            "model_type": "mistral", "sliding_window": 512, "max_position_embeddings": 4096,
        }))
        .unwrap();
        assert_eq!(mistral.config.max_positions, 512);
        assert_eq!(mistral.notes.len(), 1);
    }

    #[test]
    fn what_is_not_a_llama_is_refused_by_name() {
        for (changes, fault) in [
            (
                json!({ "model_type": "gpt2" }),
                "`gpt2`; the models that axmem reads",
            ),
            (json!({ "hidden_act": "gelu" }), "only silu"),
            (json!({ "mlp_bias": true }), "mlp_bias is true"),
            (
                json!({ "rope_scaling": { "type": "yarn", "factor": 4.0 } }),
                "`yarn`",
            ),
            (
                json!({ "rope_scaling": { "type": "linear" } }),
                "no number factor",
            ),
            (json!({ "rope_scaling": { "type": 3 } }), "kind 3"),
            (
                json!({
                    "rope_parameters": { "rope_type": "default", "rope_theta": 10_000.0 },
                    "rope_scaling": { "type": "linear", "factor": 2.0 },
                }),
                "differ; remove",
            ),
            (
                json!({
                    "rope_parameters": { "rope_type": "default" },
                    "rope_scaling": { "type": "dynamic", "factor": 2.0 },
                }),
                "`dynamic`",
            ),
            (
                json!({ "rope_parameters": { "full_attention": { "rope_type": "yarn" } } }),
                "differs between layers",
            ),
            (json!({ "quantization_config": {} }), "quantization_config"),
            (json!({ "hidden_size": 0 }), "hidden_size is 0"),
            (json!({ "hidden_size": "64" }), "hidden_size is \"64\""),
            (json!({ "num_key_value_heads": 3 }), "does not divide"),
            (json!({ "tie_word_embeddings": 1 }), "true or false"),
        ] {
            let message = refused(&changes);
            assert!(
                message.contains(fault) && message.starts_with("config.json"),
                "{message}"
            );
        }
    }
}
