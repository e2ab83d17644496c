//! The engine: one training step from the rows of a global batch to new weights, on any grid.
//!
//! Owns the order of a step and what is summed over which ranks; layers, collectives and formulas of optimizers live
//! elsewhere. The loss is the mean over the kept targets of the *global* batch: these are counted over all ranks and
//! micro-batches before the first forward, every gradient is taken of the sum times 1/count, and gradients are then
//! only summed, never averaged. So neither the micro-batch nor the grid changes what is computed.

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::batch::Row;
use crate::checkpoint::{self, Description, Field, Shard, Target};
use crate::error::{Error, Result};
use crate::goldfish::Goldfish;
use crate::llama::{Batch, Llama};
use crate::metrics::{Exposed, StepRecord, model_flops};
use crate::optim::{Optimizer, State, clip_factor, global_norm};
use crate::param::Block;
use crate::rank::Rank;
use crate::reduction::{Reduction, gather_updates};
use crate::schedule::Schedule;

/// How a model is trained; the same on every rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// From gradients to weights.
    pub optimizer: Optimizer,
    /// Largest norm of the gradient that is applied; no limit if absent.
    pub clip: Option<f64>,
    /// Rows that a rank runs forward and backward at a time; changes memory and speed, not the result.
    pub micro_batch: usize,
    /// How a step runs on the grid; changes memory and speed, and only `row_chunks` the last digits of a result.
    pub schedule: Schedule,
    /// Which targets of rows marked `masked` count; all if absent.
    pub goldfish: Option<Goldfish>,
}

impl TrainConfig {
    /// Refuses settings that cannot work.
    pub fn validate(&self) -> Result<()> {
        self.optimizer.validate()?;
        self.schedule.validate()?;
        if self.micro_batch == 0 {
            return Err(Error::setting(
                "micro_batch",
                "is 0; at least one row runs at a time",
            ));
        }
        match self.clip {
            Some(limit) if !(limit > 0.0 && limit.is_finite()) => Err(Error::setting(
                "clip",
                format!("{limit} is not a positive number; leave it out for no limit"),
            )),
            _ => Ok(()),
        }
    }

    /// For each id of a row, whether it is a target that counts.
    fn keep(&self, row: &Row) -> Vec<bool> {
        let goldfish = self.goldfish.as_ref().filter(|_| row.masked);
        row.documents()
            .flat_map(|ids| match goldfish {
                Some(goldfish) => goldfish.keep(ids),
                None => (0..ids.len()).map(|i| i > 0).collect(),
            })
            .collect()
    }
}

/// A model in training on one rank.
#[derive(Debug)]
pub struct Trainer {
    llama: Llama,
    config: TrainConfig,
    state: State,
    step: u64,
}

impl Trainer {
    /// Starts training at step 0 with a fresh optimizer.
    pub fn new(rank: &Rank, llama: Llama, config: TrainConfig) -> Result<Self> {
        config.validate()?;
        let state = config
            .optimizer
            .state(llama.params(), rank, &config.schedule);
        Ok(Self {
            llama,
            config,
            state,
            step: 0,
        })
    }

    /// The model.
    pub fn llama(&self) -> &Llama {
        &self.llama
    }

