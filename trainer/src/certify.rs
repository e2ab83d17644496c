//! Whether a grid trains what one rank trains: a small copy of a model is trained on both, and every difference has
//! a limit.
//!
//! Owns the shrinking of a model, the runs that are compared and the limits; what is trained is decided by the
//! engine alone.

use serde::{Deserialize, Serialize};

use crate::batch::Row;
use crate::comm::Collective;
use crate::config::ModelConfig;
use crate::engine::{TrainConfig, Trainer};
use crate::error::Result;
use crate::grid::Grid;
use crate::llama::Llama;
use crate::optim::{Optimizer, RateSchedule};
use crate::param::Param;
use crate::random::Stream;
use crate::rank::Rank;
use crate::schedule::{Overlap, Schedule};

/// Largest distance of a gradient of the first step, relative to its norm.
const GRADIENT: f64 = 1e-5;
/// Largest distance of a weight after the steps of plain gradient descent, relative to its norm.
const WEIGHT: f64 = 1e-4;
/// Largest relative difference of a loss.
const LOSS: f64 = 1e-5;
/// Largest relative difference of a gradient norm.
const NORM: f64 = 1e-4;
/// Rate of plain gradient descent: large enough for the weights to move by their own size.
const DESCENT: f64 = 0.1;
/// Steps of the study's optimizer that are compared, and its highest rate: differences of rounding grow with both, on one rank
/// too.
const COMPARED: u64 = 20;
const HIGHEST_RATE: f64 = 1e-3;
/// Seed of weights and ids.
const SEED: u64 = 0;

/// What is certified.
#[derive(Clone, Debug)]
pub struct Study {
    /// The model, of any size; see [`shrink`].
    pub model: ModelConfig,
    /// How it is trained.
    pub train: TrainConfig,
    /// The rate of the steps.
    pub rate: RateSchedule,
    /// Number of steps.
    pub steps: u64,
}

/// What was compared, and with what outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// The grid.
    pub grid: Grid,
    /// How its steps ran.
    pub schedule: Schedule,
    /// The small model.
    pub model: ModelConfig,
    /// Number of steps.
    pub steps: u64,
    /// Rows of a step.
    pub rows: usize,
    /// The comparisons.
    pub checks: Vec<Check>,
}

impl Certificate {
    /// Whether every comparison is within its limit.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was compared.
    pub name: String,
    /// The tensor or the step with the largest difference; empty where nothing differs.
    pub place: String,
    /// The largest difference; -1 if it is not a number.
    pub value: f64,
    /// The largest that passes.
    pub limit: f64,
    /// Whether it does.
    pub passed: bool,
}

/// A copy of `model` of a size that one rank trains in seconds, which the same grids hold.
///
/// Heads, key-value heads, tied head and biases are those of the model, as grids depend on them. There are at most 2
/// blocks; a head has at most 8 elements. The residual stream is as wide as all heads together, rounded up to a multiple
/// of y; the feed-forward layer at most twice as wide, rounded up to a multiple of x. The vocabulary is at most 331,
/// a prime, so that ranks along X hold padding. Sequences have at most 32 tokens.
#[must_use]
pub fn shrink(model: &ModelConfig, grid: &Grid) -> ModelConfig {
    let head_dim = model.head_dim.min(8);
    let hidden = (model.heads * head_dim).min(model.hidden);
    let hidden = hidden.next_multiple_of(grid.y);
    ModelConfig {
        vocab: model.vocab.min(331),
        hidden,
        layers: model.layers.min(2),
        head_dim,
        ffn: model.ffn.min(2 * hidden).next_multiple_of(grid.x),
        max_positions: model.max_positions.min(32),
        ..model.clone()
    }
}

/// What the grid's runs of a study have left, on its first rank.
#[derive(Debug)]
pub struct Trained {
    grid: Grid,
    model: ModelConfig,
    /// The study's settings.
    train: TrainConfig,
    /// The same with plain gradient descent.
    descent: TrainConfig,
    rows: usize,
    by_descent: Trace,
    once: Trace,
    again: Trace,
    toggled: Trace,
}

