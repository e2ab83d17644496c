//! Kernels against plain f64 formulas, and their gradients against finite differences of these.

use axmem_trainer::kernels::attention::{self, Forward, Heads, Segment};
use axmem_trainer::kernels::matmul::{Output, matmul_nn, matmul_nt, matmul_tn};
use axmem_trainer::kernels::{cross_entropy, embedding, rms_norm, swiglu};
use axmem_trainer::random::Stream;

use crate::fixture::relative_error;

fn random(name: &str, len: usize) -> Vec<f32> {
    let stream = Stream::new(1, name);
    (0..len as u64).map(|i| stream.normal(i) as f32).collect()
}

/// Gradient of `f` at `x` by central differences in f64.
fn finite_differences(x: &[f32], f: impl Fn(&[f64]) -> f64) -> Vec<f32> {
    let mut x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    (0..x.len())
        .map(|i| {
            let (value, step) = (x[i], 1e-5);
            x[i] = value + step;
            let above = f(&x);
            x[i] = value - step;
            let below = f(&x);
            x[i] = value;
            ((above - below) / (2.0 * step)) as f32
        })
        .collect()
}

fn weighted(y: &[f64], dy: &[f32]) -> f64 {
    y.iter().zip(dy).map(|(y, &dy)| y * f64::from(dy)).sum()
}

fn transpose(a: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns)
        .map(|i| a[(i % rows) * columns + i / rows])
        .collect()
}

#[test]
fn products_equal_plain_sums_in_every_layout() {
    for [m, n, k] in [[1, 5, 3], [7, 1, 9], [33, 65, 17], [80, 70, 600], [5, 4, 0]] {
        let (a, b) = (random("a", m * k), random("b", k * n));
        let plain: Vec<f32> = (0..m * n)
            .map(|i| {
                let (row, column) = (i / n, i % n);
                (0..k)
                    .map(|l| f64::from(a[row * k + l]) * f64::from(b[l * n + column]))
                    .sum::<f64>() as f32
            })
            .collect();
        let (at, bt) = (transpose(&a, m, k), transpose(&b, k, n));
        for (output, start) in [(Output::Set, 7.0), (Output::Add, 0.5)] {
            let kept = if output == Output::Add { start } else { 0.0 };
            let expected: Vec<f32> = plain.iter().map(|c| c + kept).collect();
            let mut products = [vec![start; m * n], vec![start; m * n], vec![start; m * n]];
            matmul_nn(&mut products[0], &a, &b, [m, n, k], output);
            matmul_nt(&mut products[1], &a, &bt, [m, n, k], output);
            matmul_tn(&mut products[2], &at, &b, [m, n, k], output);
            for c in products {
                let worst = c
                    .iter()
                    .zip(&expected)
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f32::max);
                assert!(worst < 1e-4, "[{m}, {n}, {k}] {output:?}: {worst}");
            }
        }
    }
}

#[test]
fn products_do_not_depend_on_the_number_of_threads_or_rows() {
    let [m, n, k] = [130, 90, 700];
    let (a, b) = (random("a", m * k), random("b", n * k));
    let run = |threads: usize, rows: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads");
        pool.install(|| {
            let mut c = vec![0.0; rows * n];
            matmul_nt(&mut c, &a[..rows * k], &b, [rows, n, k], Output::Set);
            c
        })
    };
    let one = run(1, m);
    assert_eq!(run(2, m), one);
    assert_eq!(run(3, m), one);
    assert_eq!(run(2, 50), one[..50 * n]);
}

