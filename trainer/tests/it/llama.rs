//! Behaviour of the model that users rely on: documents do not see each other, the cache changes nothing, empty
//! batches are harmless, bad input is named.

use axmem_trainer::{Batch, Error, Llama, ModelConfig, Rank, Recompute, Schedule};

use crate::fixture::{Fixture, documents, relative_error};

fn recomputing(recompute: Recompute) -> Schedule {
    Schedule {
        recompute,
        ..Schedule::default()
    }
}

fn config() -> ModelConfig {
    ModelConfig {
        vocab: 97,
        hidden: 32,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        ffn: 64,
        max_positions: 512,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: false,
        qkv_bias: false,
        output_bias: false,
        rope_scaling: None,
    }
}

/// A random model with weights large enough that logits differ.
fn model(rank: &Rank) -> Llama {
    let mut model = Llama::initialise(&config(), rank, 3).expect("a valid model");
    for param in model.params_mut() {
        if param.decays {
            param.weight.iter_mut().for_each(|weight| *weight *= 10.0);
        }
    }
    model
}

fn ids(length: usize, seed: u32) -> Vec<u32> {
    (0..length as u32)
        .map(|i| (i + 1 + seed * 7919).wrapping_mul(2_654_435_761) >> 16)
        .map(|hash| hash % config().vocab as u32)
        .collect()
}

fn logits(model: &Llama, rank: &Rank, sequences: &[&[u32]]) -> Vec<f32> {
    let hidden = model.hidden(rank, sequences).expect("valid ids");
    model.logits(rank, &hidden).expect("logits")
}

/// Largest difference of two equal sets of logits.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[test]
fn o09_changing_document_a_leaves_the_logits_of_document_b_unchanged() {
    let rank = Rank::single();
    let model = model(&rank);
    let b = ids(40, 1);
    let with = |a: &[u32]| logits(&model, &rank, &[a, &b])[a.len() * config().vocab..].to_vec();
    let alone = logits(&model, &rank, &[&b]);
    assert_eq!(with(&ids(30, 2)), with(&ids(30, 3)));
    assert!(difference(&with(&ids(70, 2)), &alone) < 1e-5);
}

#[test]
fn o09_gradients_of_packed_documents_are_the_sum_of_theirs() {
    let rank = Rank::single();
    let mut model = model(&rank);
    let (a, b) = (ids(70, 1), ids(33, 2));
    let batch = |documents: &[&[u32]]| Batch {
        ids: documents.concat(),
        segments: documents.iter().map(|ids| ids.len()).collect(),
        keep: documents
            .iter()
            .flat_map(|ids| (0..ids.len()).map(|i| i > 0))
            .collect(),
    };
    let mut gradients = |batches: &[Batch]| -> (f64, Vec<f32>) {
        model.forget_gradients();
        let loss = batches
            .iter()
            .map(|batch| {
                model
                    .loss_and_gradients(&rank, batch, 1.0 / 101.0, &Schedule::default())
                    .expect("valid batch")
            })
            .sum();
        (
            loss,
            model
                .params()
                .iter()
                .flat_map(|p| p.gradient.to_vec())
                .collect(),
        )
    };
    let (together, packed) = gradients(&[batch(&[&a, &b])]);
    let (apart, summed) = gradients(&[batch(&[&a]), batch(&[&b])]);
    assert!((together - apart).abs() < 1e-5 * apart);
    assert!(relative_error(&packed, &summed) < 1e-5);
}

/// A target is what the mask says, never what its id says: an id that ends or pads other rows counts like any other.
#[test]
fn o10_a_last_id_that_looks_like_padding_keeps_its_target() {
    let rank = Rank::single();
    let model = model(&rank);
    let mut ids = ids(20, 1);
    for special in [0, 1, 2] {
        *ids.last_mut().expect("not empty") = special;
        let keep = (0..20).map(|i| i == 19).collect();
        let batch = Batch {
            ids: ids.clone(),
            segments: vec![20],
            keep,
        };
        let row = &logits(&model, &rank, &[&ids])[18 * config().vocab..19 * config().vocab];
        let sum: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
        let expected = sum.ln() - f64::from(row[special as usize]);
        let loss = model.loss(&rank, &batch).expect("valid batch");
        assert!(
            (loss - expected).abs() < 1e-5,
            "{loss} instead of {expected}"
        );
    }
}

#[test]
fn o04_without_a_kept_target_loss_and_gradients_are_zero() {
    let rank = Rank::single();
    let mut model = model(&rank);
    for recompute in [Recompute::None, Recompute::Block] {
        for length in [0, 1, 20] {
            let batch = Batch {
                ids: ids(length, 1),
                segments: vec![length],
                keep: vec![false; length],
            };
            let loss = model
                .loss_and_gradients(&rank, &batch, 0.0, &recomputing(recompute))
                .expect("valid batch");
            assert_eq!(loss, 0.0);
            assert!(
                model
                    .params()
                    .iter()
                    .all(|p| p.gradient.iter().all(|&g| g == 0.0))
            );
        }
    }
}