/// Trains the small copy on this rank's grid. Collective; the first rank gets what there is to compare.
pub fn train(rank: &Rank, study: &Study) -> Result<Option<Trained>> {
    let model = shrink(&study.model, &rank.grid);
    let shares = rank.grid.z * rank.grid.data;
    // Two micro-batches on most ranks, and one row too few, so that some rank has less to do.
    let rows = (3 * shares).max(2) - 1;
    let train = TrainConfig {
        micro_batch: study.train.micro_batch.min(2),
        ..study.train.clone()
    };
    let other = TrainConfig {
        schedule: Schedule {
            overlap: toggled(train.schedule.overlap),
            ..train.schedule
        },
        ..train.clone()
    };
    let descent = TrainConfig {
        optimizer: Optimizer::Sgd,
        ..train.clone()
    };
    let run = |train: &TrainConfig| run(rank, &model, study, rows, train);
    let (by_descent, once, again, toggled) =
        (run(&descent)?, run(&train)?, run(&train)?, run(&other)?);
    Ok(rank.is_first().then(|| Trained {
        grid: rank.grid.clone(),
        model,
        train,
        descent,
        rows,
        by_descent,
        once,
        again,
        toggled,
    }))
}

impl Trained {
    /// Trains the same on one rank, and compares.
    pub fn compare(self, study: &Study) -> Result<Certificate> {
        let single = Rank::single();
        let run = |train: &TrainConfig| run(&single, &self.model, study, self.rows, train);
        let (by_descent, once) = (run(&self.descent)?, run(&self.train)?);
        let descent = "plain gradient descent";
        let optimizer = "the study's optimizer";
        let compared = study.steps.min(COMPARED) as usize;
        let checks = vec![
            tensors(
                "gradients of step 1".to_owned(),
                &self.once.gradients,
                &once.gradients,
                GRADIENT,
            ),
            series(
                format!("losses, {descent}"),
                &self.by_descent.losses[..compared],
                &by_descent.losses,
                LOSS,
            ),
            series(
                format!("gradient norms, {descent}"),
                &self.by_descent.norms[..compared],
                &by_descent.norms,
                NORM,
            ),
            tensors(
                format!("weights after step {}, {descent}", study.steps),
                &self.by_descent.weights,
                &by_descent.weights,
                WEIGHT,
            ),
            series(
                format!("losses, {optimizer}"),
                &self.once.losses[..compared],
                &once.losses,
                LOSS,
            ),
            series(
                format!("gradient norms, {optimizer}"),
                &self.once.norms[..compared],
                &once.norms,
                NORM,
            ),
            bits(
                "overlap the other way, values that differ",
                &self.toggled,
                &self.once,
            ),
            bits(
                "the same again, values that differ",
                &self.again,
                &self.once,
            ),
        ];
        Ok(Certificate {
            grid: self.grid,
            schedule: self.train.schedule,
            model: self.model,
            steps: study.steps,
            rows: self.rows,
            checks,
        })
    }
}

/// The opposite switches: all off, or all on where nothing overlaps.
fn toggled(overlap: Overlap) -> Overlap {
    if overlap != overlap.off() {
        return overlap.off();
    }
    Overlap {
        row_chunks: overlap.row_chunks,
        bucket_bytes: overlap.bucket_bytes,
        ..Overlap::default()
    }
}

/// A whole tensor with its name.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    values: Vec<f32>,
}

/// What one training leaves behind.
#[derive(Clone, Debug)]
struct Trace {
    /// Of the first step, before clipping.
    gradients: Vec<Tensor>,
    losses: Vec<f64>,
    norms: Vec<f64>,
    /// After the last step.
    weights: Vec<Tensor>,
}

/// Trains `model` for the steps of a study.
fn run(
    rank: &Rank,
    model: &ModelConfig,
    study: &Study,
    rows: usize,
    train: &TrainConfig,
) -> Result<Trace> {
    let llama = Llama::initialise(model, rank, SEED)?;
    let mut trainer = Trainer::new(rank, llama, train.clone())?;
    let mut trace = Trace {
        gradients: Vec::new(),
        losses: Vec::new(),
        norms: Vec::new(),
        weights: Vec::new(),
    };
    for step in 1..=study.steps {
        let rate = match train.optimizer {
            Optimizer::Sgd => DESCENT,
            Optimizer::AdamW(_) => study.rate.at(step).min(HIGHEST_RATE),
        };
        let record = trainer.step(rank, &batch(model, rows, step), rate)?;
        trace.losses.push(record.loss);
        trace.norms.push(record.grad_norm);
        if step == 1 {
            trace.gradients = gradients(rank, &trainer)?;
        }
    }
    trace.weights = weights(rank, trainer.llama())?;
    Ok(trace)
}