    /// The settings.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Steps made.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// The optimizer's memory.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// One step on the rows of a global batch, given whole to every rank. Collective.
    ///
    /// A batch without any kept target makes no update: its loss is 0, its gradient zero, and it counts as a step.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for a loss or norm that is not finite, before any weight has changed; [`Error::Data`] for
    /// rows that do not fit the model.
    pub fn step(&mut self, rank: &Rank, rows: &[Row], rate: f64) -> Result<StepRecord> {
        let start = Instant::now();
        let exposed = Exposed::of(&rank.ledger);
        let step = self.step + 1;
        let keep = |row: &Row| self.config.keep(row);
        let batches = micro_batches(rank, &self.llama, rows, self.config.micro_batch, keep)?;
        let kept_tokens = count_kept(rank, &batches)?;
        self.llama.forget_gradients();
        let (mut loss, mut grad_norm) = (0.0, 0.0);
        if kept_tokens > 0 {
            let inverse_count = 1.0 / kept_tokens as f64;
            let mut sum = 0.0;
            let schedule = &self.config.schedule;
            let mut reduction = Reduction::new(schedule, self.llama.contributions());
            for (index, batch) in batches.iter().enumerate() {
                let last = index + 1 == batches.len();
                let reduction = last.then_some(&mut reduction);
                sum += self
                    .llama
                    .accumulate(rank, batch, inverse_count, schedule, reduction)?;
            }
            loss = sum_over_rows(rank, sum)? * inverse_count;
            finite(step, "loss", loss)?;
            let params = self.llama.params_mut();
            reduction.finish(rank, params)?;
            grad_norm = global_norm(rank, params, schedule)?;
            finite(step, "gradient norm", grad_norm)?;
            let factor = clip_factor(grad_norm, self.config.clip);
            self.config
                .optimizer
                .update(params, &mut self.state, rate, factor);
            gather_updates(rank, params, schedule)?;
        }
        self.step = step;
        Ok(StepRecord {
            step,
            loss,
            kept_tokens,
            tokens: rows.iter().map(|row| row.ids.len() as u64).sum(),
            rate,
            grad_norm,
            seconds: start.elapsed().as_secs_f64(),
            model_flops: model_flops(self.llama.config(), rows, kept_tokens),
            exposed: Exposed::of(&rank.ledger).since(exposed),
            peak_bytes: rank.pool.peak_bytes() as u64,
        })
    }

    /// The sum of the losses over all targets of `rows`, none masked, and their number: the validation loss is their
    /// quotient. Collective.
    pub fn evaluate(&self, rank: &Rank, rows: &[Row]) -> Result<(f64, u64)> {
        evaluate(&self.llama, rank, rows, self.config.micro_batch)
    }

    /// Saves weights, optimizer and step as the checkpoint `folder`. Collective.
    pub fn save(&self, rank: &Rank, folder: &Path) -> Result<()> {
        let fields = self.fields();
        let sharded = self.config.schedule.shard_optimizer;
        let parts = self.owned_parts();
        let shards: Vec<Shard<'_>> = self
            .llama
            .params()
            .iter()
            .zip(&self.state.moments)
            .zip(&parts)
            .map(|((param, moments), block)| {
                let weight = &param.weight[moments.owned.clone()];
                let all = [weight, &moments.first, &moments.second];
                Shard {
                    name: &param.name,
                    shape: param.shape,
                    block,
                    owned: param.placement.counts(rank.coord) && (sharded || rank.coord.data == 0),
                    fields: all.into_iter().take(fields.len()).collect(),
                }
            })
            .collect();
        let description = Description {
            step: self.step,
            updates: self.state.updates,
            model: self.llama.config().clone(),
            optimizer: Some(self.config.optimizer),
            grid: rank.grid.clone(),
        };
        checkpoint::save(rank, folder, &description, fields, &shards)
    }

    /// Goes on from the checkpoint `folder`, written on any grid: replaces weights, optimizer and step. The next step is
    /// the one an unbroken run would make. Collective.
    pub fn load(&mut self, rank: &Rank, folder: &Path) -> Result<()> {
        let (fields, model) = (self.fields(), self.llama.config().clone());
        let parts = self.owned_parts();
        let mut targets = Vec::new();
        for ((param, moments), owned) in self
            .llama
            .params_mut()
            .iter_mut()
            .zip(&mut self.state.moments)
            .zip(&parts)
        {
            let (name, shape) = (&param.name, param.shape);
            targets.push(Target {
                name,
                shape,
                block: &param.block,
                fields: vec![(Field::Weight, &mut param.weight[..])],
            });
            let state = [&mut moments.first, &mut moments.second];
            let values = state.into_iter().map(|values| &mut values[..]);
            targets.push(Target {
                name,
                shape,
                block: owned,
                fields: fields[1..].iter().copied().zip(values).collect(),
            });
        }
        let index = checkpoint::load(rank, folder, &model, &mut targets)?;
        self.step = index.description.step;
        self.state.updates = index.description.updates;
        Ok(())
    }

