//! GGUF files of llama.cpp: one file with settings, tokenizer and tensors.
//!
//! Every count and length is held against the bytes that are left in the file before memory is taken for it. Layout and names
//! follow the format's specification in the repository ggml-org/ggml (docs/gguf.md).

mod parse;

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;

use self::parse::{File, Listed};
use super::stored::{Reader, Stored};
use crate::config::{ModelConfig, RopeScaling};
use crate::error::{Error, Result};
use crate::files;

pub use self::parse::{Value, parse};

/// Architectures that are a Llama but for biases.
const ARCHITECTURES: [&str; 2] = ["llama", "qwen2"];
/// A factor for each rotary frequency, in models with the scaling of Llama 3.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The settings of a file, by key.
#[derive(Clone, Debug)]
pub struct Metadata {
    path: PathBuf,
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    fn refuse(&self, key: &str, what: &str) -> Error {
        Error::checkpoint(&self.path, format!("{key} is {what}"))
    }

    /// A text, if the key is there.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.refuse(key, "no text")),
        }
    }

    /// A whole number of at least 0, if the key is there.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        match self.get(key) {
            None => Ok(None),
            Some(&Value::Integer(value)) => u64::try_from(value)
                .map(Some)
                .map_err(|_| self.refuse(key, "below 0")),
            Some(_) => Err(self.refuse(key, "no whole number")),
        }
    }

    /// A number, if the key is there.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.get(key) {
            None => Ok(None),
            Some(&Value::Number(value)) => Ok(Some(value)),
            Some(&Value::Integer(value)) => Ok(Some(value as f64)),
            Some(_) => Err(self.refuse(key, "no number")),
        }
    }

    /// True or false, if the key is there.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(&Value::Flag(value)) => Ok(Some(value)),
            Some(_) => Err(self.refuse(key, "neither true nor false")),
        }
    }

    /// A list of texts; empty if the key is not there.
    pub fn texts(&self, key: &str) -> Result<&[String]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Texts(values)) => Ok(values),
            Some(_) => Err(self.refuse(key, "no list of texts")),
        }
    }

    /// A list of whole numbers; empty if the key is not there.
    pub fn integers(&self, key: &str) -> Result<&[i64]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Integers(values)) => Ok(values),
            Some(_) => Err(self.refuse(key, "no list of whole numbers")),
        }
    }

    /// A list of numbers; empty if the key is not there.
    pub fn numbers(&self, key: &str) -> Result<&[f32]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Numbers(values)) => Ok(values),
            Some(_) => Err(self.refuse(key, "no list of numbers")),
        }
    }

    fn size(&self, key: &str) -> Result<usize> {
        self.unsigned(key)?
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size > 0)
            .ok_or_else(|| self.refuse(key, "missing or 0"))
    }
}

/// An opened file.
pub(super) struct Opened {
    pub(super) config: ModelConfig,
    /// Tensors under the names of Transformers.
    pub(super) tensors: BTreeMap<String, Stored>,
    pub(super) metadata: Metadata,
    pub(super) notes: Vec<String>,
}