/// Rows of unequal length, every other one masked and every third of two documents.
fn batch(model: &ModelConfig, rows: usize, step: u64) -> Vec<Row> {
    let stream = Stream::new(SEED, &format!("certify {step}"));
    let mut counter = 0;
    let mut draw = |below: usize| {
        counter += 1;
        (stream.bits(counter) % below as u64) as usize
    };
    (0..rows)
        .map(|row| {
            let length = 1 + draw(model.max_positions);
            let ids = (0..length).map(|_| draw(model.vocab) as u32).collect();
            let cut = if row % 3 == 2 { length / 3 } else { 0 };
            let segments = [cut, length - cut].into_iter().filter(|&part| part > 0);
            Row {
                ids,
                segments: segments.collect(),
                masked: row % 2 == 0,
            }
        })
        .collect()
}

/// The gradients of the step just made, whole, on every rank.
fn gradients(rank: &Rank, trainer: &Trainer) -> Result<Vec<Tensor>> {
    let sharded = trainer.config().schedule.shard_optimizer;
    let params = trainer.llama().params().iter();
    params
        .zip(&trainer.state().moments)
        .map(|(param, moments)| {
            // What belongs to another rank along Data is not summed here under a sharded optimizer.
            let values = &param.gradient[moments.owned.clone()];
            let ours = sharded || rank.coord.data == 0;
            whole(rank, param, moments.owned.start, ours.then_some(values))
        })
        .collect()
}

/// The weights, whole, on every rank.
fn weights(rank: &Rank, llama: &Llama) -> Result<Vec<Tensor>> {
    let params = llama.params().iter();
    let ours = rank.coord.data == 0;
    params
        .map(|param| whole(rank, param, 0, ours.then_some(&param.weight[..])))
        .collect()
}

/// The tensor of which this rank holds `values` from `start` of its shard. Every element comes from one rank, so the sum
/// over all is the element itself.
fn whole(rank: &Rank, param: &Param, start: usize, values: Option<&[f32]>) -> Result<Tensor> {
    let [rows, columns] = param.shape;
    let mut sum = rank.pool.zeros(rows * columns);
    if param.placement.counts(rank.coord) {
        for (at, value) in values.unwrap_or_default().iter().enumerate() {
            let position = param.block.flat.start + start + at;
            if let Some((row, column)) = param.block.element(position) {
                sum[row * columns + column] = *value;
            }
        }
    }
    for group in [
        &rank.groups.x,
        &rank.groups.y,
        &rank.groups.z,
        &rank.groups.data,
    ] {
        sum = group.start(Collective::AllReduceSum, sum).wait()?;
    }
    Ok(Tensor {
        name: param.name.clone(),
        values: sum.to_vec(),
    })
}

/// The tensor with the largest ‖a - b‖ / ‖b‖.
fn tensors(name: String, ours: &[Tensor], theirs: &[Tensor], limit: f64) -> Check {
    let differences = ours.iter().zip(theirs).map(|(a, b)| {
        let square = |difference: f64| difference * difference;
        let pairs = a.values.iter().zip(&b.values);
        let distance: f64 = pairs.map(|(a, b)| square(f64::from(a - b))).sum();
        let norm: f64 = b.values.iter().map(|b| square(f64::from(*b))).sum();
        (relative(distance.sqrt(), norm.sqrt()), a.name.clone())
    });
    largest(name, differences, limit)
}

/// The step with the largest |a - b| / |b|.
fn series(name: String, ours: &[f64], theirs: &[f64], limit: f64) -> Check {
    let differences = ours.iter().zip(theirs).enumerate().map(|(at, (a, b))| {
        let place = format!("step {}", at + 1);
        (relative((a - b).abs(), b.abs()), place)
    });
    largest(name, differences, limit)
}

/// How many losses, norms, gradients and weights are not equal to the bit.
fn bits(name: &str, ours: &Trace, theirs: &Trace) -> Check {
    let differs = |a: &[f64], b: &[f64]| {
        let pairs = a.iter().zip(b);
        pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count()
    };
    let mut counts = vec![
        (differs(&ours.losses, &theirs.losses), "losses".to_owned()),
        (differs(&ours.norms, &theirs.norms), "norms".to_owned()),
    ];
    let gradients = ours.gradients.iter().zip(&theirs.gradients);
    for (a, b) in gradients.chain(ours.weights.iter().zip(&theirs.weights)) {
        let pairs = a.values.iter().zip(&b.values);
        let count = pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        counts.push((count, a.name.clone()));
    }
    let total: usize = counts.iter().map(|(count, _)| count).sum();
    let place = counts.into_iter().find(|(count, _)| *count > 0);
    Check {
        name: name.to_owned(),
        place: place.map_or_else(String::new, |(_, place)| place),
        value: total as f64,
        limit: 0.0,
        passed: total == 0,
    }
}

