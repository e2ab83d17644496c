//! Grids that are known schemes: which collectives run, how much they move, and that the result is that of one rank.
//!
//! The volumes here are the textbook ones of each scheme, with P the parameters of the model; every size divides evenly.

use axmem_trainer::comm::Collective::{AllGather, AllReduceMax, AllReduceSum, ReduceScatterSum};
use axmem_trainer::comm::{Line, Traffic};
use axmem_trainer::{
    Grid, Llama, ModelConfig, Optimizer, Recompute, Row, Schedule, TrainConfig, Trainer, launch,
};

use crate::grids::{ledger, model_a, sequences, settings};
use crate::tiny::{Tensors, distance, whole};
use crate::volumes::Volumes;

const ROWS: usize = 16;
/// One chunk of rows in the loss.
const MORE_THAN_ALL: usize = 1 << 10;
const ADDED: Traffic = Traffic::Tensor(AllReduceSum);
const LARGEST: Traffic = Traffic::Tensor(AllReduceMax);
const GATHERED: Traffic = Traffic::Tensor(AllGather);
const SCATTERED: Traffic = Traffic::Tensor(ReduceScatterSum);

/// Model A without biases.
fn model(tied: bool) -> ModelConfig {
    ModelConfig {
        qkv_bias: false,
        output_bias: false,
        ..model_a(tied)
    }
}

/// What three steps of plain gradient descent made.
struct Run {
    losses: Vec<f64>,
    /// Of the first step, by rank.
    volumes: Vec<Volumes>,
    /// Of the first step; not whole if the optimizer is sharded.
    gradients: Tensors,
    weights: Tensors,
}