/// Reads all but the values.
pub(super) fn open(path: &Path) -> Result<Opened> {
    let refused = |message: String| Error::checkpoint(path, message);
    let size = files::size(path)?;
    let mut parsed = parse(&mut BufReader::new(files::open(path)?), size).map_err(refused)?;
    let metadata = Metadata {
        path: path.to_path_buf(),
        values: std::mem::take(&mut parsed.values),
    };
    if metadata
        .unsigned("split.count")?
        .is_some_and(|count| count > 1)
    {
        return Err(refused(
            "is one of several parts; join them with llama.cpp's `llama-gguf-split --merge`".into(),
        ));
    }
    let architecture = metadata.text("general.architecture")?.unwrap_or("");
    if !ARCHITECTURES.contains(&architecture) {
        return Err(refused(format!(
            "has the architecture `{architecture}`; those that axmem reads are {}",
            ARCHITECTURES.join(" and ")
        )));
    }
    let mut config = describe(&metadata, architecture, &parsed.tensors)?;
    let mut tensors = BTreeMap::new();
    let mut factors = None;
    for listed in &parsed.tensors {
        let interleaved = (architecture == "llama"
            && [".attn_q.", ".attn_k."]
                .iter()
                .any(|part| listed.name.contains(part)))
        .then_some(config.head_dim);
        let stored = stored(listed, parsed.start, size, interleaved)
            .map_err(|fault| refused(format!("{}: {fault}", listed.name)))?;
        if listed.name == ROPE_FACTORS {
            factors = Some(stored);
        } else {
            let name = published_name(&listed.name).ok_or_else(|| {
                refused(format!(
                    "holds the tensor {}, which a plain Llama does not have",
                    listed.name
                ))
            })?;
            tensors.insert(name, stored);
        }
    }
    check_ranges(&parsed, &tensors, size).map_err(refused)?;
    if let Some(stored) = factors {
        if stored.shape != [1, config.head_dim / 2] {
            return Err(refused(format!(
                "{ROPE_FACTORS} has shape {:?} for heads of {} components",
                stored.shape, config.head_dim
            )));
        }
        let mut values = vec![0.0; stored.shape[1]];
        Reader::open(path)?.elements(&stored, 0, &mut values)?;
        config.rope_scaling = Some(RopeScaling::Each {
            factors: values.into_iter().map(f64::from).collect(),
        });
    }
    for (part, flag) in [
        ("q_proj", &mut config.qkv_bias),
        ("o_proj", &mut config.output_bias),
    ] {
        *flag = tensors.contains_key(&format!("model.layers.0.self_attn.{part}.bias"));
    }
    let mut notes = Vec::new();
    if parsed
        .tensors
        .iter()
        .any(|tensor| tensor.dtype.block_size() > 1)
    {
        notes.push(
            "the weights are quantised; scores are those of the quantised model, computed in f32"
                .into(),
        );
    }
    Ok(Opened {
        config,
        tensors,
        metadata,
        notes,
    })
}