#[test]
fn g06_cached_and_uncached_logits_agree_for_64_steps() {
    let rank = Rank::single();
    let model = model(&rank);
    let sequences = [ids(5 + 64, 1), ids(15 + 64, 2)];
    let prompts = [5, 15];
    let whole: Vec<Vec<f32>> = sequences
        .iter()
        .map(|ids| logits(&model, &rank, &[ids]))
        .collect();
    let mut cache = model.cache(&rank, 2, 80);
    let vocab = config().vocab;
    let mut new = [&sequences[0][..5], &sequences[1][..15]];
    for step in 0..64 {
        let hidden = model.extend(&rank, &mut cache, &new).expect("fits");
        let cached = model.logits(&rank, &hidden).expect("logits");
        let mut row = 0;
        for sequence in 0..2 {
            row += new[sequence].len();
            let position = prompts[sequence] + step;
            let error = difference(
                &cached[(row - 1) * vocab..row * vocab],
                &whole[sequence][(position - 1) * vocab..position * vocab],
            );
            assert!(error < 1e-4, "step {step}, sequence {sequence}: {error}");
            new[sequence] = &sequences[sequence][position..=position];
        }
    }
    assert_eq!(cache.lengths(), [68, 78]);
}

#[test]
fn g16_three_tokens_on_top_of_five_see_past_and_earlier_new_ones() {
    let rank = Rank::single();
    let model = model(&rank);
    let ids = ids(8, 4);
    let mut cache = model.cache(&rank, 1, 8);
    model.extend(&rank, &mut cache, &[&ids[..5]]).expect("fits");
    let cached = model.extend(&rank, &mut cache, &[&ids[5..]]).expect("fits");
    let whole = model.hidden(&rank, &[&ids]).expect("valid ids");
    assert!(difference(&cached, &whole[5 * config().hidden..]) < 1e-5);
}

#[test]
fn g09_teacher_forced_and_free_running_agree_at_prefixes_around_256() {
    let rank = Rank::single();
    let model = model(&rank);
    let vocab = config().vocab;
    let argmax = |row: &[f32]| {
        (0..vocab).fold(0, |best, id| if row[id] > row[best] { id } else { best }) as u32
    };
    for prefix in [255, 256, 257] {
        let mut ids = ids(prefix, 5);
        let mut cache = model.cache(&rank, 1, prefix + 20);
        let mut new = 0..prefix;
        for _ in 0..20 {
            let hidden = model
                .extend(&rank, &mut cache, &[&ids[new.clone()]])
                .expect("fits");
            let last = &hidden[hidden.len() - config().hidden..];
            ids.push(argmax(&model.logits(&rank, last).expect("logits")));
            new = ids.len() - 1..ids.len();
        }
        let rows = logits(&model, &rank, &[&ids]);
        for position in prefix..ids.len() {
            let predicted = argmax(&rows[(position - 1) * vocab..position * vocab]);
            assert_eq!(
                predicted, ids[position],
                "prefix {prefix}, position {position}"
            );
        }
    }
}

#[test]
fn g15_two_requests_in_a_row_equal_two_fresh_ones() {
    let rank = Rank::single();
    let model = model(&rank);
    let request = |model: &Llama, rank: &Rank, ids: &[u32]| {
        let mut cache = model.cache(rank, 1, ids.len());
        let (prompt, rest) = ids.split_at(ids.len() / 2);
        let mut hidden = model.extend(rank, &mut cache, &[prompt]).expect("fits");
        hidden.extend(model.extend(rank, &mut cache, &[rest]).expect("fits"));
        hidden
    };
    for (length, seed) in [(40, 1), (9, 2), (77, 3)] {
        let ids = ids(length, seed);
        let fresh_rank = Rank::single();
        let fresh = request(&self::model(&fresh_rank), &fresh_rank, &ids);
        assert_eq!(request(&model, &rank, &ids), fresh);
    }
}

#[test]
fn l08_the_loss_does_not_depend_on_the_chunk() {
    let fixture = Fixture::load("untied");
    let rank = Rank::single();
    let batch = fixture.batch();
    let losses: Vec<f64> = [1, 7, batch.ids.len()]
        .into_iter()
        .map(|rows| {
            let model = fixture
                .model(&rank)
                .expect("fixture")
                .with_loss_chunk_rows(rows);
            model.loss(&rank, &batch).expect("valid batch")
        })
        .collect();
    for loss in &losses {
        assert!((loss - losses[0]).abs() < 1e-6 * losses[0], "{losses:?}");
    }
}

