//! The tensors of a model under their published names.

use crate::config::ModelConfig;

/// A tensor under its published name.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// `[1, n]` for a vector.
    pub(crate) shape: [usize; 2],
    vector: bool,
}

impl Tensor {
    fn matrix(name: impl Into<String>, shape: [usize; 2]) -> Self {
        Self {
            name: name.into(),
            shape,
            vector: false,
        }
    }

    fn vector(name: impl Into<String>, len: usize) -> Self {
        Self {
            name: name.into(),
            shape: [1, len],
            vector: true,
        }
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// The shape in a file.
    pub(crate) fn published_shape(&self) -> &[usize] {
        &self.shape[usize::from(self.vector)..]
    }
}

/// All tensors of a model in the order of the forward pass; a tied head is not one.
pub(crate) fn tensors(config: &ModelConfig) -> Vec<Tensor> {
    let (hidden, ffn) = (config.hidden, config.ffn);
    let query = config.heads.saturating_mul(config.head_dim);
    let key = config.kv_heads.saturating_mul(config.head_dim);
    let vocabulary = [config.vocab, hidden];
    let mut tensors = vec![Tensor::matrix("model.embed_tokens.weight", vocabulary)];
    for layer in 0..config.layers {
        let at = |part: &str| format!("model.layers.{layer}.{part}");
        tensors.push(Tensor::vector(at("input_layernorm.weight"), hidden));
        for (part, shape, bias) in [
            ("self_attn.q_proj", [query, hidden], config.qkv_bias),
            ("self_attn.k_proj", [key, hidden], config.qkv_bias),
            ("self_attn.v_proj", [key, hidden], config.qkv_bias),
            ("self_attn.o_proj", [hidden, query], config.output_bias),
        ] {
            tensors.push(Tensor::matrix(at(&format!("{part}.weight")), shape));
            if bias {
                tensors.push(Tensor::vector(at(&format!("{part}.bias")), shape[0]));
            }
        }
        tensors.push(Tensor::vector(
            at("post_attention_layernorm.weight"),
            hidden,
        ));
        for (part, shape) in [
            ("mlp.gate_proj.weight", [ffn, hidden]),
            ("mlp.up_proj.weight", [ffn, hidden]),
            ("mlp.down_proj.weight", [hidden, ffn]),
        ] {
            tensors.push(Tensor::matrix(at(part), shape));
        }
    }
    tensors.push(Tensor::vector("model.norm.weight", hidden));
    if !config.tied {
        tensors.push(Tensor::matrix("lm_head.weight", vocabulary));
    }
    tensors
}
