//! What a step must communicate, from the tables of the 4D scheme and not from the code that communicates.
//!
//! Every term is one line of the scheme: the axis, the collective, how often, and how many elements a rank hands over.
//! Bytes are those of a ring on buffers padded to a multiple of the group.

use std::collections::BTreeMap;

use axmem_trainer::comm::{Collective, Line, Traffic};
use axmem_trainer::memory::MicroBatch;
use axmem_trainer::{AttentionSplit, Grid, ModelConfig, Recompute, Schedule};

/// Calls and ring bytes of one rank, by line and kind.
pub(crate) type Volumes = BTreeMap<(Line, Traffic), (u64, u64)>;

/// A matrix of the model.
#[derive(Clone, Copy)]
struct Matrix {
    /// Elements of a rank's block.
    block: usize,
    /// All-gathers over Z in a micro-batch.
    gathers: usize,
    /// Reduce-scatters over Z in a micro-batch.
    reduces: usize,
    /// Ranks of X that hold copies.
    copies: usize,
}

struct Count<'a> {
    grid: &'a Grid,
    volumes: Volumes,
}

impl Count<'_> {
    fn size(&self, line: Line, copies: usize) -> usize {
        match line {
            Line::X => self.grid.x,
            Line::Y => self.grid.y,
            Line::Z => self.grid.z,
            Line::Data => self.grid.data,
            Line::Replicas => copies,
        }
    }

    fn add(&mut self, line: Line, traffic: Traffic, ranks: usize, times: usize, bytes: usize) {
        if ranks > 1 && times > 0 {
            let entry = self.volumes.entry((line, traffic)).or_default();
            entry.0 += times as u64;
            entry.1 += (times * bytes) as u64;
        }
    }

    fn tensor(&mut self, line: Line, kind: Collective, times: usize, elements: usize) {
        self.copied(line, kind, times, elements, 1);
    }

    fn copied(
        &mut self,
        line: Line,
        kind: Collective,
        times: usize,
        elements: usize,
        copies: usize,
    ) {
        let p = self.size(line, copies);
        let sent = match kind {
            Collective::AllReduceSum | Collective::AllReduceMax => {
                2 * (p - 1) * elements.div_ceil(p)
            }
            Collective::ReduceScatterSum => (p - 1) * elements / p,
            Collective::AllGather => (p - 1) * elements,
        };
        self.add(line, Traffic::Tensor(kind), p, times, 4 * sent);
    }

    /// All-reduces of `[rows, width]`, each cut into chunks of rows of equal size but for the last.
    fn rows(&mut self, line: Line, times: usize, rows: usize, width: usize, chunks: usize) {
        let size = rows.div_ceil(chunks).max(1);
        for start in (0..rows).step_by(size) {
            let rows = size.min(rows - start);
            self.tensor(line, Collective::AllReduceSum, times, rows * width);
        }
    }

    fn words(&mut self, line: Line, times: usize) {
        let p = self.size(line, 1);
        self.add(line, Traffic::Words, p, times, 8 * (p - 1));
    }
}

