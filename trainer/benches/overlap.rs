//! Does overlap pay? For each switch of the schedule: the wait that is exposed with it off and on, over a link that makes
//! communication about as long as computation, and the share of what can be hidden that is hidden.
//!
//! What can be hidden is computed collective by collective: no more than the collective takes, and no more than the
//! arithmetic that may run behind it. The rate of arithmetic is that of the same step without a link. More than all of it
//! is hidden where overlap also covers that ranks which share cores are not equally fast.
//!
//! `cargo bench -p axmem-trainer --bench overlap`, on an otherwise idle machine.

use std::time::Duration;

use axmem_trainer::comm::{Link, Links};
use axmem_trainer::launch::Threads;
use axmem_trainer::{
    Grid, Llama, ModelConfig, Optimizer, Overlap, Result, Row, Schedule, TrainConfig, Trainer,
};

const SEQUENCE: usize = 96;
const STEPS: usize = 7;
/// The share of what can be hidden that each switch is to hide.
const ENOUGH: f64 = 0.7;

fn model() -> ModelConfig {
    ModelConfig {
        vocab: 512,
        hidden: 384,
        layers: 5,
        heads: 8,
        kv_heads: 8,
        head_dim: 48,
        ffn: 1024,
        max_positions: SEQUENCE,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: false,
        qkv_bias: false,
        output_bias: false,
        rope_scaling: None,
    }
}

/// What the model is made of, on one rank: elements and operations.
struct Sizes {
    /// m: tokens of a rank.
    tokens: f64,
    hidden: f64,
    query: f64,
    ffn: f64,
    layers: f64,
    vocab: f64,
    ranks: f64,
}

impl Sizes {
    /// Operations of a product of all tokens with a whole `[a, b]` matrix, split over `ways` ranks.
    fn product(&self, a: f64, b: f64, ways: f64) -> f64 {
        2.0 * self.tokens * a * b / ways
    }

    /// Elements of a block's matrices.
    fn block(&self) -> f64 {
        4.0 * self.hidden * self.query + 3.0 * self.hidden * self.ffn
    }
}

/// A switch, on the axis that it concerns.
struct Case {
    name: &'static str,
    grid: fn(usize) -> Grid,
    on: Overlap,
    off: Overlap,
    /// Ring bytes of the axis's collectives in one step, those behind the switch and others that share the link.
    bytes: fn(&Sizes) -> f64,
    /// Seconds that can be hidden, given seconds for a byte and for an operation.
    hideable: fn(&Sizes, f64, f64) -> f64,
}

fn all_reduce(elements: f64, ranks: f64) -> f64 {
    2.0 * 4.0 * elements * (ranks - 1.0) / ranks
}

fn cases() -> Vec<Case> {
    let all = Overlap::default();
    vec![
        Case {
            name: "OAR (dX behind dW)",
            grid: |ranks| Grid::new(ranks, 1, 1, 1),
            on: all,
            off: Overlap {
                all_reduce: false,
                ..all
            },
            // Forward: attention output and down; backward: q/k/v and gate/up.
            bytes: |s| 4.0 * s.layers * all_reduce(s.tokens * s.hidden, s.ranks),
            hideable: |s, byte, operation| {
                let sum = byte * all_reduce(s.tokens * s.hidden, s.ranks);
                let inputs = operation * 3.0 * s.product(s.hidden, s.query, s.ranks);
                let gates = operation * 2.0 * s.product(s.hidden, s.ffn, s.ranks);
                s.layers * (sum.min(inputs) + sum.min(gates))
            },
        },
        Case {
            name: "ORS (dW over Z behind the backward)",
            grid: |ranks| Grid::new(1, 1, ranks, 1),
            on: Overlap {
                all_gather: 4,
                ..all
            },
            off: Overlap {
                all_gather: 4,
                reduce_scatter: false,
                ..all
            },
            // Two gathers and one scatter of every weight share the link.
            bytes: |s| 3.0 * 4.0 * s.layers * s.block() * (s.ranks - 1.0) / s.ranks,
            hideable: |s, byte, operation| {
                let scatter = byte * 4.0 * s.layers * s.block() * (s.ranks - 1.0) / s.ranks;
                let backward = operation * 2.0 * s.product(1.0, s.layers * s.block(), 1.0);
                scatter.min(backward - scatter) // the gathers of the backward take as long
            },
        },
        Case {
            name: "OAG (weights ahead of use)",
            grid: |ranks| Grid::new(1, 1, ranks, 1),
            on: Overlap {
                all_gather: 4,
                ..all
            },
            off: Overlap {
                all_gather: 0,
                ..all
            },
            bytes: |s| 3.0 * 4.0 * s.layers * s.block() * (s.ranks - 1.0) / s.ranks,
            hideable: |s, byte, operation| {
                let gather = byte * 4.0 * s.layers * s.block() * (s.ranks - 1.0) / s.ranks;
                let forward = operation * s.product(1.0, s.layers * s.block(), 1.0);
                // The scatters of the backward share its time.
                gather.min(forward) + gather.min((2.0 * forward - gather).max(0.0))
            },
        },
        Case {
            name: "row chunks (Y behind other products)",
            grid: |ranks| Grid::new(1, ranks, 1, 1),
            on: Overlap {
                row_chunks: 4,
                ..all
            },
            off: Overlap {
                row_chunks: 4,
                forward: false,
                ..all
            },
            // Forward: q, k, v, gate, up; backward: dX of the attention output and of down.
            bytes: |s| s.layers * all_reduce(s.tokens * (4.0 * s.query + 3.0 * s.ffn), s.ranks),
            hideable: |s, byte, operation| {
                let pipeline = |products: f64, features: f64| {
                    let sum = byte * products * all_reduce(s.tokens * features, s.ranks);
                    let compute = operation * products * s.product(s.hidden, features, s.ranks);
                    // The first chunk has nothing to hide, the last nothing to hide behind.
                    sum.min(compute) * (1.0 - 1.0 / (4.0 * products))
                };
                s.layers * (pipeline(3.0, s.query) + pipeline(2.0, s.ffn))
            },
        },
        Case {
            name: "Data (gradients behind the backward)",
            grid: |ranks| Grid::new(1, 1, 1, ranks),
            on: Overlap {
                bucket_bytes: 4 << 20,
                ..all
            },
            off: Overlap {
                bucket_bytes: 4 << 20,
                data: false,
                ..all
            },
            bytes: |s| all_reduce(s.layers * s.block() + 2.0 * s.vocab * s.hidden, s.ranks),
            hideable: |s, byte, operation| {
                // Nothing is left behind which the last block's could hide.
                let sums = byte * all_reduce((s.layers - 1.0) * s.block(), s.ranks);
                let backward = operation * 2.0 * s.product(1.0, (s.layers - 1.0) * s.block(), 1.0);
                sums.min(backward)
            },
        },
    ]
}