#[test]
fn hidden_states_do_not_depend_on_their_neighbours() {
    let fixture = Fixture::load("tied");
    let rank = Rank::single();
    let model = fixture.model(&rank).expect("fixture");
    let batch = fixture.batch();
    let together = model.hidden(&rank, &documents(&batch)).expect("valid ids");
    let apart: Vec<f32> = documents(&batch)
        .iter()
        .flat_map(|ids| model.hidden(&rank, &[ids]).expect("valid ids"))
        .collect();
    assert!(difference(&together, &apart) < 1e-5);
}

#[test]
fn in_steady_state_a_step_takes_no_new_memory() {
    let rank = Rank::single();
    let mut model = model(&rank);
    let batch = Batch {
        ids: ids(100, 1),
        segments: vec![60, 40],
        keep: (0..100).map(|i| i != 0 && i != 60).collect(),
    };
    let mut peak = [0; 2];
    model.forget_gradients();
    let state = rank.pool.live_bytes();
    for recompute in [Recompute::None, Recompute::Block] {
        for step in &mut peak {
            model
                .loss_and_gradients(&rank, &batch, 0.01, &recomputing(recompute))
                .expect("valid batch");
            *step = rank.pool.peak_bytes();
            model.forget_gradients();
            assert_eq!(rank.pool.live_bytes(), state);
        }
        assert_eq!(peak[0], peak[1]);
    }
}

#[test]
fn initial_weights_depend_on_the_seed_only() {
    let weights = |seed| {
        let model = Llama::initialise(&config(), &Rank::single(), seed).expect("a valid model");
        model
            .params()
            .iter()
            .flat_map(|p| p.weight.to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(weights(1), weights(1));
    assert_ne!(weights(1), weights(2));
    let count: usize = weights(1).len();
    assert_eq!(count as u64, config().parameters());
}

#[test]
fn bad_input_is_named() {
    let rank = Rank::single();
    let mut model = model(&rank);
    let message = |outcome: Result<Vec<f32>, Error>| outcome.expect_err("bad input").to_string();
    assert_eq!(
        message(model.hidden(&rank, &[&[5, 97]])),
        "token id 97 does not exist in a model with a vocabulary of 97; was another tokenizer used?"
    );
    assert_eq!(
        message(model.hidden(&rank, &[&ids(513, 1)])),
        "a sequence of 513 tokens does not fit the model's max_positions of 512"
    );
    let mut cache = model.cache(&rank, 1, 4);
    assert_eq!(
        message(model.extend(&rank, &mut cache, &[&ids(5, 1)])),
        "sequence 0 would have 5 tokens, the cache was made for 4"
    );
    assert!(
        message(model.extend(&rank, &mut cache, &[])).contains("holds 1 sequences, 0 were given")
    );
    let batch = Batch {
        ids: ids(4, 1),
        segments: vec![2, 2],
        keep: vec![false, true, true, true],
    };
    let error = model
        .loss_and_gradients(&rank, &batch, 1.0, &Schedule::default())
        .expect_err("a first id is no target");
    assert_eq!(
        error.to_string(),
        "the first id of document 1 of the batch is marked as a target; nothing predicts it"
    );
}

#[test]
fn decoding_reads_the_weights_of_today() {
    let rank = Rank::single();
    let config = ModelConfig {
        hidden: 64,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        ffn: 128,
        ..config()
    };
    let rounded = |seed| {
        let mut model = Llama::initialise(&config, &rank, seed).expect("valid sizes");
        for param in model.params_mut() {
            for weight in param.weight.iter_mut() {
                *weight = f32::from_bits(weight.to_bits() & 0xffff_0000);
            }
        }
        model
    };
    let decode = |model: &Llama| {
        let mut cache = model.cache(&rank, 1, 8);
        let read = |&id: &u32| {
            let hidden = model.extend(&rank, &mut cache, &[&[id]]).expect("valid id");
            model.logits(&rank, &hidden).expect("one row")
        };
        ids(8, 1).iter().map(read).collect::<Vec<_>>()
    };
    let (mut model, other) = (rounded(1), rounded(2));
    let before = decode(&model);
    for (param, other) in model.params_mut().iter_mut().zip(other.params()) {
        param.weight.copy_from_slice(&other.weight);
    }
    let after = decode(&model);
    assert!(after == decode(&other));
    assert!(after != before);
    // No element of a bf16 number's neighbour fits in half the memory.
    for param in model.params_mut() {
        param.weight[0] = f32::from_bits(param.weight[0].to_bits() | 1);
    }
    let full = decode(&model);
    let apart = difference(&after.concat(), &full.concat());
    assert!(apart < 1e-5, "{apart}");
}
