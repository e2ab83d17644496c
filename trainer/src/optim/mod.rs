//! From summed gradients to new weights: the global norm and its clip, the optimizers, the learning rate.
//!
//! Works on a rank's flat f32 shards of [`Param`]; elements are independent, so no communication but the norm's.

mod adamw;
mod clip;
mod rate;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use adamw::{AdamW, Update};
pub use clip::{clip_factor, global_norm, sum_of_squares};
pub use rate::{Decay, RateSchedule};

use crate::error::Result;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;
use crate::reduction::owned;
use crate::schedule::Schedule;

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

    /// Fresh state for the parts of `params` that this rank updates.
    pub fn state(&self, params: &[Param], rank: &Rank, schedule: &Schedule) -> State {
        let zeros = |param: &Param| {
            let owned = owned(param.weight.len(), rank, schedule);
            let len = match self {
                Self::AdamW(_) => owned.len(),
                Self::Sgd => 0,
            };
            Moments {
                first: rank.pool.zeros(len),
                second: rank.pool.zeros(len),
                owned,
            }
        };
        State {
            updates: 0,
            moments: params.iter().map(zeros).collect(),
        }
    }

    /// Updates every owned weight from its gradient times `factor` and counts the update in `state`, which was made for
    /// the same parameters in the same order.
    pub fn update(&self, params: &mut [Param], state: &mut State, rate: f64, factor: f32) {
        state.updates += 1;
        let update = Update {
            update: state.updates,
            rate,
            factor,
        };
        for (param, moments) in params.iter_mut().zip(&mut state.moments) {
            let weight = &mut param.weight[moments.owned.clone()];
            let gradient = &param.gradient[moments.owned.clone()];
            match self {
                Self::AdamW(adamw) => adamw.update(
                    weight,
                    &mut moments.first,
                    &mut moments.second,
                    gradient,
                    &update,
                    param.decays || adamw.decay_norms,
                ),
                Self::Sgd => {
                    let rate = rate as f32;
                    for (weight, gradient) in weight.iter_mut().zip(gradient) {
                        *weight -= rate * (gradient * factor);
                    }
                }
            }
        }
    }
}

/// An optimizer's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Updates made; a step without any kept target makes none.
    pub updates: u64,
    /// One per parameter, in the model's order; no values under [`Optimizer::Sgd`].
    pub moments: Vec<Moments>,
}

/// Running means of the part of one parameter's shard that this rank updates.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// The part: all of the shard, or the rank's share along Data if the optimizer is sharded.
    pub owned: Range<usize>,
    /// m: mean of gradients, `[owned]`.
    pub first: Buffer,
    /// v: mean of squared gradients, `[owned]`.
    pub second: Buffer,
}