/// Median over the steps of (seconds of the step, exposed seconds on all axes), averaged over the ranks.
fn measure(grid: &Grid, rows: &[Row], overlap: Overlap, link: Option<Link>) -> Result<[f64; 2]> {
    let threads = Threads {
        links: Links {
            x: link,
            y: link,
            z: link,
            data: link,
        },
        ..Threads::default()
    };
    let ranks = threads.run(grid, |rank| {
        let config = TrainConfig {
            optimizer: Optimizer::Sgd,
            clip: None,
            micro_batch: rows.len(),
            schedule: Schedule {
                overlap,
                ..Schedule::default()
            },
            goldfish: None,
        };
        let mut trainer = Trainer::new(rank, Llama::initialise(&model(), rank, 0)?, config)?;
        let mut steps = Vec::new();
        for _ in 0..=STEPS {
            rank.ledger.take();
            let record = trainer.step(rank, rows, 1e-3)?;
            let exposed: f64 = rank.ledger.exposed().values().sum();
            steps.push([record.seconds, exposed]);
        }
        Ok(steps.split_off(1)) // the first step fills the pool
    })?;
    Ok([0, 1].map(|what| {
        let mut means: Vec<f64> = (0..STEPS)
            .map(|step| ranks.iter().map(|steps| steps[step][what]).sum::<f64>())
            .map(|sum| sum / ranks.len() as f64)
            .collect();
        means.sort_by(f64::total_cmp);
        means[STEPS / 2]
    }))
}

fn main() -> Result<()> {
    let config = model();
    let mut short = Vec::new();
    println!(
        "| switch | ranks | step, no link | exposed off | exposed on | can be hidden | hidden |"
    );
    println!("|---|---|---|---|---|---|---|");
    for case in cases() {
        for ranks in [2, 4] {
            let grid = (case.grid)(ranks);
            let shares = grid.z * grid.data;
            let rows: Vec<Row> = (0..4 * shares)
                .map(|row| {
                    let ids = (0..SEQUENCE).map(|i| ((row * 31 + i * 7) % config.vocab) as u32);
                    Row::document(ids.collect(), false)
                })
                .collect();
            let sizes = Sizes {
                tokens: (4 * SEQUENCE) as f64,
                hidden: config.hidden as f64,
                query: (config.heads * config.head_dim) as f64,
                ffn: config.ffn as f64,
                layers: config.layers as f64,
                vocab: config.vocab as f64,
                ranks: ranks as f64,
            };
            let [seconds, waiting] = measure(&grid, &rows, case.on, None)?;
            let compute = seconds - waiting;
            let ways = (grid.x * grid.y) as f64;
            let operations = 3.0 * sizes.product(1.0, sizes.layers * sizes.block(), ways);
            let bandwidth = (case.bytes)(&sizes) / (0.8 * compute);
            let link = Some(Link {
                bandwidth,
                latency: Duration::from_micros(20),
            });
            let [_, off] = measure(&grid, &rows, case.off, link)?;
            let [_, on] = measure(&grid, &rows, case.on, link)?;
            let hideable = (case.hideable)(&sizes, 1.0 / bandwidth, compute / operations);
            let hidden = (off - on) / hideable;
            if hidden < ENOUGH {
                short.push(format!("{} on {ranks} ranks", case.name));
            }
            println!(
                "| {} | {ranks} | {seconds:.3} s | {off:.3} s | {on:.3} s | {hideable:.3} s | {:.0} % |",
                case.name,
                100.0 * hidden
            );
        }
    }
    if !short.is_empty() {
        println!("less than {ENOUGH} hidden: {}", short.join(", "));
        std::process::exit(1);
    }
    Ok(())
}
