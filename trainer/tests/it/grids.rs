//! Every grid of 1, 2, 4, 8, 12 and 16 ranks against one rank, and what it communicates against the scheme.

use axmem_trainer::memory::MicroBatch;
use axmem_trainer::random::Stream;
use axmem_trainer::{
    AdamW, AttentionSplit, Goldfish, Grid, Hash, Llama, ModelConfig, Optimizer, Overlap, Param,
    Rank, Recompute, Row, Schedule, TrainConfig, Trainer, launch, memory,
};

use crate::tiny::{Tensors, distance, whole};
use crate::volumes::{self, Volumes};

const STEPS: u64 = 20;
const CHUNK: usize = 24;

/// Model A: 2 key-value heads, so that X of 4 and more holds copies; 16 sequences.
pub(crate) fn model_a(tied: bool) -> ModelConfig {
    ModelConfig {
        vocab: 331,
        hidden: 128,
        layers: 2,
        heads: 16,
        kv_heads: 2,
        head_dim: 8,
        ffn: 256,
        max_positions: 64,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied,
        qkv_bias: !tied,
        output_bias: !tied,
        rope_scaling: None,
    }
}

/// Model B: sizes with a factor of 3 and one key-value head; 24 sequences.
pub(crate) fn model_b(tied: bool) -> ModelConfig {
    ModelConfig {
        hidden: 96,
        heads: 12,
        kv_heads: 1,
        ffn: 192,
        ..model_a(tied)
    }
}

/// Sequences of unequal length; half of the targets beyond the 13th are dropped by Goldfish, others on every rank.
pub(crate) fn sequences(count: usize) -> Vec<Row> {
    (0..count)
        .map(|row| {
            let stream = Stream::new(0, &format!("grids {row}"));
            let length = 15 + row * 5 % 7;
            let ids = (0..length as u64).map(|i| (stream.bits(i) % 331) as u32);
            Row::document(ids.collect(), row % 3 > 0)
        })
        .collect()
}

pub(crate) fn settings(optimizer: Optimizer, schedule: Schedule) -> TrainConfig {
    TrainConfig {
        optimizer,
        clip: Some(1.0),
        micro_batch: 1,
        schedule,
        goldfish: Some(Goldfish::new(2, 13, Hash::Portable { key: 7 }).unwrap()),
    }
}

pub(crate) const ADAMW: Optimizer = Optimizer::AdamW(AdamW {
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    decay_norms: false,
});

/// All grids of `ranks` ranks.
pub(crate) fn all_grids(ranks: usize) -> Vec<Grid> {
    let parts = |n: usize| (1..=n).filter(move |part| n.is_multiple_of(*part));
    let mut grids = Vec::new();
    for x in parts(ranks) {
        for y in parts(ranks / x) {
            for z in parts(ranks / x / y) {
                grids.push(Grid::new(x, y, z, ranks / x / y / z));
            }
        }
    }
    grids
}

/// What a grid made of the same steps.
struct Outcome {
    losses: [Vec<f64>; 2],
    norm: f64,
    gradients: Tensors,
    weights: Tensors,
}

struct RankOutcome {
    losses: [Vec<f64>; 2],
    norm: f64,
    first: Vec<Param>,
    last: Vec<Param>,
    volumes: Volumes,
    /// Peak of the pool in the first step, under each optimizer.
    peaks: [usize; 2],
}

/// 20 steps of plain gradient descent, then 20 of `AdamW` from the start.
fn run(grid: &Grid, config: &ModelConfig, rows: &[Row], schedule: Schedule) -> Outcome {
    let results = launch::threads(grid, |rank| {
        let (mut norm, mut first, mut last) = (0.0, Vec::new(), Vec::new());
        let mut measured = Volumes::new();
        let mut losses = [Vec::new(), Vec::new()];
        let mut peaks = [0; 2];
        for ((losses, peak), (optimizer, rate)) in losses
            .iter_mut()
            .zip(&mut peaks)
            .zip([(Optimizer::Sgd, 0.1), (ADAMW, 1e-3)])
        {
            rank.pool.reset_peak();
            let before = rank.pool.live_bytes();
            let llama = Llama::initialise(config, rank, 3)?.with_loss_chunk_rows(CHUNK);
            let settings = in_two(grid, rows, settings(optimizer, schedule));
            let mut trainer = Trainer::new(rank, llama, settings)?;
            rank.ledger.take();
            for step in 0..STEPS {
                let record = trainer.step(rank, rows, rate)?;
                losses.push(record.loss);
                if step == 0 {
                    *peak = rank.pool.peak_bytes() - before;
                    norm = record.grad_norm;
                    first = owned_gradients(&trainer);
                    measured = ledger(rank);
                }
            }
            if optimizer == Optimizer::Sgd {
                last = trainer.llama().params().to_vec();
            }
        }
        Ok(RankOutcome {
            losses,
            norm,
            first,
            last,
            volumes: measured,
            peaks,
        })
    })
    .unwrap_or_else(|error| panic!("{grid}: {error}"));

    for (index, result) in results.iter().enumerate() {
        assert_eq!(result.losses, results[0].losses, "{grid} rank {index}");
        let settings = in_two(grid, rows, settings(ADAMW, schedule));
        let batches = micro_batches(grid, index, rows, &settings);
        let expected = volumes::step(
            config,
            grid,
            &batches,
            &schedule,
            CHUNK,
            schedule.overlap.bucket_bytes > 1,
        );
        assert_eq!(result.volumes, expected, "{grid} rank {index} {schedule:?}");
        for (optimizer, measured) in [Optimizer::Sgd, ADAMW].iter().zip(result.peaks) {
            let plan = memory::Plan {
                model: config,
                grid,
                schedule: &schedule,
                optimizer,
                chunk: CHUNK,
                staged: false,
            };
            let formula = memory::peak(&plan, &batches);
            let error = formula.total() as f64 / measured as f64 - 1.0;
            assert!(
                error.abs() < 0.05,
                "{grid} rank {index} {schedule:?}: {measured} bytes at the peak, the formula says {formula:?} ({error:+.3})"
            );
        }
    }
    let take = |pick: fn(&RankOutcome) -> &Vec<Param>| -> Vec<Vec<Param>> {
        results.iter().map(|result| pick(result).clone()).collect()
    };
    let (first, last) = (take(|result| &result.first), take(|result| &result.last));
    replicas_are_equal(grid, &last);
    Outcome {
        losses: results[0].losses.clone(),
        norm: results[0].norm,
        gradients: whole(&first, |param| &param.gradient),
        weights: whole(&last, |param| &param.weight),
    }
}