/// The model that the settings describe; biases and tie are known from the tensors only.
fn describe(metadata: &Metadata, architecture: &str, tensors: &[Listed]) -> Result<ModelConfig> {
    let key = |name: &str| format!("{architecture}.{name}");
    let refused = |message: String| Error::checkpoint(&metadata.path, message);
    if metadata
        .unsigned(&key("expert_count"))?
        .is_some_and(|count| count > 0)
    {
        return Err(refused(
            "is a mixture of experts, which axmem does not read".into(),
        ));
    }
    let hidden = metadata.size(&key("embedding_length"))?;
    let heads = metadata.size(&key("attention.head_count"))?;
    let whole = |name: &str| -> Result<Option<usize>> {
        let key = key(name);
        metadata.get(&key).map(|_| metadata.size(&key)).transpose()
    };
    let head_dim = whole("attention.key_length")?.unwrap_or(hidden / heads);
    let turned = whole("rope.dimension_count")?.unwrap_or(head_dim);
    if turned != head_dim {
        return Err(refused(format!(
            "turns {turned} of the {head_dim} components of a head; only whole heads are turned"
        )));
    }
    let scaling = match metadata.text(&key("rope.scaling.type"))? {
        Some("none") => None,
        // Older files name a factor, under either key, and no kind: llama.cpp reads it as linear.
        kind @ (None | Some("linear")) => {
            let factor = match metadata.number(&key("rope.scaling.factor"))? {
                Some(factor) => Some(factor),
                None => metadata.number(&key("rope.scale_linear"))?,
            };
            let factor = factor.filter(|factor| !(kind.is_none() && [0.0, 1.0].contains(factor)));
            if kind.is_some() && factor.is_none() {
                return Err(refused("has linear rope scaling without a factor".into()));
            }
            factor.map(|factor| RopeScaling::Linear { factor })
        }
        Some(other) => {
            return Err(refused(format!(
                "has rope scaling of kind `{other}`; the kinds that axmem knows are none, linear and the factors of Llama 3"
            )));
        }
    };
    let vocab = tensors
        .iter()
        .find(|tensor| tensor.name == "token_embd.weight")
        .and_then(|tensor| tensor.shape.first().copied())
        .ok_or_else(|| refused("holds no token_embd.weight".into()))?;
    let config = ModelConfig {
        vocab,
        hidden,
        layers: metadata.size(&key("block_count"))?,
        heads,
        kv_heads: whole("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        ffn: metadata.size(&key("feed_forward_length"))?,
        max_positions: metadata.size(&key("context_length"))?,
        rope_theta: metadata.number(&key("rope.freq_base"))?.unwrap_or(10_000.0),
        norm_eps: metadata
            .number(&key("attention.layer_norm_rms_epsilon"))?
            .ok_or_else(|| refused("has no attention.layer_norm_rms_epsilon".into()))?,
        tied: false,
        qkv_bias: false,
        output_bias: false,
        rope_scaling: scaling,
    };
    config
        .validate()
        .map_err(|error| refused(error.to_string()))?;
    Ok(config)
}

/// Where a listed tensor is, if its bytes are inside the file.
fn stored(
    listed: &Listed,
    start: u64,
    size: u64,
    interleaved: Option<usize>,
) -> std::result::Result<Stored, String> {
    let shape = match listed.shape[..] {
        [len] => [1, len],
        [rows, columns] => [rows, columns],
        _ => {
            return Err(format!(
                "has shape {:?}; a model has vectors and matrices only",
                listed.shape
            ));
        }
    };
    let stored = Stored {
        file: 0,
        offset: start.saturating_add(listed.offset),
        dtype: listed.dtype,
        shape,
        interleaved,
    };
    let bytes = stored.bytes().ok_or_else(|| {
        format!(
            "rows of {} values are not whole blocks of {}, as {:?} needs",
            shape[1],
            listed.dtype.block_size(),
            listed.dtype
        )
    })?;
    if interleaved.is_some_and(|dim| !shape[usize::from(shape[0] == 1)].is_multiple_of(dim)) {
        return Err(format!(
            "has shape {:?}, which is not whole heads",
            listed.shape
        ));
    }
    if stored
        .offset
        .checked_add(bytes)
        .is_none_or(|end| end > size)
    {
        return Err(format!(
            "ends beyond the {size} bytes of the file; the file is truncated"
        ));
    }
    Ok(stored)
}

/// The values must not overlap, and must reach to the end of the file: what is left over shows that the list is short.
fn check_ranges(
    parsed: &File,
    tensors: &BTreeMap<String, Stored>,
    size: u64,
) -> std::result::Result<(), String> {
    let mut ranges: Vec<(u64, u64, &str)> = parsed
        .tensors
        .iter()
        .filter_map(|listed| {
            let stored = tensors.get(&published_name(&listed.name)?)?;
            Some((
                stored.offset,
                stored.offset + stored.bytes()?,
                listed.name.as_str(),
            ))
        })
        .collect();
    ranges.sort_unstable();
    if let Some(pair) = ranges.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        return Err(format!(
            "the values of {} and {} overlap",
            pair[0].2, pair[1].2
        ));
    }
    // Factors of frequencies are no tensor of the model, and may come last.
    let has_factors = parsed
        .tensors
        .iter()
        .any(|listed| listed.name == ROPE_FACTORS);
    let end = ranges.last().map_or(parsed.start, |range| range.1);
    let rest = size.saturating_sub(end.next_multiple_of(parsed.alignment));
    if rest > 0 && !has_factors {
        return Err(format!(
            "has {rest} bytes after its last tensor; its list of tensors is damaged, or it is not one file"
        ));
    }
    Ok(())
}

/// The name in Transformers of a tensor of llama.cpp.
fn published_name(name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some(super::EMBEDDING.into()),
        "output_norm.weight" => return Some("model.norm.weight".into()),
        "output.weight" => return Some(super::HEAD.into()),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let (part, kind) = part.rsplit_once('.')?;
    let part = match part {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_norm" => "post_attention_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => return None,
    };
    matches!(kind, "weight" | "bias").then(|| format!("model.layers.{layer}.{part}.{kind}"))
}

/// A type of values by its number in the format, if it is known here.
fn dtype(code: u32) -> Option<GgmlDType> {
    Some(match code {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        _ => return None,
    })
}
