//! The shape of a Llama: sizes and constants.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::grid::{Axis, Grid};

/// Sizes and constants of a Llama-family model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// V: rows of the embedding.
    pub vocab: usize,
    /// H: width of the residual stream.
    pub hidden: usize,
    /// Number of blocks.
    pub layers: usize,
    /// N: query heads.
    pub heads: usize,
    /// K: key-value heads; divides N.
    pub kv_heads: usize,
    /// D: size of a head; even.
    pub head_dim: usize,
    /// F: width of the feed-forward layer.
    pub ffn: usize,
    /// Longest sequence the model is meant for, in tokens.
    pub max_positions: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// ε inside the root of RMSNorm.
    pub norm_eps: f64,
    /// Whether the head is the embedding matrix.
    pub tied: bool,
    /// Whether q, k and v have biases.
    pub qkv_bias: bool,
    /// Whether the output projection of the attention has a bias.
    pub output_bias: bool,
    /// How the rotary frequencies are changed, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
}

/// A change of the rotary frequencies with which a model reads sequences longer than those it was first trained on.
/// [`rotary::frequencies`](crate::kernels::rotary::frequencies) applies it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// All frequencies divided by one factor.
    Linear {
        /// The factor, above 0.
        factor: f64,
    },
    /// Low frequencies divided by a factor, high ones kept, and a ramp between, as Llama 3.1 does.
    Llama3 {
        /// The factor of low frequencies, above 0.
        factor: f64,
        /// Waves longer than `original_positions / low` are low frequencies.
        low: f64,
        /// Waves shorter than `original_positions / high` are high frequencies; above `low`.
        high: f64,
        /// The longest sequence of the first training, in tokens.
        original_positions: usize,
    },
    /// Each frequency divided by its own factor, as GGUF files store the kind above.
    Each {
        /// One factor above 0 for each pair of components, `[D/2]`.
        factors: Vec<f64>,
    },
}

impl RopeScaling {
    fn validate(&self, head_dim: usize) -> Result<()> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let fault = match self {
            Self::Linear { factor } if !positive(*factor) => {
                format!("factor is {factor}; it must be above 0")
            }
            Self::Llama3 {
                factor,
                low,
                high,
                original_positions,
            } if !(positive(*factor)
                && positive(*low)
                && positive(*high)
                && high > low
                && *original_positions > 0) =>
            {
                format!(
                    "factor {factor}, low {low}, high {high} and original positions {original_positions} must be above 0, \
                     and high above low"
                )
            }
            Self::Each { factors } if factors.len() != head_dim / 2 => format!(
                "{} factors were given for heads of {head_dim} components, which have {}",
                factors.len(),
                head_dim / 2
            ),
            Self::Each { factors } if !factors.iter().all(|&factor| positive(factor)) => {
                "a factor is not above 0".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Error::setting("model.rope_scaling", fault))
    }
}

impl ModelConfig {
    /// Refuses sizes that no Llama can have.
    pub fn validate(&self) -> Result<()> {
        for (field, size) in [
            ("vocab", self.vocab),
            ("hidden", self.hidden),
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("ffn", self.ffn),
            ("max_positions", self.max_positions),
        ] {
            if size == 0 {
                return Err(Error::setting(
                    format!("model.{field}"),
                    "is 0; it must be at least 1",
                ));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::setting(
                "model.kv_heads",
                format!("{} does not divide the {} heads", self.kv_heads, self.heads),
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(Error::setting(
                "model.head_dim",
                format!("{} is odd; rotary embeddings turn pairs", self.head_dim),
            ));
        }
        if !(self.norm_eps > 0.0 && self.rope_theta > 1.0) {
            return Err(Error::setting(
                "model.norm_eps, model.rope_theta",
                "must be above 0 and above 1",
            ));
        }
        self.rope_scaling
            .as_ref()
            .map_or(Ok(()), |scaling| scaling.validate(self.head_dim))
    }

    /// Refuses a grid that cannot hold the model, by the axis at fault.
    pub fn check_grid(&self, grid: &Grid) -> Result<()> {
        for (field, size, axis) in [
            ("heads", self.heads, Axis::X),
            ("ffn", self.ffn, Axis::X),
            ("hidden", self.hidden, Axis::Y),
        ] {
            let parts = grid.size(axis);
            if !size.is_multiple_of(parts) {
                return Err(Error::setting(
                    format!("grid.{}", axis.name()),
                    format!(
                        "axis {axis:?} has {parts} ranks, which does not divide {field} = {size} of the model"
                    ),
                ));
            }
        }
        let (heads, parts) = (self.kv_heads, grid.x);
        if !heads.is_multiple_of(parts) && !parts.is_multiple_of(heads) {
            return Err(Error::setting(
                "grid.x",
                format!(
                    "axis X has {parts} ranks, which neither divides kv_heads = {heads} of the model nor is a multiple of it"
                ),
            ));
        }
        Ok(())
    }

    /// Number of neighbours along an axis X of `x` ranks that hold the same key-value head: 1 unless there are more ranks
    /// than heads.
    pub fn kv_copies(&self, x: usize) -> usize {
        (x / self.kv_heads).max(1)
    }

    /// Number of parameters; a tied head counts once.
    pub fn parameters(&self) -> u64 {
        let head = if self.tied {
            0
        } else {
            self.vocab * self.hidden
        };
        self.non_embedding_parameters() + (self.vocab * self.hidden + head) as u64
    }

    /// Number of parameters outside embedding and head.
    pub fn non_embedding_parameters(&self) -> u64 {
        let (query, key) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let attention = 2 * self.hidden * query + 2 * self.hidden * key;
        let qkv_bias = if self.qkv_bias { query + 2 * key } else { 0 };
        let bias = qkv_bias + if self.output_bias { self.hidden } else { 0 };
        let block = attention + bias + 3 * self.hidden * self.ffn + 2 * self.hidden;
        (self.layers * block + self.hidden) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama_2_70b() -> ModelConfig {
        ModelConfig {
            vocab: 32_000,
            hidden: 8192,
            layers: 80,
            heads: 64,
            kv_heads: 8,
            head_dim: 128,
            ffn: 28_672,
            max_positions: 4096,
            rope_theta: 10_000.0,
            norm_eps: 1e-5,
            tied: false,
            qkv_bias: false,
            output_bias: false,
            rope_scaling: None,
        }
    }

    #[test]
    fn counts_the_published_parameters_of_llama_2_70b() {
        assert_eq!(llama_2_70b().parameters(), 68_976_648_192);
    }

    #[test]
    fn refuses_heads_that_do_not_group() {
        let config = ModelConfig {
            kv_heads: 7,
            ..llama_2_70b()
        };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "model.kv_heads: 7 does not divide the 64 heads"
        );
    }
}