/// The parameters, cut to the parts whose gradients this rank has the sums of.
fn owned_gradients(trainer: &Trainer) -> Vec<Param> {
    let params = trainer.llama().params().iter();
    params
        .zip(&trainer.state().moments)
        .map(|(param, moments)| Param {
            block: param.block.part(&moments.owned),
            gradient: param
                .gradient
                .pool()
                .copy(&param.gradient[moments.owned.clone()]),
            ..param.clone()
        })
        .collect()
}

/// Settings with which every rank runs its rows as two micro-batches, or as one if it has one row.
fn in_two(grid: &Grid, rows: &[Row], settings: TrainConfig) -> TrainConfig {
    let share = rows.len() / (grid.z * grid.data);
    TrainConfig {
        micro_batch: share.div_ceil(2),
        ..settings
    }
}

/// Calls and ring bytes since the last time.
pub(crate) fn ledger(rank: &Rank) -> Volumes {
    rank.ledger
        .take()
        .into_iter()
        .map(|(key, entry)| (key, (entry.calls, entry.ring_bytes)))
        .collect()
}

/// What a rank gets of the rows, by the rule in the design: Z and Data split whole sequences in order.
pub(crate) fn micro_batches(
    grid: &Grid,
    index: usize,
    rows: &[Row],
    settings: &TrainConfig,
) -> Vec<MicroBatch> {
    let coord = grid.coord(index);
    let share = rows.len() / (grid.z * grid.data);
    let goldfish = settings.goldfish.as_ref().unwrap();
    let first = (coord.data * grid.z + coord.z) * share;
    let kept = |row: &Row| {
        if row.masked {
            goldfish.keep(&row.ids).iter().filter(|kept| **kept).count()
        } else {
            row.ids.len() - 1
        }
    };
    rows[first..first + share]
        .chunks(settings.micro_batch)
        .map(|rows| {
            let tokens = rows.iter().map(|row| row.ids.len()).sum();
            let shares = shares(rows, grid.y);
            let split = settings.schedule.attention == AttentionSplit::YSharded;
            MicroBatch {
                tokens,
                kept: rows.iter().map(kept).sum(),
                own: if split { shares[coord.y] } else { tokens },
                longest: shares.into_iter().max().unwrap_or(0),
            }
        })
        .collect()
}

/// Tokens of each share along Y: a sequence belongs to the share that its middle falls into.
fn shares(rows: &[Row], parts: usize) -> Vec<usize> {
    let total: usize = rows.iter().map(|row| row.ids.len()).sum();
    let mut lengths = vec![0; parts];
    let mut start = 0;
    for row in rows {
        let twice_middle = 2 * start + row.ids.len();
        lengths[(twice_middle * parts).div_ceil(2 * total) - 1] += row.ids.len();
        start += row.ids.len();
    }
    lengths
}

/// P11: every copy of a shard has the same bits.
fn replicas_are_equal(grid: &Grid, params: &[Vec<Param>]) {
    for (rank, own) in params.iter().enumerate() {
        for (param, index) in own.iter().zip(0..) {
            let mut home = grid.coord(rank);
            home.data = 0;
            let placement = param.placement;
            if !placement.counts(home) {
                let splits = |axis| placement.rows == Some(axis) || placement.columns == Some(axis);
                home.x = if splits(axmem_trainer::Axis::X) {
                    home.x - home.x % placement.copies
                } else {
                    0
                };
                if !splits(axmem_trainer::Axis::Y) {
                    home.y = 0;
                }
            }
            let original = &params[grid.rank(home)][index];
            assert!(
                original.weight == param.weight,
                "{grid} rank {rank}: {} differs from its copy",
                param.name
            );
        }
    }
}

