//! When communication starts and ends changes no bit; how buffers are cut changes no more than a sum's order does.

use axmem_trainer::{
    AttentionSplit, Grid, Llama, ModelConfig, Overlap, Recompute, Result, Row, Schedule,
    TrainConfig, Trainer, launch,
};

use crate::grids::{ADAMW, ledger, micro_batches, sequences, settings};
use crate::tiny::{Tensors, distance, whole};
use crate::volumes;

const STEPS: u64 = 20;
const CHUNK: usize = 24;

/// Everything that can be on its way at a time: biases, a tied head where both Z and Data have ranks, and copies of key-value
/// heads where X has 4.
fn model(grid: &Grid) -> ModelConfig {
    ModelConfig {
        vocab: 331,
        hidden: 32,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        ffn: 48,
        max_positions: 32,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: grid.z > 1 && grid.data > 1,
        qkv_bias: true,
        output_bias: true,
        rope_scaling: None,
    }
}

/// Eight sequences, of which every rank runs its share as two micro-batches, with Goldfish and `AdamW`.
fn train_config(grid: &Grid, schedule: Schedule) -> (TrainConfig, Vec<Row>) {
    let rows = sequences(8);
    let config = TrainConfig {
        micro_batch: (rows.len() / (grid.z * grid.data)).div_ceil(2),
        ..settings(ADAMW, schedule)
    };
    (config, rows)
}

/// Losses and weights of [`STEPS`] steps.
#[derive(PartialEq)]
struct Outcome {
    losses: Vec<f64>,
    norms: Vec<f64>,
    /// By rank and parameter.
    weights: Vec<Vec<Vec<f32>>>,
    whole: Tensors,
}

fn run(grid: &Grid, schedule: Schedule) -> Outcome {
    let (config, rows) = train_config(grid, schedule);
    let results = launch::threads(grid, |rank| {
        let llama = Llama::initialise(&model(grid), rank, 3)?.with_loss_chunk_rows(CHUNK);
        let mut trainer = Trainer::new(rank, llama, config.clone())?;
        let records = (0..STEPS)
            .map(|_| trainer.step(rank, &rows, 1e-3))
            .collect::<Result<Vec<_>>>()?;
        Ok((records, trainer.llama().params().to_vec()))
    })
    .unwrap_or_else(|error| panic!("{grid} {schedule:?}: {error}"));
    let (records, params): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    let of_first = |pick: fn(&axmem_trainer::StepRecord) -> f64| {
        records[0].iter().map(pick).collect::<Vec<_>>()
    };
    let outcome = Outcome {
        losses: of_first(|record| record.loss),
        norms: of_first(|record| record.grad_norm),
        whole: whole(&params, |param| &param.weight),
        weights: params
            .iter()
            .map(|params| params.iter().map(|param| param.weight.to_vec()).collect())
            .collect(),
    };
    assert!(outcome.losses[19] < outcome.losses[0]);
    outcome
}

/// Numerical settings that let every switch do something: many buckets, and rows cut or not.
fn numerical(row_chunks: usize) -> Overlap {
    Overlap {
        row_chunks,
        bucket_bytes: 4 << 10,
        ..Overlap::default()
    }
}

/// All switches on, with a look-ahead of so many weights.
fn together(off: Overlap, all_gather: usize) -> Overlap {
    Overlap {
        all_reduce: true,
        reduce_scatter: true,
        all_gather,
        forward: true,
        data: true,
        ..off
    }
}

/// Each switch on alone.
fn alone(off: Overlap) -> [Overlap; 5] {
    [
        Overlap {
            all_reduce: true,
            ..off
        },
        Overlap {
            reduce_scatter: true,
            ..off
        },
        Overlap {
            all_gather: 2,
            ..off
        },
        Overlap {
            forward: true,
            ..off
        },
        Overlap { data: true, ..off },
    ]
}

fn overlap_changes_no_bit(grid: &Grid, attention: AttentionSplit) {
    let schedule = |recompute, overlap| Schedule {
        recompute,
        attention,
        overlap,
        shard_optimizer: recompute == Recompute::Block,
    };
    for row_chunks in [1, 3] {
        let off = numerical(row_chunks).off();
        for recompute in [Recompute::None, Recompute::Block] {
            let expected = run(grid, schedule(recompute, off));
            let mut switched = vec![together(off, 1)];
            if (recompute, row_chunks) == (Recompute::Block, 3) {
                switched.extend(alone(off));
                switched.extend([2, 5].map(|ahead| together(off, ahead)));
            }
            for overlap in switched {
                let result = run(grid, schedule(recompute, overlap));
                assert!(result == expected, "{grid} {recompute:?} {overlap:?}");
            }
        }
    }
}

#[test]
fn p13_overlap_changes_no_bit_on_2_2_2_1() {
    overlap_changes_no_bit(&Grid::new(2, 2, 2, 1), AttentionSplit::Replicated);
}

#[test]
fn p13_overlap_changes_no_bit_on_1_2_2_2() {
    overlap_changes_no_bit(&Grid::new(1, 2, 2, 2), AttentionSplit::YSharded);
}

#[test]
fn p13_overlap_changes_no_bit_on_2_1_2_2() {
    overlap_changes_no_bit(&Grid::new(2, 1, 2, 2), AttentionSplit::Replicated);
}

#[test]
fn p13_overlap_changes_no_bit_on_1_4_1_1_with_attention_split_over_y() {
    overlap_changes_no_bit(&Grid::new(1, 4, 1, 1), AttentionSplit::YSharded);
}

