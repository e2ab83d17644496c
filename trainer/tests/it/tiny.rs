//! A tiny Llama, rows for it, and whole tensors put together from the shards of a grid.

use std::collections::BTreeMap;

use axmem_trainer::random::Stream;
use axmem_trainer::{
    AdamW, Buffer, Goldfish, Hash, Llama, ModelConfig, Optimizer, Param, Rank, Result, Row,
    Schedule, TrainConfig, Trainer,
};

/// A model with grouped-query attention and a tied head.
pub(crate) fn config() -> ModelConfig {
    ModelConfig {
        vocab: 31,
        hidden: 12,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        ffn: 20,
        max_positions: 32,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: true,
        qkv_bias: false,
        output_bias: false,
        rope_scaling: None,
    }
}

/// `AdamW`, clip 1, two rows at a time, no Goldfish.
pub(crate) fn settings() -> TrainConfig {
    TrainConfig {
        optimizer: Optimizer::AdamW(AdamW {
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            decay_norms: false,
        }),
        clip: Some(1.0),
        micro_batch: 2,
        schedule: Schedule::default(),
        goldfish: None,
    }
}

/// [`settings`] with a Goldfish mask of k = 2.
pub(crate) fn goldfish_settings(h: usize) -> TrainConfig {
    TrainConfig {
        goldfish: Some(Goldfish::new(2, h, Hash::Portable { key: 0 }).unwrap()),
        ..settings()
    }
}

/// A trainer of the tiny model at step 0.
pub(crate) fn trainer(rank: &Rank, settings: TrainConfig) -> Result<Trainer> {
    Trainer::new(rank, Llama::initialise(&config(), rank, 1)?, settings)
}

/// Ids of a document of `len` tokens.
pub(crate) fn ids(name: &str, len: usize) -> Vec<u32> {
    let stream = Stream::new(0, name);
    (0..len as u64)
        .map(|i| (stream.bits(i) % 31) as u32)
        .collect()
}

/// Rows of one document each, with the given lengths.
pub(crate) fn rows(name: &str, lengths: &[usize]) -> Vec<Row> {
    lengths
        .iter()
        .enumerate()
        .map(|(i, &len)| Row::document(ids(&format!("{name} {i}"), len), true))
        .collect()
}

/// Elements of whole tensors by name.
pub(crate) type Tensors = BTreeMap<String, Vec<f32>>;

/// Whole tensors from every rank's shards: `pick` chooses weights or gradients.
pub(crate) fn whole(params_by_rank: &[Vec<Param>], pick: impl Fn(&Param) -> &Buffer) -> Tensors {
    let mut tensors = Tensors::new();
    for param in params_by_rank.iter().flatten() {
        let values = tensors
            .entry(param.name.clone())
            .or_insert_with(|| vec![f32::NAN; param.shape[0] * param.shape[1]]);
        for (position, value) in param.block.flat.clone().zip(pick(param).iter()) {
            if let Some((row, column)) = param.block.element(position) {
                values[row * param.shape[1] + column] = *value;
            }
        }
    }
    tensors
}

/// The largest ‖a - b‖ / ‖b‖ over the tensors, with its name.
pub(crate) fn distance(a: &Tensors, b: &Tensors) -> (f64, String) {
    assert!(a.keys().eq(b.keys()));
    a.iter()
        .map(|(name, values)| {
            let (mut difference, mut size) = (0.0, 0.0);
            for (x, y) in values.iter().zip(&b[name]) {
                difference += f64::from(x - y).powi(2);
                size += f64::from(*y).powi(2);
            }
            ((difference / size).sqrt(), name.clone())
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap()
}