fn assert_equal(case: &str, result: &Outcome, single: &Outcome) {
    let (error, name) = distance(&result.gradients, &single.gradients);
    assert!(
        error <= 1e-5,
        "{case}: gradient of {name} differs by {error:e}"
    );
    let relative = |a: f64, b: f64| (a / b - 1.0).abs();
    assert!(
        relative(result.norm, single.norm) <= 1e-5,
        "{case}: norm {} for {}",
        result.norm,
        single.norm
    );
    let (error, name) = distance(&result.weights, &single.weights);
    assert!(
        error <= 1e-4,
        "{case}: {name} differs by {error:e} after {STEPS} steps"
    );
    for (optimizer, (losses, expected)) in result.losses.iter().zip(&single.losses).enumerate() {
        for (step, (loss, expected)) in losses.iter().zip(expected).enumerate() {
            let error = relative(*loss, *expected);
            assert!(
                error <= 1e-5,
                "{case}: optimizer {optimizer} step {}: loss {loss} for {expected}",
                step + 1
            );
        }
    }
}

/// Settings that change nothing but the schedule, in turn from grid to grid.
fn schedule(turn: usize) -> Schedule {
    let on = Overlap {
        all_gather: [1, 3][turn % 2],
        row_chunks: [1, 3, 1][turn % 3],
        bucket_bytes: [1, 25 << 20][turn / 2 % 2],
        ..Overlap::default()
    };
    Schedule {
        recompute: [Recompute::None, Recompute::Block][turn % 2],
        attention: [AttentionSplit::Replicated, AttentionSplit::YSharded][turn / 2 % 2],
        overlap: [on, on.off()][turn / 4 % 2],
        shard_optimizer: turn % 3 == 2,
    }
}

fn table(model: fn(bool) -> ModelConfig, tied: bool, sequences_count: usize, ranks: &[usize]) {
    let (config, rows) = (model(tied), sequences(sequences_count));
    let single = run(&Grid::single(), &config, &rows, Schedule::default());
    assert!(single.losses.iter().all(|losses| losses[19] < losses[0]));
    for &ranks in ranks {
        for (turn, grid) in all_grids(ranks).into_iter().enumerate() {
            let schedule = schedule(turn);
            let result = run(&grid, &config, &rows, schedule);
            assert_equal(&format!("{grid} {schedule:?}"), &result, &single);
        }
    }
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_1_2_4_equal_one_rank_tied() {
    table(model_a, true, 16, &[1, 2, 4]);
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_1_2_4_equal_one_rank_untied() {
    table(model_a, false, 16, &[1, 2, 4]);
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_8_equal_one_rank_tied() {
    table(model_a, true, 16, &[8]);
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_8_equal_one_rank_untied() {
    table(model_a, false, 16, &[8]);
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_16_equal_one_rank_tied() {
    table(model_a, true, 16, &[16]);
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_16_equal_one_rank_untied() {
    table(model_a, false, 16, &[16]);
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_12_equal_one_rank_tied() {
    table(model_b, true, 24, &[12]);
}

#[test]
fn p05_p06_p07_p09_p11_p12_all_grids_of_12_equal_one_rank_untied() {
    table(model_b, false, 24, &[12]);
}

/// Only one rank of Z holds a block of one element; the others need it too.
#[test]
fn gains_of_one_element_are_gathered() {
    let config = ModelConfig {
        hidden: 8,
        heads: 2,
        kv_heads: 1,
        ffn: 16,
        ..model_a(true)
    };
    let rows = sequences(4);
    let single = run(&Grid::single(), &config, &rows, Schedule::default());
    let grid = Grid::new(1, 8, 2, 1);
    let result = run(&grid, &config, &rows, Schedule::default());
    assert_equal("gains of one element", &result, &single);
}

#[test]
fn grids_that_do_not_divide_the_model_are_refused_with_the_field() {
    for (grid, text) in [
        (Grid::new(3, 1, 1, 1), "heads = 16"),
        (Grid::new(1, 3, 1, 1), "hidden = 128"),
        (Grid::new(32, 1, 1, 1), "heads = 16"),
    ] {
        let config = ModelConfig {
            ffn: 192,
            ..model_a(true)
        };
        let error = launch::threads(&grid, |rank| Llama::initialise(&config, rank, 1).map(drop))
            .unwrap_err()
            .to_string();
        assert!(error.contains(text), "{error}");
    }
    let config = ModelConfig {
        heads: 12,
        kv_heads: 4,
        ..model_a(true)
    };
    let error = launch::threads(&Grid::new(6, 1, 1, 1), |rank| {
        Llama::initialise(
            &ModelConfig {
                ffn: 192,
                ..config.clone()
            },
            rank,
            1,
        )
        .map(drop)
    })
    .unwrap_err()
    .to_string();
    assert!(error.contains("kv_heads = 4"), "{error}");
}