#[test]
fn p13_overlap_changes_no_bit_with_copies_of_key_value_heads() {
    overlap_changes_no_bit(&Grid::new(4, 1, 2, 1), AttentionSplit::Replicated);
}

#[test]
fn p13_who_computes_the_attention_changes_no_bit() {
    for grid in [
        Grid::new(1, 2, 1, 1),
        Grid::new(1, 4, 1, 1),
        Grid::new(2, 2, 2, 1),
        Grid::new(1, 2, 2, 2),
    ] {
        for recompute in [Recompute::None, Recompute::Block] {
            let by = |attention| {
                let schedule = Schedule {
                    attention,
                    recompute,
                    ..Schedule::default()
                };
                run(&grid, schedule)
            };
            let all = by(AttentionSplit::Replicated);
            assert!(by(AttentionSplit::YSharded) == all, "{grid} {recompute:?}");
        }
    }
}

#[test]
fn p13_the_size_of_buckets_changes_no_bit_and_their_number_is_that_of_the_parameters() {
    for grid in [Grid::new(1, 2, 2, 2), Grid::new(2, 1, 1, 3)] {
        for shard_optimizer in [false, true] {
            let schedule = |bucket_bytes| Schedule {
                shard_optimizer,
                overlap: Overlap {
                    bucket_bytes,
                    ..Overlap::default()
                },
                ..Schedule::default()
            };
            let (each, one) = (schedule(1), schedule(1 << 30));
            assert!(run(&grid, each) == run(&grid, one), "{grid}");
            for (schedule, one_bucket) in [(each, false), (one, true)] {
                calls_are_those_of_the_scheme(&grid, schedule, one_bucket);
            }
        }
    }
}

/// The ledger of one step; the rows of every rank are equally many.
fn calls_are_those_of_the_scheme(grid: &Grid, schedule: Schedule, one_bucket: bool) {
    let (config, _) = train_config(grid, schedule);
    let rows = sequences(2 * config.micro_batch * grid.z * grid.data);
    let measured = launch::threads(grid, |rank| {
        let llama = Llama::initialise(&model(grid), rank, 3)?.with_loss_chunk_rows(CHUNK);
        let mut trainer = Trainer::new(rank, llama, config.clone())?;
        rank.ledger.take();
        trainer.step(rank, &rows, 1e-3)?;
        Ok(ledger(rank))
    })
    .unwrap();
    for (index, measured) in measured.into_iter().enumerate() {
        let batches = micro_batches(grid, index, &rows, &config);
        let expected = volumes::step(&model(grid), grid, &batches, &schedule, CHUNK, one_bucket);
        assert_eq!(measured, expected, "{grid} rank {index} {schedule:?}");
    }
}

#[test]
fn chunks_of_rows_change_no_more_than_the_order_of_sums() {
    for grid in [
        Grid::new(2, 2, 2, 1),
        Grid::new(1, 4, 1, 1),
        Grid::new(4, 1, 1, 2),
    ] {
        let cut = |row_chunks| {
            let schedule = Schedule {
                overlap: numerical(row_chunks),
                ..Schedule::default()
            };
            run(&grid, schedule)
        };
        let (one, three) = (cut(1), cut(3));
        for (a, b) in three.losses.iter().zip(&one.losses) {
            assert!((a / b - 1.0).abs() <= 1e-5, "{grid}: {a} {b}");
        }
        let (error, name) = distance(&three.whole, &one.whole);
        assert!(error <= 1e-4, "{grid}: {name} {error:e}");
    }
}

#[test]
fn a_sharded_optimizer_updates_alike() {
    for grid in [
        Grid::new(1, 1, 1, 2),
        Grid::new(1, 1, 1, 3),
        Grid::new(1, 2, 2, 2),
        Grid::new(2, 1, 1, 4),
    ] {
        let with = |shard_optimizer| {
            let schedule = Schedule {
                shard_optimizer,
                ..Schedule::default()
            };
            run(&grid, schedule)
        };
        let (whole, sharded) = (with(false), with(true));
        let (error, name) = distance(&sharded.whole, &whole.whole);
        assert!(error <= 1e-5, "{grid}: {name} {error:e}");
        for (a, b) in sharded.norms.iter().zip(&whole.norms) {
            assert!((a / b - 1.0).abs() <= 1e-6, "{grid}: norm {a} {b}");
        }
    }
}

#[test]
fn a_sharded_optimizer_holds_its_share_of_the_moments() {
    for (grid, data) in [
        (Grid::new(1, 1, 1, 2), 2),
        (Grid::new(2, 1, 2, 2), 2),
        (Grid::new(1, 2, 1, 4), 4),
    ] {
        let moments = |shard_optimizer| {
            let schedule = Schedule {
                shard_optimizer,
                ..Schedule::default()
            };
            let (config, _) = train_config(&grid, schedule);
            // Every shard of this vocabulary is a multiple of d.
            let model = ModelConfig {
                vocab: 336,
                ..model(&grid)
            };
            launch::threads(&grid, |rank| {
                let llama = Llama::initialise(&model, rank, 3)?;
                let before = rank.pool.live_bytes();
                let trainer = Trainer::new(rank, llama, config.clone())?;
                let weights: usize = trainer
                    .llama()
                    .params()
                    .iter()
                    .map(|param| size_of_val(&param.weight[..]))
                    .sum();
                Ok((rank.pool.live_bytes() - before, weights))
            })
            .unwrap()
        };
        let (whole, sharded) = (moments(false), moments(true));
        for ((whole, weights), (share, _)) in whole.into_iter().zip(sharded) {
            assert_eq!(whole, 2 * weights, "{grid}");
            assert_eq!(share * data, whole, "{grid}");
        }
    }
}
