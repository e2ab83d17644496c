//! What is recorded of a step, and how much arithmetic it was.

use serde::{Deserialize, Serialize};

use crate::batch::Row;
use crate::comm::{Ledger, Line};
use crate::config::ModelConfig;

/// The record of one training step; the same on every rank but for seconds and memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The step, counted from 1.
    pub step: u64,
    /// Mean loss over the kept targets of the global batch, in nats; 0 if there were none.
    pub loss: f64,
    /// Kept targets of the global batch.
    pub kept_tokens: u64,
    /// Token ids of the global batch.
    pub tokens: u64,
    /// Learning rate.
    pub rate: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Seconds that this rank spent in the step.
    pub seconds: f64,
    /// Floating-point operations of the model's matrix products (see [`model_flops`]).
    pub model_flops: u64,
    /// Seconds of the step in which this rank waited for communication.
    pub exposed: Exposed,
    /// The most bytes that this rank's pool had on loan at one time, since its start.
    pub peak_bytes: u64,
}

/// Seconds waited for communication that no computation hid, by axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exposed {
    /// Along X, copies of key-value heads included.
    pub x: f64,
    /// Along Y.
    pub y: f64,
    /// Along Z.
    pub z: f64,
    /// Along Data.
    pub data: f64,
}

impl Exposed {
    /// What a ledger has recorded so far.
    pub fn of(ledger: &Ledger) -> Self {
        let mut exposed = Self::default();
        for (line, seconds) in ledger.exposed() {
            *match line {
                Line::X | Line::Replicas => &mut exposed.x,
                Line::Y => &mut exposed.y,
                Line::Z => &mut exposed.z,
                Line::Data => &mut exposed.data,
            } += seconds;
        }
        exposed
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            x: self.x - earlier.x,
            y: self.y - earlier.y,
            z: self.z - earlier.z,
            data: self.data - earlier.data,
        }
    }
}

/// Operations (a multiplication and an addition are two) of the matrix products of a step's forward and backward on
/// `rows` with `kept` targets: projections for every token, attention for every pair of a position and one it sees, the
/// head for every kept target; the backward is twice the forward. Recomputation is not model arithmetic.
pub fn model_flops(config: &ModelConfig, rows: &[Row], kept: u64) -> u64 {
    let (query, key) = (
        config.heads * config.head_dim,
        config.kv_heads * config.head_dim,
    );
    let projections =
        2 * config.hidden * query + 2 * config.hidden * key + 3 * config.hidden * config.ffn;
    let lengths = rows.iter().flat_map(|row| &row.segments);
    let (mut tokens, mut pairs) = (0, 0);
    for &length in lengths {
        tokens += length as u64;
        pairs += length as u64 * (length as u64 + 1) / 2;
    }
    let layer = tokens * projections as u64 + pairs * 2 * query as u64;
    let head = kept * (config.hidden * config.vocab) as u64;
    let forward = 2 * (config.layers as u64 * layer + head);
    3 * forward
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flops_are_counted_product_by_product() {
        let config = ModelConfig {
            vocab: 11,
            hidden: 4,
            layers: 2,
            heads: 2,
            kv_heads: 1,
            head_dim: 2,
            ffn: 5,
            max_positions: 8,
            rope_theta: 1e4,
            norm_eps: 1e-5,
            tied: true,
            qkv_bias: false,
            output_bias: false,
            rope_scaling: None,
        };
        // Documents of 3 and 2 tokens, of which 3 targets count.
        let row = Row {
            ids: vec![0; 5],
            segments: vec![3, 2],
            masked: false,
        };
        let multiply_adds = |m: u64, k: u64, n: u64| 2 * m * k * n;
        let projections = multiply_adds(5, 4, 4) * 2 // query, output
            + multiply_adds(5, 4, 2) * 2 // key, value
            + multiply_adds(5, 4, 5) * 3; // gate, up, down
        let attention: u64 = [1, 2, 3, 1, 2] // positions seen by each token
            .iter()
            .map(|&seen| 2 * (multiply_adds(1, 2, seen) + multiply_adds(1, seen, 2)))
            .sum();
        let forward = 2 * (projections + attention) + multiply_adds(3, 4, 11);
        assert_eq!(model_flops(&config, &[row], 3), 3 * forward);
    }
}
