//! The parameters of a model by name: sizes of a rank's blocks, and the order in which a step asks for them.

use std::collections::VecDeque;

use crate::config::ModelConfig;
use crate::grid::Grid;
use crate::schedule::Recompute;

/// Elements of each parameter's block, in the order of the model.
pub(super) struct Sizes {
    pub(super) h: usize,
    pub(super) q: usize,
    pub(super) k: usize,
    pub(super) f: usize,
    pub(super) v: usize,
    pub(super) blocks: usize,
    pub(super) tied: bool,
    pub(super) qkv_bias: bool,
    pub(super) output_bias: bool,
}

/// The parameters by name; a block's carry its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Weight {
    Embedding,
    Head,
    FinalNorm,
    Block(usize, Part),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    AttentionNorm,
    Query,
    Key,
    Value,
    Output,
    QueryBias,
    KeyBias,
    ValueBias,
    OutputBias,
    MlpNorm,
    Gate,
    Up,
    Down,
}

use Part::{
    AttentionNorm, Down, Gate, Key, KeyBias, MlpNorm, Output, OutputBias, Query, QueryBias, Up,
    Value, ValueBias,
};

impl Sizes {
    pub(super) fn new(model: &ModelConfig, grid: &Grid) -> Self {
        Self {
            h: model.hidden / grid.y,
            q: model.heads * model.head_dim / grid.x,
            k: model.kv_heads.div_ceil(grid.x) * model.head_dim,
            f: model.ffn / grid.x,
            v: model.vocab.div_ceil(grid.x),
            blocks: model.layers,
            tied: model.tied,
            qkv_bias: model.qkv_bias,
            output_bias: model.output_bias,
        }
    }

    pub(super) fn block(&self, weight: Weight) -> usize {
        let Self { h, q, k, f, v, .. } = *self;
        match weight {
            Weight::Embedding | Weight::Head => v * h,
            Weight::FinalNorm => h,
            Weight::Block(_, part) => match part {
                AttentionNorm | MlpNorm | OutputBias => h,
                Query | Output => q * h,
                Key | Value => k * h,
                QueryBias => q,
                KeyBias | ValueBias => k,
                Gate | Up | Down => f * h,
            },
        }
    }

    /// All parameters in the order of the model; a tied head is the embedding.
    pub(super) fn all(&self) -> Vec<Weight> {
        let mut all = vec![Weight::Embedding];
        for block in 0..self.blocks {
            let parts = [
                AttentionNorm,
                Query,
                QueryBias,
                Key,
                KeyBias,
                Value,
                ValueBias,
                Output,
                OutputBias,
                MlpNorm,
                Gate,
                Up,
                Down,
            ];
            let real = parts.into_iter().filter(|part| match part {
                QueryBias | KeyBias | ValueBias => self.qkv_bias,
                OutputBias => self.output_bias,
                _ => true,
            });
            all.extend(real.map(|part| Weight::Block(block, part)));
        }
        all.push(Weight::FinalNorm);
        if !self.tied {
            all.push(Weight::Head);
        }
        all
    }

    fn recompute_order(&self, block: usize) -> Vec<Weight> {
        let mut parts = vec![AttentionNorm, Query, Key, Value];
        if self.qkv_bias {
            parts.extend([QueryBias, KeyBias, ValueBias]);
        }
        parts.push(Output);
        if self.output_bias {
            parts.push(OutputBias);
        }
        parts.extend([MlpNorm, Gate, Up]);
        parts
            .into_iter()
            .map(|part| Weight::Block(block, part))
            .collect()
    }

    /// Weights in the order in which a step asks for them.
    pub(super) fn order(&self, recompute: Recompute) -> VecDeque<Weight> {
        let mut order = VecDeque::from([Weight::Embedding]);
        for block in 0..self.blocks {
            order.extend(self.recompute_order(block));
            order.push_back(Weight::Block(block, Down));
        }
        order.extend([Weight::FinalNorm, Weight::Head, Weight::FinalNorm]);
        for block in (0..self.blocks).rev() {
            match recompute {
                Recompute::Block => {
                    order.extend(self.recompute_order(block));
                    order.push_back(Weight::Block(block, Down));
                }
                Recompute::None => order.extend(
                    [
                        MlpNorm,
                        Down,
                        Gate,
                        Up,
                        AttentionNorm,
                        Output,
                        Query,
                        Key,
                        Value,
                    ]
                    .map(|part| Weight::Block(block, part)),
                ),
            }
        }
        order
    }
}
