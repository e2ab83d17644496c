//! The matrix products of a training step on one rank, and what they take alone: the share of a step that is not arithmetic
//! is the rest.

use std::collections::BTreeMap;
use std::time::Instant;

use rayon::prelude::*;

use crate::batch::Row;
use crate::config::ModelConfig;
use crate::kernels::attention::TILE;
use crate::kernels::matmul::{
    Matrix, MatrixMut, Output, matmul_nn, matmul_nt, matmul_tn, product_serial,
};
use crate::llama::LOSS_CHUNK_ROWS;
use crate::schedule::Recompute;

/// What of a product's operands is transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// `A Bᵀ`: forward.
    Nt,
    /// `A B`: gradient of the input.
    Nn,
    /// `Aᵀ B`: gradient of the weight.
    Tn,
}

/// Who works on a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Threads {
    /// All threads on one product.
    All,
    /// Every thread on products of its own: the tiles of attention.
    Each,
}

/// Products of one kind: `C[m, n]` from an inner dimension k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Product {
    /// What is transposed.
    pub form: Form,
    /// `[m, n, k]`
    pub shape: [usize; 3],
    /// Who works on it.
    pub threads: Threads,
}

impl Product {
    /// Operations of one; a multiplication and an addition are two.
    pub fn flops(&self) -> u64 {
        self.shape
            .iter()
            .fold(2, |flops, &size| flops * size as u64)
    }

    fn run(&self, c: &mut [f32], a: &[f32], b: &[f32]) {
        let [m, n, k] = self.shape;
        let (c, a, b) = (&mut c[..m * n], &a[..m * k], &b[..n * k]);
        match (self.threads, self.form) {
            (Threads::All, Form::Nt) => matmul_nt(c, a, b, self.shape, Output::Set),
            (Threads::All, Form::Nn) => matmul_nn(c, a, b, self.shape, Output::Set),
            (Threads::All, Form::Tn) => matmul_tn(c, a, b, self.shape, Output::Set),
            (Threads::Each, form) => {
                let (a, b) = match form {
                    Form::Nt => (Matrix::new(a, m, k), Matrix::new(b, n, k).transposed()),
                    Form::Nn => (Matrix::new(a, m, k), Matrix::new(b, k, n)),
                    Form::Tn => (Matrix::new(a, k, m).transposed(), Matrix::new(b, k, n)),
                };
                product_serial(MatrixMut::new(c, m, n), a, b, 1.0, Output::Set);
            }
        }
    }

    /// Seconds for `times` of them.
    fn seconds(&self, times: u64, [c, a, b]: [&mut [f32]; 3]) -> f64 {
        let started = Instant::now();
        match self.threads {
            Threads::All => (0..times).for_each(|_| self.run(c, a, b)),
            Threads::Each => {
                let [m, n, _] = self.shape;
                let target = || vec![0.0; m * n];
                let times = (0..times as usize).into_par_iter().with_min_len(16);
                times.for_each_init(target, |c, _| self.run(c, a, b));
            }
        }
        started.elapsed().as_secs_f64()
    }
}

/// The products of one step, and how many there are of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Products(BTreeMap<Product, u64>);

impl Products {
    /// Those of a step on `rows` without Goldfish, the only rank of its grid running `micro_batch` of them at a time.
    pub fn of_step(
        config: &ModelConfig,
        rows: &[Row],
        micro_batch: usize,
        recompute: Recompute,
    ) -> Self {
        let mut products = Self::default();
        for rows in rows.chunks(micro_batch) {
            let segments = rows.iter().flat_map(|row| &row.segments).copied();
            products.add_micro_batch(config, &segments.collect::<Vec<_>>(), recompute);
        }
        products
    }

    fn add_micro_batch(&mut self, config: &ModelConfig, segments: &[usize], recompute: Recompute) {
        let ModelConfig {
            hidden,
            ffn,
            head_dim,
            ..
        } = *config;
        let [query, key] = [config.heads, config.kv_heads].map(|heads| heads * head_dim);
        let again = u64::from(recompute == Recompute::Block);
        let tokens: usize = segments.iter().sum();
        // `[out, in]`, how many in a block, and how often their forward runs once more.
        for (out, input, times, again) in [
            (query, hidden, 1, again),
            (key, hidden, 2, again),
            (hidden, query, 1, again),
            (ffn, hidden, 2, again),
            (hidden, ffn, 1, 0),
        ] {
            let times = times * config.layers as u64;
            self.add(Form::Nt, [tokens, out, input], times * (1 + again));
            self.add(Form::Nn, [tokens, input, out], times);
            self.add(Form::Tn, [out, input, tokens], times);
        }
        let kept = tokens - segments.iter().filter(|&&length| length > 0).count();
        for first in (0..kept).step_by(LOSS_CHUNK_ROWS) {
            let rows = LOSS_CHUNK_ROWS.min(kept - first);
            self.add(Form::Nt, [rows, config.vocab, hidden], 1);
            self.add(Form::Nn, [rows, hidden, config.vocab], 1);
            self.add(Form::Tn, [config.vocab, hidden, rows], 1);
        }
        let heads = (config.heads * config.layers) as u64;
        for &length in segments {
            for first in (0..length).step_by(TILE) {
                for start in (0..=first).step_by(TILE) {
                    let sizes = [first, start].map(|at| TILE.min(length - at));
                    self.add_tile(sizes, head_dim, heads, 1 + again);
                }
            }
        }
    }

