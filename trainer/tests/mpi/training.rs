//! Whole training runs as processes against the same runs as threads, bit for bit, and against one rank.

use std::hash::{DefaultHasher, Hash as _, Hasher};

use axmem_trainer::launch::{Mpi, threads};
use axmem_trainer::random::Stream;
use axmem_trainer::{
    AdamW, AttentionSplit, Error, Goldfish, Grid, Hash, Llama, ModelConfig, Optimizer, Overlap,
    Rank, Recompute, Result, Row, Schedule, TrainConfig, Trainer, memory,
};

use crate::collectives::GRIDS;

const STEPS: usize = 20;

/// Two key-value heads: X of 8 holds four copies of each.
fn model() -> ModelConfig {
    ModelConfig {
        vocab: 331,
        hidden: 64,
        layers: 2,
        heads: 16,
        kv_heads: 2,
        head_dim: 4,
        ffn: 128,
        max_positions: 64,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: true,
        qkv_bias: false,
        output_bias: false,
        rope_scaling: None,
    }
}

fn rows(count: usize, length: usize) -> Vec<Row> {
    (0..count)
        .map(|row| {
            let stream = Stream::new(0, &format!("mpi {row}"));
            let length = (length + row * 5 % 7) as u64;
            Row::document(
                (0..length).map(|i| (stream.bits(i) % 331) as u32).collect(),
                true,
            )
        })
        .collect()
}

fn settings(schedule: Schedule, micro_batch: usize) -> TrainConfig {
    TrainConfig {
        optimizer: Optimizer::AdamW(AdamW {
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            decay_norms: false,
        }),
        clip: Some(1.0),
        micro_batch,
        schedule,
        goldfish: Goldfish::new(2, 13, Hash::Portable { key: 7 }).ok(),
    }
}

/// The losses, and a hash of their bits, those of the norms and of this rank's weights.
fn train(rank: &Rank, schedule: Schedule) -> Result<(Vec<f64>, u64)> {
    let rows = rows(16, 15);
    let micro_batch = rows.len().div_ceil(2 * rank.grid.z * rank.grid.data);
    let llama = Llama::initialise(&model(), rank, 3)?;
    let mut trainer = Trainer::new(rank, llama, settings(schedule, micro_batch))?;
    let (mut losses, mut hasher) = (Vec::new(), DefaultHasher::new());
    for _ in 0..STEPS {
        let record = trainer.step(rank, &rows, 1e-3)?;
        losses.push(record.loss);
        (record.loss.to_bits(), record.grad_norm.to_bits()).hash(&mut hasher);
    }
    for param in trainer.llama().params() {
        for value in param.weight.iter() {
            value.to_bits().hash(&mut hasher);
        }
    }
    Ok((losses, hasher.finish()))
}

pub(crate) fn run(mpi: &Mpi) -> Result<()> {
    let (single, _) = train(&Rank::single(), Schedule::default())?;
    let everyone = mpi.world();
    for (turn, [x, y, z, data]) in GRIDS.into_iter().enumerate() {
        let grid = Grid::new(x, y, z, data);
        let schedule = Schedule {
            recompute: [Recompute::None, Recompute::Block][turn % 2],
            attention: [AttentionSplit::YSharded, AttentionSplit::Replicated][turn % 2],
            overlap: Overlap {
                row_chunks: 1 + turn % 2,
                bucket_bytes: 1 << 16,
                ..Overlap::default()
            },
            shard_optimizer: turn % 2 == 1,
        };
        let off = Schedule {
            overlap: schedule.overlap.off(),
            ..schedule
        };
        let (losses, hash) = train(&mpi.rank(&grid)?, schedule)?;
        for (step, (loss, expected)) in losses.iter().zip(&single).enumerate() {
            let error = (loss / expected - 1.0).abs();
            assert!(
                error <= 1e-5,
                "{grid} step {}: loss {loss} for {expected}",
                step + 1
            );
        }
        let (_, without_overlap) = train(&mpi.rank(&grid)?, off)?;
        assert_eq!(hash, without_overlap, "{grid}: overlap changes bits");
        let hashes = everyone.all_gather_words(&[hash])?;
        if mpi.index() == 0 {
            let expected = threads(&grid, |rank| Ok(train(rank, schedule)?.1))?;
            for (rank, (hash, expected)) in hashes.iter().zip(&expected).enumerate() {
                assert_eq!(
                    hash[0], *expected,
                    "{grid} rank {rank}: threads give other bits"
                );
            }
        }
        everyone.sum_count(0)?;
    }
    Ok(())
}

/// The memory of the process beside what the pool counts and what the formula says, for a model of some hundred MiB.
pub(crate) fn memory(mpi: &Mpi) -> Result<()> {
    let grid = Grid::new(1, 1, mpi.size(), 1);
    let model = ModelConfig {
        hidden: 1024,
        layers: 6,
        head_dim: 64,
        ffn: 2816,
        ..model()
    };
    let at_start = resident_peak()?;
    let rank = mpi.rank(&grid)?;
    let schedule = Schedule::default();
    let rows = rows(2 * mpi.size(), 40);
    let llama = Llama::initialise(&model, &rank, 3)?;
    let settings = settings(schedule, 2);
    let optimizer = settings.optimizer;
    let mut trainer = Trainer::new(&rank, llama, settings)?;
    for _ in 0..2 {
        trainer.step(&rank, &rows, 1e-3)?;
    }
    let (pool, process) = (rank.pool.peak_bytes(), resident_peak()? - at_start);
    let own: usize = rows[2 * rank.index..][..2]
        .iter()
        .map(|row| row.ids.len())
        .sum();
    let plan = memory::Plan {
        model: &model,
        grid: &grid,
        schedule: &schedule,
        optimizer: &optimizer,
        chunk: 256,
        staged: true,
    };
    let formula = memory::peak(&plan, &[memory::MicroBatch::full(own, &grid, &schedule)]).total();
    let mib = |bytes: usize| bytes >> 20;
    println!(
        "rank {}: formula {} MiB, pool {} MiB, process {} MiB",
        rank.index,
        mib(formula),
        mib(pool),
        mib(process)
    );
    assert!(pool > 256 << 20, "the pool is large enough to be compared");
    let off = |a: usize, b: usize| (a as f64 / b as f64 - 1.0).abs();
    assert!(off(formula, pool) < 0.05, "formula {formula}, pool {pool}");
    assert!(off(process, pool) < 0.2, "process {process}, pool {pool}");
    Ok(())
}

/// The most bytes that the process had in memory so far.
fn resident_peak() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse()
                .ok()
        })
        .map(|kilobytes: usize| kilobytes << 10)
        .ok_or_else(|| Error::Data("/proc/self/status has no line VmHWM".into()))
}