fn rms_norm_reference(x: &[f64], gain: &[f64], eps: f64) -> Vec<f64> {
    x.chunks(gain.len())
        .flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / gain.len() as f64;
            let r = 1.0 / (mean + eps).sqrt();
            row.iter()
                .zip(gain)
                .map(move |(x, gain)| x * r * gain)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn rms_norm_and_its_gradients() {
    let (rows, width, eps) = (5, 70, 1e-5);
    let (x, gain, dy) = (
        random("x", rows * width),
        random("g", width),
        random("dy", rows * width),
    );
    let wide = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let mut r = vec![0.0; rows];
    rms_norm::sum_of_squares(&mut r, &x, width);
    rms_norm::inverse_rms(&mut r, width, eps);
    let mut y = vec![0.0; x.len()];
    rms_norm::forward(&mut y, &x, &gain, &r);
    let expected: Vec<f32> = rms_norm_reference(&wide(&x), &wide(&gain), eps)
        .iter()
        .map(|&y| y as f32)
        .collect();
    assert!(relative_error(&y, &expected) < 1e-6);

    let mut sums = vec![0.0; rows];
    rms_norm::backward_sums(&mut sums, &dy, &x, &gain);
    let mut dx = vec![0.0; x.len()];
    rms_norm::backward(&mut dx, &dy, &x, &gain, &r, &sums, width);
    let expected = finite_differences(&x, |x| {
        weighted(&rms_norm_reference(x, &wide(&gain), eps), &dy)
    });
    assert!(relative_error(&dx, &expected) < 1e-5);
    let mut dgain = vec![0.0; width];
    rms_norm::gain_gradient(&mut dgain, &dy, &x, &r);
    let expected = finite_differences(&gain, |gain| {
        weighted(&rms_norm_reference(&wide(&x), gain, eps), &dy)
    });
    assert!(relative_error(&dgain, &expected) < 1e-5);
}

#[test]
fn swiglu_and_its_gradients() {
    let n = 300;
    let (gate, up, dy) = (random("gate", n), random("up", n), random("dy", n));
    let reference = |x: &[f64]| -> Vec<f64> {
        (0..n)
            .map(|i| x[i] / (1.0 + (-x[i]).exp()) * x[n + i])
            .collect()
    };
    let both = [gate.clone(), up.clone()].concat();
    let mut y = vec![0.0; n];
    swiglu::forward(&mut y, &gate, &up);
    let wide: Vec<f64> = both.iter().map(|&v| f64::from(v)).collect();
    let expected: Vec<f32> = reference(&wide).iter().map(|&y| y as f32).collect();
    assert!(relative_error(&y, &expected) < 1e-6);
    let (mut dgate, mut dup) = (gate, up);
    swiglu::backward(&mut dgate, &mut dup, &dy);
    let expected = finite_differences(&both, |x| weighted(&reference(x), &dy));
    assert!(relative_error(&[dgate, dup].concat(), &expected) < 1e-5);
}

/// Attention by its definition. `x` is q, k and v one after the other.
fn attention_reference(x: &[f64], segments: &[Segment], heads: Heads) -> Vec<f64> {
    let (rows, keys) = (
        segments.iter().map(|s| s.queries).sum::<usize>(),
        segments
            .iter()
            .map(|s| s.key_start + s.keys)
            .max()
            .unwrap_or(0),
    );
    let dim = heads.dim;
    let (q, rest) = x.split_at(rows * heads.query * dim);
    let (k, v) = rest.split_at(keys * heads.key_value * dim);
    let mut out = vec![0.0; q.len()];
    for segment in segments {
        for i in 0..segment.queries {
            for head in 0..heads.query {
                let at = ((segment.query_start + i) * heads.query + head) * dim;
                let key = |j: usize| {
                    ((segment.key_start + j) * heads.key_value + head / heads.group()) * dim
                };
                let visible = segment.keys - segment.queries + i + 1;
                let weights: Vec<f64> = (0..visible)
                    .map(|j| {
                        let score: f64 = (0..dim).map(|c| q[at + c] * k[key(j) + c]).sum();
                        (score / (dim as f64).sqrt()).exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for (j, weight) in weights.iter().enumerate() {
                    for c in 0..dim {
                        out[at + c] += weight / total * v[key(j) + c];
                    }
                }
            }
        }
    }
    out
}

fn documents(lengths: &[usize]) -> Vec<Segment> {
    let mut start = 0;
    lengths
        .iter()
        .map(|&queries| {
            start += queries;
            Segment {
                query_start: start - queries,
                queries,
                key_start: start - queries,
                keys: queries,
            }
        })
        .collect()
}

#[test]
fn attention_equals_its_definition_across_tiles_and_segments() {
    let heads = Heads {
        query: 4,
        key_value: 2,
        dim: 6,
    };
    for lengths in [&[1][..], &[64], &[65, 3], &[130, 0, 63]] {
        let segments = documents(lengths);
        let rows: usize = lengths.iter().sum();
        let (q, k, v) = (
            random("q", rows * 24),
            random("k", rows * 12),
            random("v", rows * 12),
        );
        let mut out = vec![9.0; q.len()];
        attention::forward(
            &mut out,
            &mut vec![0.0; rows * 4],
            &q,
            &k,
            &v,
            &segments,
            heads,
        );
        let x: Vec<f64> = [q, k, v].concat().iter().map(|&v| f64::from(v)).collect();
        let expected: Vec<f32> = attention_reference(&x, &segments, heads)
            .iter()
            .map(|&y| y as f32)
            .collect();
        assert!(relative_error(&out, &expected) < 1e-6, "{lengths:?}");
    }
}

#[test]
fn g16_attention_sees_the_rectangle_of_past_and_new_keys() {
    let heads = Heads {
        query: 2,
        key_value: 1,
        dim: 4,
    };
    let segments = [
        Segment {
            query_start: 0,
            queries: 3,
            key_start: 0,
            keys: 8,
        },
        Segment {
            query_start: 3,
            queries: 1,
            key_start: 100,
            keys: 71,
        },
        Segment {
            query_start: 4,
            queries: 66,
            key_start: 200,
            keys: 70,
        },
    ];
    let (q, k, v) = (
        random("q", 70 * 8),
        random("k", 270 * 4),
        random("v", 270 * 4),
    );
    let mut out = vec![0.0; q.len()];
    attention::forward(&mut out, &mut vec![0.0; 140], &q, &k, &v, &segments, heads);
    let x: Vec<f64> = [q, k, v].concat().iter().map(|&v| f64::from(v)).collect();
    let expected: Vec<f32> = attention_reference(&x, &segments, heads)
        .iter()
        .map(|&y| y as f32)
        .collect();
    assert!(relative_error(&out, &expected) < 1e-6);
}

#[test]
fn attention_gradients_equal_finite_differences() {
    let heads = Heads {
        query: 4,
        key_value: 2,
        dim: 2,
    };
    let lengths = [67, 9];
    let segments = documents(&lengths);
    let rows: usize = lengths.iter().sum();
    let (q, k, v) = (
        random("q", rows * 8),
        random("k", rows * 4),
        random("v", rows * 4),
    );
    let dout = random("dout", q.len());
    let (mut out, mut log_sum_exp) = (vec![0.0; q.len()], vec![0.0; rows * 4]);
    attention::forward(&mut out, &mut log_sum_exp, &q, &k, &v, &segments, heads);
    let (mut dq, mut dk, mut dv) = (vec![9.0; q.len()], vec![9.0; k.len()], vec![9.0; v.len()]);
    let saved = Forward {
        q: &q,
        k: &k,
        v: &v,
        out: &out,
        log_sum_exp: &log_sum_exp,
    };
    let mut workspace = vec![9.0; attention::workspace_len(rows, heads)];
    attention::backward(
        [&mut dq, &mut dk, &mut dv],
        &dout,
        saved,
        &segments,
        heads,
        &mut workspace,
    );
    let expected = finite_differences(&[q, k, v].concat(), |x| {
        weighted(&attention_reference(x, &segments, heads), &dout)
    });
    assert!(relative_error(&[dq, dk, dv].concat(), &expected) < 1e-5);
}

#[test]
fn embedding_gathers_and_scatters_its_own_part_of_the_vocabulary() {
    let (width, ids) = (3, [4, 1, 4, 0, 2, 4]);
    let table = random("table", 5 * width);
    let mut whole = vec![0.0; ids.len() * width];
    embedding::gather(&mut whole, &table, &ids, 0, width);
    for (row, &id) in ids.iter().enumerate() {
        assert_eq!(
            whole[row * width..][..width],
            table[id as usize * width..][..width]
        );
    }
    let (mut low, mut high) = (vec![0.0; whole.len()], vec![0.0; whole.len()]);
    embedding::gather(&mut low, &table[..2 * width], &ids, 0, width);
    embedding::gather(&mut high, &table[2 * width..], &ids, 2, width);
    let sum: Vec<f32> = low.iter().zip(&high).map(|(a, b)| a + b).collect();
    assert_eq!(sum, whole);

    let dy = random("dy", ids.len() * width);
    let mut gradient = vec![0.0; 5 * width];
    embedding::scatter_add(&mut gradient, &dy, &ids, 0, width);
    for column in 0..width {
        assert_eq!(
            gradient[4 * width + column],
            dy[column] + dy[2 * width + column] + dy[5 * width + column]
        );
        assert_eq!(gradient[3 * width + column], 0.0);
    }
    let mut high = vec![0.0; 3 * width];
    embedding::scatter_add(&mut high, &dy, &ids, 2, width);
    assert_eq!(high, gradient[2 * width..]);
}

/// O08: the logarithm of the softmax is exact to f32 also where the loss is large.
#[test]
fn o08_cross_entropy_and_its_gradient() {
    let (rows, width, valid, scale) = (4, 37, 33, 0.25);
    let mut logits: Vec<f32> = random("logits", rows * width)
        .iter()
        .map(|x| 20.0 * x)
        .collect();
    let targets = [0, 32, 7, 7];
    cross_entropy::mask_padding(&mut logits, width, valid);
    let finite: Vec<f32> = logits
        .chunks(width)
        .flat_map(|row| row[..valid].to_vec())
        .collect();
    let reference = |x: &[f64]| -> f64 {
        x.chunks(valid)
            .zip(targets)
            .map(|(row, target)| {
                row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[target as usize]
            })
            .sum()
    };
    let mut maxima = vec![0.0; rows];
    cross_entropy::row_max(&mut maxima, &logits, width);
    let (mut sums, mut picked) = (vec![0.0; rows], vec![0.0; rows]);
    cross_entropy::target_logits(&mut picked, &logits, &targets, 0, width);
    cross_entropy::exp_sums(&mut sums, &mut logits, &maxima, width);
    let loss = cross_entropy::loss_sum(&sums, &maxima, &picked);
    let wide: Vec<f64> = finite.iter().map(|&x| f64::from(x)).collect();
    assert!((loss - reference(&wide)).abs() < 1e-6 * loss, "{loss}");

    cross_entropy::backward(&mut logits, &sums, &targets, 0, width, scale);
    let gradient: Vec<f32> = logits
        .chunks(width)
        .flat_map(|row| row[..valid].to_vec())
        .collect();
    assert!(
        logits
            .chunks(width)
            .all(|row| row[valid..].iter().all(|&g| g == 0.0))
    );
    let expected = finite_differences(&finite, |x| f64::from(scale) * reference(x));
    assert!(relative_error(&gradient, &expected) < 1e-5);
}
