//! The layers of a step, forward and backward, as sizes.

use super::replay::{ACTIVATIONS, GATHERED, Replay, STAGING};
use super::sizes::Part::{
    AttentionNorm, Down, Gate, Key, KeyBias, MlpNorm, Output, OutputBias, Query, QueryBias, Up,
    Value, ValueBias,
};
use super::sizes::{Sizes, Weight};
use super::{MicroBatch, Plan};
use crate::schedule::{AttentionSplit, Recompute};

impl Replay<'_> {
    /// [`Linear::forward`](crate::layers::Linear) of `rows` rows to `out` features, summed over `ranks`.
    fn linear(&mut self, weight: Weight, elements: usize, ranks: usize) {
        self.weight(weight);
        self.take(ACTIVATIONS, elements);
        self.release(weight);
        let staging = self.sum_staging(elements, ranks);
        self.take(STAGING, staging);
    }

    /// The end of [`Replay::linear`]: chunks of rows are joined.
    fn joined(&mut self, elements: usize, ranks: usize) {
        if ranks > 1 && self.plan.schedule.overlap.row_chunks > 1 {
            self.pass_by(ACTIVATIONS, elements);
        }
        let staging = self.sum_staging(elements, ranks);
        self.free(STAGING, staging);
    }

    pub(super) fn micro_batch(&mut self, batch: &MicroBatch, last: bool) {
        if self.plan.grid.z > 1 {
            self.ahead = self.sizes.order(self.plan.schedule.recompute);
        }
        let recompute = self.plan.schedule.recompute == Recompute::Block;
        let (m, h) = (batch.tokens, self.sizes.h);
        let x = self.plan.grid.x;

        self.take(ACTIVATIONS, m * h); // the stream
        self.use_weight(Weight::Embedding);
        self.sum(m * h, x);
        let saved = self.saved(batch);
        for block in 0..self.sizes.blocks {
            self.block_inner(block, batch);
            self.linear(Weight::Block(block, Down), m * h, x);
            self.joined(m * h, x);
            let given_up = if recompute {
                saved
            } else {
                self.made_again(batch)
            };
            self.free(ACTIVATIONS, given_up);
        }
        self.norm_forward(Weight::FinalNorm, m);
        self.head(batch, last);
        self.take(ACTIVATIONS, m * h); // the gradient of the stream
        self.weight(Weight::FinalNorm);
        self.norm_backward(Weight::FinalNorm, m, last);
        self.free(ACTIVATIONS, 2 * m * h + m);
        self.end_block(last);
        for block in (0..self.sizes.blocks).rev() {
            if recompute {
                self.keep = true;
                self.block_inner(block, batch);
            }
            self.block_backward(block, batch, last);
            self.end_block(last);
        }
        self.weight_gradient(Weight::Embedding, last);
        self.settle(0, last);
        self.free(ACTIVATIONS, m * h);
    }

    /// [`Pass::end_block`](crate::pass::Pass::end_block).
    fn end_block(&mut self, last: bool) {
        self.keep = false;
        for kept in std::mem::take(&mut self.kept).into_values() {
            self.free(GATHERED, kept);
        }
        let recent = std::mem::take(&mut self.of_this_block);
        self.settle(recent, last);
    }

    /// What a block keeps for its backward besides its input.
    fn saved(&self, batch: &MicroBatch) -> usize {
        let Sizes { h, q, f, .. } = self.sizes;
        let m = batch.tokens;
        let norms = 2 * (m * h + m);
        norms + self.attention_saved(batch) + m * q + m * h + 3 * m * f
    }

    /// What a block gives up after its forward without recomputation: both normed streams and the product of gate and up.
    fn made_again(&self, batch: &MicroBatch) -> usize {
        batch.tokens * (2 * self.sizes.h + self.sizes.f)
    }

    /// Queries, keys, values and log-sum-exp.
    fn attention_saved(&self, batch: &MicroBatch) -> usize {
        let Sizes { q, k, .. } = self.sizes;
        let heads = self.plan.model.heads / self.plan.grid.x;
        let rows = self.attended(batch);
        rows * (q + 2 * k) + batch.own * heads
    }

    /// Rows of the buffers that the attention works on, padding included.
    fn attended(&self, batch: &MicroBatch) -> usize {
        if self.splits() {
            batch.longest
        } else {
            batch.tokens
        }
    }

    fn splits(&self) -> bool {
        self.plan.grid.y > 1 && self.plan.schedule.attention == AttentionSplit::YSharded
    }

    fn is_even(&self, batch: &MicroBatch) -> bool {
        batch.longest * self.plan.grid.y == batch.tokens
    }

    fn norm_forward(&mut self, gain: Weight, m: usize) {
        self.take(ACTIVATIONS, m);
        self.sum(m, self.plan.grid.y);
        self.take(ACTIVATIONS, m * self.sizes.h);
        self.use_weight(gain);
    }

    /// The gain is there already.
    fn norm_backward(&mut self, gain: Weight, m: usize, last: bool) {
        self.take(ACTIVATIONS, m);
        self.sum(m, self.plan.grid.y);
        self.release(gain);
        self.weight_gradient(gain, last);
        self.free(ACTIVATIONS, m);
    }

    /// [`Block::recompute`](crate::layers::Block): everything but `down`.
    fn block_inner(&mut self, block: usize, batch: &MicroBatch) {
        let at = |part| Weight::Block(block, part);
        let Sizes { h, q, k, f, .. } = self.sizes;
        let (m, x, y) = (batch.tokens, self.plan.grid.x, self.plan.grid.y);
        self.norm_forward(at(AttentionNorm), m);
        let projections = [(at(Query), q), (at(Key), k), (at(Value), k)];
        let heads = self.plan.model.heads / x;
        if self.splits() {
            let s = batch.longest;
            let spread = |width: usize| y * s * width;
            for (weight, width) in projections {
                self.weight(weight);
                self.take(ACTIVATIONS, m * width);
                self.release(weight);
                self.spread(batch, width);
                self.take(ACTIVATIONS, s * width);
                let staging = self.scatter_staging(spread(width));
                self.take(STAGING, staging);
            }
            for (_, width) in projections {
                self.free(ACTIVATIONS, spread(width));
                let staging = self.scatter_staging(spread(width));
                self.free(STAGING, staging);
            }
            self.biases(block);
            self.take(ACTIVATIONS, s * q + batch.own * heads);
            self.take(ACTIVATIONS, spread(q));
            self.free(ACTIVATIONS, s * q);
            self.join(batch, q);
        } else {
            for (weight, width) in projections {
                self.linear(weight, m * width, y);
            }
            for (_, width) in projections {
                self.joined(m * width, y);
            }
            self.biases(block);
            self.take(ACTIVATIONS, m * q + m * heads);
        }
        self.linear(at(Output), m * h, x);
        self.joined(m * h, x);
        if self.sizes.output_bias {
            self.use_weight(at(OutputBias));
        }
        self.norm_forward(at(MlpNorm), m);
        for part in [Gate, Up] {
            self.linear(at(part), m * f, y);
        }
        for _ in [Gate, Up] {
            self.joined(m * f, y);
        }
        self.take(ACTIVATIONS, m * f); // product
    }

    fn biases(&mut self, block: usize) {
        if self.sizes.qkv_bias {
            for part in [QueryBias, KeyBias, ValueBias] {
                self.use_weight(Weight::Block(block, part));
            }
        }
    }

    /// `[m, width]` becomes `[y, s, width]`.
    fn spread(&mut self, batch: &MicroBatch, width: usize) {
        if !self.is_even(batch) {
            self.take(ACTIVATIONS, self.plan.grid.y * batch.longest * width);
            self.free(ACTIVATIONS, batch.tokens * width);
        }
    }

    /// `[y, s, width]` becomes `[m, width]`.
    fn join(&mut self, batch: &MicroBatch, width: usize) {
        if !self.is_even(batch) {
            self.take(ACTIVATIONS, batch.tokens * width);
            self.free(ACTIVATIONS, self.plan.grid.y * batch.longest * width);
        }
    }

    /// [`Head::loss_and_gradient`](crate::layers::Head); leaves the gradient `[m, h]`, and frees the normed stream.
    fn head(&mut self, batch: &MicroBatch, last: bool) {
        let Sizes { h, v, .. } = self.sizes;
        let (m, kept) = (batch.tokens, batch.kept);
        let Plan { chunk, grid, .. } = *self.plan;
        self.gradient(Weight::Head);
        self.take(ACTIVATIONS, 2 * kept * h);
        self.weight(Weight::Head);
        let mut held = 0;
        for start in (0..kept).step_by(chunk) {
            self.free(ACTIVATIONS, held);
            let rows = chunk.min(kept - start);
            self.take(ACTIVATIONS, rows * v);
            self.sum(rows * v, grid.y);
            self.take(ACTIVATIONS, rows);
            self.sum(rows, grid.x);
            self.take(ACTIVATIONS, 2 * rows);
            self.sum(2 * rows, grid.x);
            self.free(ACTIVATIONS, 3 * rows);
            held = rows * v;
        }
        self.release(Weight::Head);
        let staging = self.sum_staging(kept * h, grid.x);
        self.take(STAGING, staging);
        self.free(ACTIVATIONS, held);
        self.reduce(Weight::Head, last);
        self.free(STAGING, staging);
        self.take(ACTIVATIONS, m * h);
        self.free(ACTIVATIONS, 2 * kept * h + m * h);
    }

    fn block_backward(&mut self, block: usize, batch: &MicroBatch, last: bool) {
        let at = |part| Weight::Block(block, part);
        let Sizes { h, f, .. } = self.sizes;
        let (m, x, y) = (batch.tokens, self.plan.grid.x, self.plan.grid.y);
        let is_given_up = self.plan.schedule.recompute == Recompute::None;
        self.weight(at(MlpNorm));
        if is_given_up {
            self.take(ACTIVATIONS, m * h + m * f); // normed, product
        }
        self.take(ACTIVATIONS, m * f); // dproduct
        self.use_weight(at(Down));
        let staging = self.sum_staging(m * f, y);
        self.take(STAGING, staging);
        self.weight_gradient(at(Down), last);
        self.free(STAGING, staging);
        self.free(ACTIVATIONS, 2 * m * f); // product, dproduct
        self.take(ACTIVATIONS, m * h); // dx
        self.use_weight(at(Gate));
        self.use_weight(at(Up));
        self.input_sum(m * h, x, &[at(Gate), at(Up)], last);
        self.free(ACTIVATIONS, 2 * m * f); // dgate, dup
        self.norm_backward(at(MlpNorm), m, last);
        self.free(ACTIVATIONS, 3 * m * h + m); // normed, middle, dx

        self.weight(at(AttentionNorm));
        if is_given_up {
            self.take(ACTIVATIONS, m * h); // normed
        }
        self.attention_backward(block, batch, last);
        self.norm_backward(at(AttentionNorm), m, last);
        self.free(ACTIVATIONS, 3 * m * h + m); // normed, input, dx
    }

    /// The sum of dX over the out-features, during the products for the given weights.
    fn input_sum(&mut self, elements: usize, ranks: usize, weights: &[Weight], last: bool) {
        let staging = self.sum_staging(elements, ranks);
        self.take(STAGING, staging);
        for &weight in weights {
            self.weight_gradient(weight, last);
        }
        self.free(STAGING, staging);
    }

    fn attention_backward(&mut self, block: usize, batch: &MicroBatch, last: bool) {
        let at = |part| Weight::Block(block, part);
        let Sizes { h, q, k, .. } = self.sizes;
        let (m, x, y) = (batch.tokens, self.plan.grid.x, self.plan.grid.y);
        let with_bias = |weight, bias, has_bias| {
            if has_bias {
                vec![at(weight), at(bias)]
            } else {
                vec![at(weight)]
            }
        };
        let output = with_bias(Output, OutputBias, self.sizes.output_bias);
        let inputs = [(Query, QueryBias), (Key, KeyBias), (Value, ValueBias)]
            .map(|(weight, bias)| with_bias(weight, bias, self.sizes.qkv_bias))
            .concat();
        let rows = self.attended(batch);
        self.take(ACTIVATIONS, m * q); // dout
        self.use_weight(at(Output));
        let mut dout = m * q;
        let staging;
        if self.splits() {
            self.spread(batch, q);
            self.take(ACTIVATIONS, rows * q);
            staging = self.scatter_staging(y * rows * q);
            dout = y * rows * q;
        } else {
            staging = self.sum_staging(m * q, y);
        }
        self.take(STAGING, staging);
        for weight in output {
            self.weight_gradient(weight, last);
        }
        self.free(STAGING, staging);
        if self.splits() {
            self.free(ACTIVATIONS, dout);
            dout = rows * q;
        }
        self.take(ACTIVATIONS, rows * (q + 2 * k)); // dq, dk, dv
        self.pass_by(ACTIVATIONS, batch.own * (q + 2 * k)); // workspace
        let saved = self.attention_saved(batch) + m * q;
        self.free(ACTIVATIONS, saved + dout);
        let mut gradients = rows * (q + 2 * k);
        if self.splits() {
            self.take(ACTIVATIONS, y * gradients);
            self.take(ACTIVATIONS, m * h); // dx
            for width in [q, k, k] {
                self.free(ACTIVATIONS, rows * width);
                self.join(batch, width);
            }
            gradients = m * (q + 2 * k);
        } else {
            self.take(ACTIVATIONS, m * h); // dx
        }
        for part in [Query, Key, Value] {
            self.use_weight(at(part));
        }
        self.input_sum(m * h, x, &inputs, last);
        self.free(ACTIVATIONS, gradients);
    }
}