    fn add(&mut self, form: Form, shape: [usize; 3], times: u64) {
        self.add_on(Threads::All, form, shape, times);
    }

    fn add_on(&mut self, threads: Threads, form: Form, shape: [usize; 3], times: u64) {
        let product = Product {
            form,
            shape,
            threads,
        };
        *self.0.entry(product).or_default() += times;
    }

    /// A tile of scores `[q, k]`: two products of the forward, five of the backward.
    fn add_tile(&mut self, [q, k]: [usize; 2], dim: usize, heads: u64, forwards: u64) {
        let of_forward = [(Form::Nt, [q, k, dim]), (Form::Nn, [q, dim, k])];
        let of_backward = [
            (Form::Nt, [q, k, dim]),
            (Form::Nt, [q, k, dim]),
            (Form::Tn, [k, dim, q]),
            (Form::Tn, [k, dim, q]),
            (Form::Nn, [q, dim, k]),
        ];
        for (form, shape) in of_forward {
            self.add_on(Threads::Each, form, shape, heads * forwards);
        }
        for (form, shape) in of_backward {
            self.add_on(Threads::Each, form, shape, heads);
        }
    }

    /// Every kind with how many there are of it.
    pub fn iter(&self) -> impl Iterator<Item = (&Product, u64)> {
        self.0.iter().map(|(product, &times)| (product, times))
    }

    /// Seconds for all of them alone, one kind after another, on buffers of their own.
    pub fn seconds(&self) -> f64 {
        let largest = |size: fn([usize; 3]) -> usize| {
            let sizes = self.0.keys().map(|product| size(product.shape));
            vec![0.5; sizes.max().unwrap_or(0)]
        };
        let mut c = largest(|[m, n, _]| m * n);
        let mut a = largest(|[m, _, k]| m * k);
        let mut b = largest(|[_, n, k]| n * k);
        self.iter()
            .map(|(product, times)| product.seconds(times, [&mut c, &mut a, &mut b]))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::model_flops;

    /// Whole tiles are multiplied where attention sees half of them; all else is what the formula counts.
    #[test]
    fn products_are_the_arithmetic_of_the_model() {
        let config = ModelConfig {
            vocab: 300,
            hidden: 48,
            layers: 3,
            heads: 6,
            kv_heads: 2,
            head_dim: 8,
            ffn: 80,
            max_positions: 128,
            rope_theta: 1e4,
            norm_eps: 1e-5,
            tied: true,
            qkv_bias: false,
            output_bias: false,
            rope_scaling: None,
        };
        let lengths = [100, 64, 65, 7, 128];
        let rows: Vec<Row> = lengths
            .map(|length| Row::document(vec![0; length], false))
            .into();
        let kept = lengths.iter().map(|&length| length as u64 - 1).sum();
        let products = Products::of_step(&config, &rows, 2, Recompute::None);
        let flops = |threads| -> u64 {
            let of_threads = products
                .iter()
                .filter(|(product, _)| product.threads == threads);
            of_threads
                .map(|(product, times)| times * product.flops())
                .sum()
        };
        let pairs: u64 = lengths
            .iter()
            .map(|&length| length as u64 * (length as u64 + 1) / 2)
            .sum();
        let attention = 3 * 2 * config.layers as u64 * pairs * 2 * 48;
        assert_eq!(
            flops(Threads::All),
            model_flops(&config, &rows, kept) - attention
        );
        // The scores are made once more in the backward: 7 products for 6.
        assert!(flops(Threads::Each) > attention * 7 / 6, "{attention}");

        let again = Products::of_step(&config, &rows, 2, Recompute::Block);
        let total = |products: &Products| -> u64 {
            products
                .iter()
                .map(|(product, times)| times * product.flops())
                .sum()
        };
        assert!(total(&again) > total(&products));
        assert!(products.seconds() > 0.0);
    }
}