/// The volumes of one training step. `chunk` is the number of rows whose logits exist at one time; `one_bucket` says
/// whether all gradients fit one bucket over Data, otherwise each has its own.
#[expect(
    clippy::too_many_lines,
    reason = "one term for each line of the scheme, in its order"
)]
pub(crate) fn step(
    config: &ModelConfig,
    grid: &Grid,
    micro_batches: &[MicroBatch],
    schedule: &Schedule,
    chunk: usize,
    one_bucket: bool,
) -> Volumes {
    use Collective::{AllGather, AllReduceMax, AllReduceSum, ReduceScatterSum};
    let mut count = Count {
        grid,
        volumes: Volumes::new(),
    };
    let (x, y, z) = (grid.x, grid.y, grid.z);
    let hidden = config.hidden / y; // H/y
    let heads = config.heads * config.head_dim / x; // N·D/x
    let copies = (x / config.kv_heads).max(1);
    let keys = config.kv_heads.div_ceil(x) * config.head_dim; // K·D/x, or one head
    let ffn = config.ffn / x; // F/x
    let vocab = config.vocab.div_ceil(x); // V/x, padded
    let blocks = config.layers;
    let chunks = schedule.overlap.row_chunks;
    let recompute = schedule.recompute == Recompute::Block;
    let forwards = if recompute { 2 } else { 1 };

    let matrix = |block: usize| Matrix {
        block,
        gathers: 2, // forward; recomputation and backward share one
        reduces: 1,
        copies: 1,
    };
    let mut matrices = Vec::new();
    for _ in 0..blocks {
        matrices.extend([matrix(hidden), matrix(hidden)]); // norm gains
        matrices.extend([matrix(heads * hidden), matrix(hidden * heads)]); // query, output
        let key = Matrix {
            copies,
            ..matrix(keys * hidden)
        };
        matrices.extend([key, key]); // key, value
        matrices.extend([matrix(ffn * hidden); 3]); // gate, up, down
        assert_eq!(config.qkv_bias, config.output_bias);
        if config.qkv_bias {
            let bias = |block, copies| Matrix {
                gathers: forwards, // a backward does not read it
                copies,
                ..matrix(block)
            };
            matrices.extend([bias(heads, 1), bias(keys, copies), bias(keys, copies)]);
            matrices.push(bias(hidden, 1));
        }
    }
    matrices.push(matrix(hidden)); // final norm
    let once = Matrix {
        gathers: 1, // a lookup has no product in the backward; the head makes both products at once
        ..matrix(vocab * hidden)
    };
    if config.tied {
        matrices.push(Matrix {
            gathers: 2,
            reduces: 2,
            ..once
        });
    } else {
        matrices.extend([once, once]);
    }

    for batch in micro_batches {
        let MicroBatch {
            tokens: m,
            kept,
            longest: share,
            ..
        } = *batch;
        // Z: weights.
        for matrix in &matrices {
            let shard = matrix.block.div_ceil(z);
            if z > 1 {
                count.tensor(Line::Z, AllGather, matrix.gathers, shard);
            }
            count.tensor(Line::Z, ReduceScatterSum, matrix.reduces, shard * z);
            if matrix.copies > 1 {
                count.copied(Line::Replicas, AllReduceSum, 1, shard, matrix.copies);
            }
        }
        // Y: sums of normal layers forward, of transposed layers backward, statistics of norms, logits.
        if schedule.attention == AttentionSplit::YSharded && y > 1 {
            for width in [heads, keys, keys] {
                count.tensor(
                    Line::Y,
                    ReduceScatterSum,
                    forwards * blocks,
                    y * share * width,
                );
                count.tensor(Line::Y, AllGather, blocks, share * width);
            }
            count.tensor(Line::Y, AllGather, forwards * blocks, share * heads);
            count.tensor(Line::Y, ReduceScatterSum, blocks, y * share * heads);
        } else {
            for width in [heads, keys, keys] {
                count.rows(Line::Y, forwards * blocks, m, width, chunks);
            }
            count.tensor(Line::Y, AllReduceSum, blocks, m * heads); // dX of the output projection
        }
        count.rows(Line::Y, forwards * blocks, m, ffn, chunks); // gate
        count.rows(Line::Y, forwards * blocks, m, ffn, chunks); // up
        count.tensor(Line::Y, AllReduceSum, blocks, m * ffn); // dX of down
        let norms = 2 * blocks * (forwards + 1) + 2; // Σx² forward, Σ dy·g·x backward
        count.tensor(Line::Y, AllReduceSum, norms, m);
        // X: sums of transposed layers forward, of normal layers backward, embedding, softmax.
        count.rows(Line::X, forwards * blocks, m, hidden, chunks); // output projection
        count.rows(Line::X, blocks, m, hidden, chunks); // down is not computed again
        count.tensor(Line::X, AllReduceSum, 2 * blocks, m * hidden); // dX of q, k, v; of gate, up
        count.tensor(Line::X, AllReduceSum, 1, m * hidden); // embedding
        count.tensor(Line::X, AllReduceSum, 1, kept * hidden); // dX of the head
        for start in (0..kept).step_by(chunk) {
            let rows = chunk.min(kept - start);
            count.tensor(Line::Y, AllReduceSum, 1, rows * vocab);
            count.tensor(Line::X, AllReduceMax, 1, rows);
            count.tensor(Line::X, AllReduceSum, 1, 2 * rows);
        }
    }
    // Data: gradients, once a step.
    let shards = matrices.iter().map(|matrix| matrix.block.div_ceil(z));
    let shares = shards.clone().map(|len| len.div_ceil(grid.data));
    let buckets: Vec<usize> = match (schedule.shard_optimizer, one_bucket) {
        (false, true) => vec![shards.sum()],
        (false, false) => shards.collect(),
        (true, true) => vec![shares.sum()],
        (true, false) => shares.collect(),
    };
    for bucket in buckets {
        if schedule.shard_optimizer {
            count.tensor(Line::Data, ReduceScatterSum, 1, bucket * grid.data);
            count.tensor(Line::Data, AllGather, 1, bucket);
        } else {
            count.tensor(Line::Data, AllReduceSum, 1, bucket);
        }
    }
    // Kept targets and loss over the ranks with other rows; the norm over all.
    for line in [Line::Z, Line::Data] {
        count.words(line, 3);
    }
    for line in [Line::X, Line::Y] {
        count.words(line, 1);
    }
    count.volumes
}
