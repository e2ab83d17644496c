//! From summed gradients to new weights: the global norm and its clip, the optimizers, the learning rate.
//!
//! Works on a rank's flat f32 shards of [`Param`]; elements are independent, so no communication but the norm's.

mod adamw;
mod clip;
mod rate;

use serde::{Deserialize, Serialize};

pub use adamw::{AdamW, Update};
pub use clip::{clip_factor, global_norm, sum_of_squares};
pub use rate::{Decay, RateSchedule};

use crate::error::Result;
use crate::param::Param;

/// Which optimizer, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// `AdamW`.
    AdamW(AdamW),
    /// Plain gradient descent without momentum or decay: its steps show the gradients of two grids undistorted.
    Sgd,
}

impl Optimizer {
    /// Refuses settings with which the optimizer is not defined.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::AdamW(adamw) => adamw.validate(),
            Self::Sgd => Ok(()),
        }
    }

    /// Fresh state for `params`.
    pub fn state(&self, params: &[Param]) -> State {
        let zeros = |param: &Param| match self {
            Self::AdamW(_) => Moments {
                first: vec![0.0; param.weight.len()],
                second: vec![0.0; param.weight.len()],
            },
            Self::Sgd => Moments::default(),
        };
        State {
            updates: 0,
            moments: params.iter().map(zeros).collect(),
        }
    }

    /// Updates every weight from its gradient times `factor` and counts the update in `state`, which was made for the
    /// same parameters in the same order.
    pub fn update(&self, params: &mut [Param], state: &mut State, rate: f64, factor: f32) {
        state.updates += 1;
        let update = Update {
            update: state.updates,
            rate,
            factor,
        };
        for (param, moments) in params.iter_mut().zip(&mut state.moments) {
            match self {
                Self::AdamW(adamw) => adamw.update(
                    &mut param.weight,
                    &mut moments.first,
                    &mut moments.second,
                    &param.gradient,
                    &update,
                    param.decays || adamw.decay_norms,
                ),
                Self::Sgd => {
                    let rate = rate as f32;
                    for (weight, gradient) in param.weight.iter_mut().zip(&param.gradient) {
                        *weight -= rate * (gradient * factor);
                    }
                }
            }
        }
    }
}

/// An optimizer's memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Updates made; a step without any kept target makes none.
    pub updates: u64,
    /// One per parameter, in the model's order; empty vectors under [`Optimizer::Sgd`].
    pub moments: Vec<Moments>,
}

/// Running means of one parameter's shard, as long as its weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// m: mean of gradients.
    pub first: Vec<f32>,
    /// v: mean of squared gradients.
    pub second: Vec<f32>,
}