/// `difference / size`, where nothing differs from nothing.
fn relative(difference: f64, size: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else {
        difference / size
    }
}

fn largest(name: String, differences: impl Iterator<Item = (f64, String)>, limit: f64) -> Check {
    let (mut value, mut place) = (0.0, String::new());
    for (difference, at) in differences {
        // A difference that is not a number is larger than all others.
        if difference > value || difference.is_nan() {
            (value, place) = (difference, at);
        }
        if value.is_nan() {
            break;
        }
    }
    Check {
        name,
        place,
        passed: value <= limit,
        // JSON has no other numbers.
        value: if value.is_finite() { value } else { -1.0 },
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, values: &[f32]) -> Tensor {
        Tensor {
            name: name.to_owned(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn a_perturbed_tensor_is_named_and_fails() {
        let theirs = [tensor("a", &[3.0, 4.0]), tensor("b", &[0.0, 2.0])];
        let mut ours = theirs.clone();
        let check = tensors("weights".into(), &ours, &theirs, 1e-4);
        assert_eq!((check.value, check.passed), (0.0, true));
        ours[0].values[1] += 0.0004;
        let check = tensors("weights".into(), &ours, &theirs, 1e-4);
        assert!(
            check.passed && (check.value - 8e-5).abs() < 1e-6,
            "{check:?}"
        );
        ours[1].values[1] += 0.01;
        let check = tensors("weights".into(), &ours, &theirs, 1e-4);
        assert_eq!((check.place.as_str(), check.passed), ("b", false));
        assert!((check.value - 0.005).abs() < 1e-6, "{check:?}");
    }

    #[test]
    fn what_is_no_number_fails() {
        for wrong in [f32::NAN, f32::INFINITY] {
            let (ours, theirs) = ([tensor("a", &[wrong])], [tensor("a", &[1.0])]);
            let check = tensors("weights".into(), &ours, &theirs, 1e-4);
            assert!(!check.passed && check.value < 0.0, "{check:?}");
        }
        // Something where there should be nothing.
        let check = tensors(
            "w".into(),
            &[tensor("a", &[1.0])],
            &[tensor("a", &[0.0])],
            1.0,
        );
        assert!(!check.passed, "{check:?}");
        assert!(!series("loss".into(), &[1.0, f64::NAN], &[1.0, 1.0], 1.0).passed);
        assert_eq!(
            series("loss".into(), &[1.0, 1.1], &[1.0, 1.0], 1.0).place,
            "step 2"
        );
    }

    #[test]
    fn one_bit_is_a_difference() {
        let trace = Trace {
            gradients: vec![tensor("g", &[1.0])],
            losses: vec![1.0],
            norms: vec![1.0],
            weights: vec![tensor("w", &[1.0, 2.0])],
        };
        assert!(bits("again", &trace, &trace).passed);
        let mut other = trace.clone();
        other.weights[0].values[1] = 2.0_f32.next_up();
        let check = bits("again", &other, &trace);
        assert_eq!((check.value, check.passed), (1.0, false));
        assert_eq!(check.place, "w");
    }

    #[test]
    fn shrunken_models_fit_the_grids_of_the_whole_ones() {
        let model = ModelConfig {
            vocab: 32_000,
            hidden: 8192,
            layers: 80,
            heads: 64,
            kv_heads: 8,
            head_dim: 128,
            ffn: 28_672,
            max_positions: 4096,
            rope_theta: 1e4,
            norm_eps: 1e-5,
            tied: false,
            qkv_bias: false,
            output_bias: false,
            rope_scaling: None,
        };
        for (x, y) in [(1, 1), (8, 4), (64, 2), (16, 1024), (32, 8192)] {
            let grid = Grid::new(x, y, 2, 2);
            model.check_grid(&grid).unwrap();
            let small = shrink(&model, &grid);
            small.validate().unwrap();
            small.check_grid(&grid).unwrap();
            assert!(small.hidden <= model.hidden && small.ffn <= model.ffn);
        }
    }
}
