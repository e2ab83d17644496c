//! The tensors made by `tests/fixtures/make_llama.py`, and the models they describe.

use std::collections::HashMap;
use std::path::Path;

use axmem_trainer::{Batch, Llama, ModelConfig, Rank, Result};
use candle_core::{DType, Device, Tensor};

pub(crate) struct Fixture {
    tensors: HashMap<String, Tensor>,
    pub(crate) config: ModelConfig,
}

impl Fixture {
    /// `tied`, `untied` or `bias`.
    pub(crate) fn load(name: &str) -> Self {
        let base = ModelConfig {
            vocab: 61,
            hidden: 32,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            ffn: 48,
            max_positions: 128,
            rope_theta: 10_000.0,
            norm_eps: 1e-5,
            tied: name != "untied",
            qkv_bias: false,
            output_bias: false,
            rope_scaling: None,
        };
        let config = match name {
            "bias" => ModelConfig {
                layers: 1,
                kv_heads: 1,
                head_dim: 12,
                qkv_bias: true,
                output_bias: true,
                ..base
            },
            _ => base,
        };
        Self {
            tensors: load(&format!("llama_{name}.safetensors")),
            config,
        }
    }

    pub(crate) fn values(&self, name: &str) -> Vec<f32> {
        values(&self.tensors, name)
    }

    /// The model with the fixture's weights; a rank takes its own part.
    pub(crate) fn model(&self, rank: &Rank) -> Result<Llama> {
        Llama::from_values(&self.config, rank, |name, [_, columns]| {
            let weight = self.values(&format!("weight.{name}"));
            Box::new(move |row, column| weight[row * columns + column])
        })
    }

    /// Both documents, with the fixture's kept targets.
    pub(crate) fn batch(&self) -> Batch {
        Batch {
            ids: self.values("ids").iter().map(|&id| id as u32).collect(),
            segments: self.values("lengths").iter().map(|&n| n as usize).collect(),
            keep: self
                .values("keep")
                .iter()
                .map(|&keep| keep != 0.0)
                .collect(),
        }
    }
}

pub(crate) fn load(file: &str) -> HashMap<String, Tensor> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(file);
    candle_core::safetensors::load(path, &Device::Cpu).expect("fixture")
}

pub(crate) fn values(tensors: &HashMap<String, Tensor>, name: &str) -> Vec<f32> {
    tensors[name]
        .to_dtype(DType::F32)
        .and_then(|tensor| tensor.flatten_all()?.to_vec1())
        .expect(name)
}

/// The ids of each document of a batch.
pub(crate) fn documents(batch: &Batch) -> Vec<&[u32]> {
    let mut start = 0;
    batch
        .segments
        .iter()
        .map(|&length| {
            start += length;
            &batch.ids[start - length..start]
        })
        .collect()
}

/// ‖a - b‖ / ‖b‖
pub(crate) fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let difference = square(&mut a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b)));
    difference / square(&mut b.iter().map(|&b| f64::from(b)))
}