    /// What this rank updates and saves of each parameter.
    fn owned_parts(&self) -> Vec<Block> {
        let params = self.llama.params().iter().zip(&self.state.moments);
        params
            .map(|(param, moments)| param.block.part(&moments.owned))
            .collect()
    }

    /// What a checkpoint holds of each element.
    fn fields(&self) -> &'static [Field] {
        match self.config.optimizer {
            Optimizer::AdamW(_) => &[Field::Weight, Field::FirstMoment, Field::SecondMoment],
            Optimizer::Sgd => &[Field::Weight],
        }
    }
}

/// [`Trainer::evaluate`] for a model that is not in training; `micro_batch` rows run at a time.
pub fn evaluate(
    llama: &Llama,
    rank: &Rank,
    rows: &[Row],
    micro_batch: usize,
) -> Result<(f64, u64)> {
    let unmasked = |row: &Row| {
        row.documents()
            .flat_map(|ids| (0..ids.len()).map(|i| i > 0))
            .collect()
    };
    let batches = micro_batches(rank, llama, rows, micro_batch, unmasked)?;
    let mut sum = 0.0;
    for batch in &batches {
        sum += llama.loss(rank, batch)?;
    }
    Ok((sum_over_rows(rank, sum)?, count_kept(rank, &batches)?))
}

/// This rank's rows, cut into micro-batches; every rank has the same number of them.
///
/// Z and Data split the global batch, filled up with empty rows to a multiple of z * d, into consecutive shares, and each share
/// is cut into micro-batches. The empty rows cost nothing, but a micro-batch of none but them still takes part in the
/// collectives.
fn micro_batches(
    rank: &Rank,
    llama: &Llama,
    rows: &[Row],
    micro_batch: usize,
    keep: impl Fn(&Row) -> Vec<bool>,
) -> Result<Vec<Batch>> {
    if let Some(at) = rows
        .iter()
        .position(|row| row.segments.iter().sum::<usize>() != row.ids.len())
    {
        return Err(Error::Data(format!(
            "row {at} of the batch has {} ids, but its documents have {}",
            rows[at].ids.len(),
            rows[at].segments.iter().sum::<usize>()
        )));
    }
    // All rows, so that every rank refuses a bad one, before any of them waits for another.
    for row in rows {
        llama.check(&row.ids, &row.segments)?;
    }
    let shares = rank.grid.z * rank.grid.data;
    let place = rank.coord.data * rank.grid.z + rank.coord.z;
    let share = rows.len().div_ceil(shares);
    let bound = |row: usize| row.min(rows.len());
    let own = &rows[bound(place * share)..bound((place + 1) * share)];
    Ok((0..share.div_ceil(micro_batch))
        .map(|micro| {
            let mut batch = Batch::default();
            for row in own.iter().skip(micro * micro_batch).take(micro_batch) {
                batch.ids.extend_from_slice(&row.ids);
                batch.segments.extend_from_slice(&row.segments);
                batch.keep.extend(keep(row));
            }
            batch
        })
        .collect())
}

/// Kept targets of all ranks' micro-batches.
fn count_kept(rank: &Rank, batches: &[Batch]) -> Result<u64> {
    let own = batches
        .iter()
        .flat_map(|batch| &batch.keep)
        .filter(|kept| **kept)
        .count();
    let over_z = rank.groups.z.sum_count(own as u64)?;
    rank.groups.data.sum_count(over_z)
}

/// The sum over the ranks that hold different rows.
fn sum_over_rows(rank: &Rank, value: f64) -> Result<f64> {
    let over_z = rank.groups.z.sum_f64(value)?;
    rank.groups.data.sum_f64(over_z)
}

/// Refuses to go on with a number that is not finite.
fn finite(step: u64, what: &'static str, value: f64) -> Result<()> {
    if value.is_finite() {
        Ok(())
    } else {
        Err(Error::NotFinite { step, what, value })
    }
}
