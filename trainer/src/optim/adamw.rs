//! `AdamW` (Loshchilov and Hutter, 2019): Adam with bias correction and decoupled weight decay, over flat f32 shards in
//! one pass. Operations and their order are those of `PyTorch`'s single-tensor CPU implementation.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Elements per task; elementwise work, so any split gives the same bits.
const CHUNK: usize = 1 << 14;

/// Settings of `AdamW`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamW {
    /// Decay of the running mean of gradients.
    pub beta1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, times the rate at each update.
    pub weight_decay: f64,
    /// Whether norm gains and biases decay like the matrices.
    pub decay_norms: bool,
}

impl AdamW {
    /// Refuses settings with which `AdamW` is not defined.
    pub fn validate(&self) -> Result<()> {
        for (field, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::setting(
                    format!("optimizer.adamw.{field}"),
                    format!("{beta} is not in [0, 1)"),
                ));
            }
        }
        for (field, value) in [("eps", self.eps), ("weight_decay", self.weight_decay)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::setting(
                    format!("optimizer.adamw.{field}"),
                    format!("{value} is not a number of at least 0"),
                ));
            }
        }
        Ok(())
    }

    /// One update of a shard; all four slices have one length. `update` counts the updates of the run from 1, `factor`
    /// is the clip factor of the gradient, and `decays` says whether weight decay applies to this parameter.
    pub fn update(
        &self,
        weight: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        gradient: &[f32],
        step: &Update,
        decays: bool,
    ) {
        let update = step.update as f64;
        let step_size = (step.rate / (1.0 - self.beta1.powf(update))) as f32;
        let correction = (1.0 - self.beta2.powf(update)).sqrt() as f32;
        let shrink = if decays {
            (1.0 - step.rate * self.weight_decay) as f32
        } else {
            1.0
        };
        let (mean_weight, square_decay) = ((1.0 - self.beta1) as f32, self.beta2 as f32);
        let (square_weight, eps) = ((1.0 - self.beta2) as f32, self.eps as f32);
        let factor = step.factor;
        weight
            .par_chunks_mut(CHUNK)
            .zip(first.par_chunks_mut(CHUNK))
            .zip(second.par_chunks_mut(CHUNK))
            .zip(gradient.par_chunks(CHUNK))
            .for_each(|(((weight, first), second), gradient)| {
                for (((w, m), v), g) in weight.iter_mut().zip(first).zip(second).zip(gradient) {
                    let g = g * factor;
                    *m += (g - *m) * mean_weight;
                    *v = *v * square_decay + g * g * square_weight;
                    let denominator = v.sqrt() / correction + eps;
                    *w = *w * shrink - step_size * (*m / denominator);
                }
            });
    }
}

/// What one update of the run has in common for all parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Number of this update, counted from 1.
    pub update: u64,
    /// Learning rate.
    pub rate: f64,
    /// Factor of the gradient (see [`crate::optim::clip_factor`]).
    pub factor: f32,
}
