//! Makes the parameters of a Llama under their published names, and the layers that point to them.

use crate::config::ModelConfig;
use crate::grid::Axis;
use crate::kernels::attention::Heads;
use crate::layers::{Attention, Block, Embedding, Linear, Mlp, RmsNorm};
use crate::param::{Param, Placement};
use crate::rank::Rank;

/// Makes parameters and the layers that point to them.
pub(super) struct Builder<'a, F> {
    pub(super) config: &'a ModelConfig,
    pub(super) rank: &'a Rank,
    pub(super) values: F,
    pub(super) params: Vec<Param>,
}

impl<'v, F: Fn(&str, [usize; 2]) -> Box<dyn Fn(usize, usize) -> f32 + 'v>> Builder<'_, F> {
    /// The embedding, `[V, H]`.
    pub(super) fn embedding(&mut self) -> Embedding {
        Embedding {
            weight: self.vocabulary("model.embed_tokens.weight"),
        }
    }

    /// A matrix with one row for each id, `[V, H]`.
    pub(super) fn vocabulary(&mut self, name: &str) -> usize {
        let shape = [self.config.vocab, self.config.hidden];
        self.matrix(name, shape, Placement::NORMAL)
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2], placement: Placement) -> usize {
        let value = (self.values)(name, shape);
        self.params
            .push(Param::new(name, shape, placement, self.rank, value));
        self.params.len() - 1
    }

    /// A gain, `[1, H]`.
    pub(super) fn norm(&mut self, prefix: &str) -> RmsNorm {
        RmsNorm {
            gain: self.matrix(
                &format!("{prefix}.weight"),
                [1, self.config.hidden],
                Placement::HIDDEN,
            ),
            eps: self.config.norm_eps,
        }
    }

    /// A layer with in-features over Y and out-features over X, each part of these on `copies` ranks.
    fn normal(&mut self, prefix: &str, shape: [usize; 2], bias: bool, copies: usize) -> Linear {
        self.linear(
            prefix,
            shape,
            Placement::NORMAL.copied(copies),
            Axis::Y,
            bias.then_some(Placement::FEATURES.copied(copies)),
        )
    }

    /// A layer with in-features over X and out-features over Y.
    fn transposed(&mut self, prefix: &str, shape: [usize; 2], bias: bool) -> Linear {
        self.linear(
            prefix,
            shape,
            Placement::TRANSPOSED,
            Axis::X,
            bias.then_some(Placement::HIDDEN),
        )
    }

    fn linear(
        &mut self,
        prefix: &str,
        shape: [usize; 2],
        placement: Placement,
        in_axis: Axis,
        bias: Option<Placement>,
    ) -> Linear {
        Linear {
            weight: self.matrix(&format!("{prefix}.weight"), shape, placement),
            bias: bias
                .map(|placement| self.matrix(&format!("{prefix}.bias"), [1, shape[0]], placement)),
            in_axis,
        }
    }

    /// Block `index` of the stream.
    pub(super) fn block(&mut self, index: usize) -> Block {
        let config = self.config;
        let (hidden, ffn) = (config.hidden, config.ffn);
        let (bias, output_bias) = (config.qkv_bias, config.output_bias);
        let (query, key) = (
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
        );
        let at = |part: &str| format!("model.layers.{index}.{part}");
        let x = self.rank.grid.x;
        let copies = config.kv_copies(x);
        Block {
            attention_norm: self.norm(&at("input_layernorm")),
            attention: Attention {
                query: self.normal(&at("self_attn.q_proj"), [query, hidden], bias, 1),
                key: self.normal(&at("self_attn.k_proj"), [key, hidden], bias, copies),
                value: self.normal(&at("self_attn.v_proj"), [key, hidden], bias, copies),
                output: self.transposed(&at("self_attn.o_proj"), [hidden, query], output_bias),
                heads: Heads {
                    query: config.heads / x,
                    key_value: (config.kv_heads / x).max(1),
                    dim: config.head_dim,
                },
            },
            mlp_norm: self.norm(&at("post_attention_layernorm")),
            mlp: Mlp {
                gate: self.normal(&at("mlp.gate_proj"), [ffn, hidden], false, 1),
                up: self.normal(&at("mlp.up_proj"), [ffn, hidden], false, 1),
                down: self.transposed(&at("mlp.down_proj"), [hidden, ffn], false),
            },
        }
    }
}