/// Three steps on all rows, no target dropped, `micro_batch` rows of a rank at a time.
fn run(config: &ModelConfig, grid: &Grid, schedule: Schedule, micro_batch: usize) -> Run {
    let rows = sequences(ROWS);
    let results = launch::threads(grid, |rank| {
        let settings = TrainConfig {
            micro_batch,
            goldfish: None,
            ..settings(Optimizer::Sgd, schedule)
        };
        let llama = Llama::initialise(config, rank, 3)?.with_loss_chunk_rows(MORE_THAN_ALL);
        let mut trainer = Trainer::new(rank, llama, settings)?;
        rank.ledger.take();
        let mut losses = vec![trainer.step(rank, &rows, 0.1)?.loss];
        let volumes = ledger(rank);
        let first = trainer.llama().params().to_vec();
        for _ in 0..2 {
            losses.push(trainer.step(rank, &rows, 0.1)?.loss);
        }
        Ok((losses, volumes, first, trainer.llama().params().to_vec()))
    })
    .unwrap();
    let losses = results[0].0.clone();
    let (mut volumes, mut first, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for (_, own_volumes, own_first, own_last) in results {
        volumes.push(own_volumes);
        first.push(own_first);
        last.push(own_last);
    }
    Run {
        losses,
        volumes,
        gradients: whole(&first, |param| &param.gradient),
        weights: whole(&last, |param| &param.weight),
    }
}

/// The contract of equality with one rank.
fn assert_equals_one_rank(case: &str, config: &ModelConfig, schedule: Schedule, result: &Run) {
    let single = run(config, &Grid::single(), Schedule::default(), ROWS);
    assert_eq!(single.volumes, [Volumes::new()]);
    if !schedule.shard_optimizer {
        let (error, name) = distance(&result.gradients, &single.gradients);
        assert!(error <= 1e-5, "{case}: gradient of {name}: {error:e}");
    }
    let (error, name) = distance(&result.weights, &single.weights);
    assert!(error <= 1e-5, "{case}: {name}: {error:e}");
    for (loss, expected) in result.losses.iter().zip(&single.losses) {
        assert!((loss / expected - 1.0).abs() <= 1e-5, "{case}: {loss}");
    }
    assert!(single.losses[2] < single.losses[0]);
}

/// Tokens and kept targets of a rank's rows.
fn tokens(grid: &Grid, index: usize) -> [u64; 2] {
    let (coord, share) = (grid.coord(index), ROWS / (grid.z * grid.data));
    let first = (coord.data * grid.z + coord.z) * share;
    let rows: &[Row] = &sequences(ROWS)[first..first + share];
    let tokens: usize = rows.iter().map(|row| row.ids.len()).sum();
    [tokens as u64, (tokens - share) as u64]
}

/// Bytes of `elements` f32 values.
fn bytes(elements: u64) -> u64 {
    4 * elements
}

/// Ring bytes of an all-reduce among `ranks`.
fn all_reduced(ranks: usize, elements: u64) -> u64 {
    let ranks = ranks as u64;
    bytes(2 * (ranks - 1) * elements.div_ceil(ranks))
}

/// Ring bytes of the all-gather of a whole that is split among `ranks`, or of its reduce-scatter.
fn gathered(ranks: usize, elements: u64) -> u64 {
    let ranks = ranks as u64;
    assert_eq!(elements % ranks, 0);
    bytes((ranks - 1) * (elements / ranks))
}

/// Counts and sums of the loss and the norm, one word each.
fn words(line: Line, calls: u64, ranks: usize) -> ((Line, Traffic), (u64, u64)) {
    (
        (line, Traffic::Words),
        (calls, calls * 8 * (ranks as u64 - 1)),
    )
}

/// What fully sharded data parallelism moves along Z: each weight is gathered for the forward and for the backward and its
/// gradient reduce-scattered; embedding and head, which need no second look, are gathered once each.
fn fully_sharded(config: &ModelConfig, z: usize, micro_batches: u64) -> Volumes {
    let weights = 9 * config.layers as u64 + 1;
    let (inner, vocabulary) = (
        config.non_embedding_parameters(),
        (config.vocab * config.hidden) as u64,
    );
    Volumes::from([
        (
            (Line::Z, GATHERED),
            (
                micro_batches * (2 * weights + 2),
                micro_batches * (2 * gathered(z, inner) + 2 * gathered(z, vocabulary)),
            ),
        ),
        (
            (Line::Z, SCATTERED),
            (
                micro_batches * (weights + 2),
                micro_batches * (gathered(z, inner) + 2 * gathered(z, vocabulary)),
            ),
        ),
        words(Line::Z, 3, z),
    ])
}

/// What data parallelism moves for gradients of `elements` in one bucket, and `ZeRO-1` with a sharded optimizer.
fn data_parallel(d: usize, elements: u64, shard_optimizer: bool) -> Volumes {
    let mut volumes = Volumes::from([words(Line::Data, 3, d)]);
    if shard_optimizer {
        let half = gathered(d, elements);
        assert_eq!(2 * half, all_reduced(d, elements));
        volumes.insert((Line::Data, SCATTERED), (1, half));
        volumes.insert((Line::Data, GATHERED), (1, half));
    } else {
        volumes.insert((Line::Data, ADDED), (1, all_reduced(d, elements)));
    }
    volumes
}

#[test]
fn z_alone_is_fsdp() {
    for z in [2, 4] {
        for tied in [false, true] {
            for recompute in [Recompute::None, Recompute::Block] {
                let (config, grid) = (model(tied), Grid::new(1, 1, z, 1));
                let schedule = Schedule {
                    recompute,
                    ..Schedule::default()
                };
                let result = run(&config, &grid, schedule, ROWS / z);
                for volumes in &result.volumes {
                    assert_eq!(volumes, &fully_sharded(&config, z, 1), "{grid} {tied}");
                }
                assert_equals_one_rank(&grid.to_string(), &config, schedule, &result);
            }
        }
    }
}

#[test]
fn x_and_data_are_megatron_tensor_parallelism_and_data_parallelism() {
    // With four ranks and two key-value heads, each head is on two ranks.
    for (x, d, recompute) in [
        (2, 1, Recompute::None),
        (2, 2, Recompute::None),
        (4, 2, Recompute::None),
        (2, 2, Recompute::Block),
    ] {
        let (config, grid) = (model(false), Grid::new(x, 1, 1, d));
        let schedule = Schedule {
            recompute,
            ..Schedule::default()
        };
        let result = run(&config, &grid, schedule, ROWS / d);

        let [layers, hidden, dim] =
            [config.layers, config.hidden, config.head_dim].map(|n| n as u64);
        let own = |size: usize| size.div_ceil(x) as u64;
        let key = dim * own(config.kv_heads) * hidden; // a rank's part of W_k, or of W_v
        let block = 2 * (dim * own(config.heads) * hidden + key)
            + 3 * own(config.ffn) * hidden
            + 2 * hidden;
        let parameters = layers * block + hidden + 2 * own(config.vocab) * hidden;
        // Two sums forward and two backward; under recomputation the first is made again.
        let sums = match recompute {
            Recompute::None => 4,
            Recompute::Block => 5,
        };
        for (index, volumes) in result.volumes.iter().enumerate() {
            let [m, kept] = tokens(&grid, index);
            let mut expected = Volumes::from([
                (
                    (Line::X, ADDED),
                    (
                        layers * sums + 3,
                        (layers * sums + 1) * all_reduced(x, m * hidden) // blocks, embedding
                            + all_reduced(x, kept * hidden) // dX of the head
                            + all_reduced(x, 2 * kept), // Σexp and target logit
                    ),
                ),
                ((Line::X, LARGEST), (1, all_reduced(x, kept))),
                words(Line::X, 1, x),
            ]);
            if d > 1 {
                expected.extend(data_parallel(d, parameters, false));
            }
            if x == 4 {
                expected.insert(
                    (Line::Replicas, ADDED),
                    (2 * layers, 2 * layers * all_reduced(2, key)),
                );
            }
            assert_eq!(volumes, &expected, "{grid} {recompute:?} rank {index}");
        }
        assert_equals_one_rank(&grid.to_string(), &config, schedule, &result);
    }
}

#[test]
fn data_alone_is_data_parallelism_and_zero_1_with_a_sharded_optimizer() {
    for d in [2, 4] {
        for shard_optimizer in [false, true] {
            let (config, grid) = (model(false), Grid::new(1, 1, 1, d));
            let schedule = Schedule {
                shard_optimizer,
                ..Schedule::default()
            };
            let result = run(&config, &grid, schedule, ROWS / d);
            let expected = data_parallel(d, config.parameters(), shard_optimizer);
            for volumes in &result.volumes {
                assert_eq!(volumes, &expected, "{grid} sharded {shard_optimizer}");
            }
            assert_equals_one_rank(&grid.to_string(), &config, schedule, &result);
        }
    }
}

#[test]
fn z_and_data_are_hybrid_sharding() {
    for (z, d, shard_optimizer, micro_batches) in
        [(2, 2, false, 1), (2, 2, true, 2), (4, 2, false, 2)]
    {
        let (config, grid) = (model(false), Grid::new(1, 1, z, d));
        let schedule = Schedule {
            shard_optimizer,
            ..Schedule::default()
        };
        let result = run(&config, &grid, schedule, ROWS / z / d / micro_batches);
        // Weights move for every micro-batch, gradients between replicas once a step.
        let mut expected = fully_sharded(&config, z, micro_batches as u64);
        let shard = config.parameters() / z as u64;
        expected.extend(data_parallel(d, shard, shard_optimizer));
        for volumes in &result.volumes {
            assert_eq!(volumes, &expected, "{grid} sharded {shard_optimizer}");
        }
        assert_equals_one_rank(&grid.to_string(), &config, schedule, &result);
    }
}
