//! The scorer and greedy decoding on a real Llama from random weights.

use axmem_eval::{
    LanguageModel as _, Probe, RankModel, Score, Visit, greedy, measure_tolerance, score,
};
use axmem_trainer::random::Stream;
use axmem_trainer::{Llama, ModelConfig, Rank};

use super::toy::{probe, settings};

pub(crate) const VOCAB: usize = 61;

pub(crate) fn with_model<T>(work: impl FnOnce(RankModel<'_>) -> T) -> T {
    with_ids(VOCAB, work)
}

/// The model under a tokenizer of `ids` ids.
fn with_ids<T>(ids: usize, work: impl FnOnce(RankModel<'_>) -> T) -> T {
    let rank = Rank::single();
    work(RankModel {
        llama: &llama(&rank),
        rank: &rank,
        ids,
    })
}

/// A rank's part of the model.
pub(crate) fn llama(rank: &Rank) -> Llama {
    let mut llama = Llama::initialise(&config(), rank, 7).unwrap();
    // Fresh weights are so small that every context gives nearly the same logits.
    for param in llama.params_mut() {
        if !param.name.contains("norm") {
            param.weight.iter_mut().for_each(|weight| *weight *= 12.0);
        }
    }
    llama
}

pub(crate) fn config() -> ModelConfig {
    ModelConfig {
        vocab: VOCAB,
        hidden: 24,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        ffn: 40,
        max_positions: 1024,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: false,
        qkv_bias: false,
        output_bias: false,
        rope_scaling: None,
    }
}

/// Prompts of the given lengths.
pub(crate) fn prompts_of(lengths: impl IntoIterator<Item = usize>) -> Vec<Vec<u32>> {
    let stream = Stream::new(0, "prompts");
    let id = |at: usize| (stream.bits(at as u64) % VOCAB as u64) as u32;
    lengths
        .into_iter()
        .enumerate()
        .map(|(index, length)| (0..length).map(|i| id(100 * index + i)).collect())
        .collect()
}

/// Prompts of unequal lengths.
fn prompts() -> Vec<Vec<u32>> {
    prompts_of([5, 15, 8, 1, 15, 9, 20, 11])
}

/// What a model returns, and all logits it shows.
pub(crate) fn shown<T>(
    read: impl FnOnce(&mut Visit<'_>) -> axmem_eval::Result<T>,
) -> (T, Vec<f32>) {
    let mut all = Vec::new();
    let outcome = read(&mut |logits| all.extend_from_slice(logits)).unwrap();
    (outcome, all)
}

pub(crate) fn slices(prompts: &[Vec<u32>]) -> Vec<&[u32]> {
    prompts.iter().map(Vec::as_slice).collect()
}

#[test]
fn g01_batches_of_1_2_and_7_decode_identical_ids() {
    with_model(|model| {
        let prompts = prompts();
        let decode = |batch: usize| -> Vec<Vec<u32>> {
            let batches = prompts.chunks(batch);
            batches
                .flat_map(|batch| greedy(&model, &slices(batch), 20).unwrap())
                .collect()
        };
        let alone = decode(1);
        assert_eq!(decode(2), alone);
        assert_eq!(decode(7), alone);
        assert!(alone.iter().any(|ids| *ids != alone[0]), "prompts matter");
    });
}

#[test]
fn g03_prompts_of_5_and_15_ids_do_not_see_each_other() {
    with_model(|model| {
        let prompts = prompts();
        let together = greedy(&model, &[&prompts[0], &prompts[1]], 12).unwrap();
        for (index, ids) in together.iter().enumerate() {
            let alone = greedy(&model, &[&prompts[index]], 12).unwrap();
            assert_eq!(*ids, alone[0]);
        }
    });
}

#[test]
fn g13_twenty_runs_decode_the_same() {
    with_model(|model| {
        let prompts = prompts();
        let first = greedy(&model, &slices(&prompts), 10).unwrap();
        for _ in 1..20 {
            assert_eq!(greedy(&model, &slices(&prompts), 10).unwrap(), first);
        }
    });
}

#[test]
fn g16_logits_on_top_of_a_cache_are_those_of_one_pass() {
    with_model(|model| {
        let prompts = prompts();
        let sequences = [&prompts[2][..8], &prompts[1][..10]];
        let whole = shown(|visit| model.logits_at(&sequences, &[4..8, 6..10], visit)).1;
        // Five and seven ids first, then three more of each on top.
        let prefixes = [&sequences[0][..5], &sequences[1][..7]];
        let (mut cache, mut rows) = shown(|visit| model.prefill(&prefixes, 3, visit));
        for step in 0..4 {
            for (sequence, row) in rows.chunks_exact(VOCAB).enumerate() {
                let start = (sequence * 4 + step) * VOCAB;
                for (a, b) in row.iter().zip(&whole[start..start + VOCAB]) {
                    assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{a} {b}");
                }
            }
            if step < 3 {
                let next = [sequences[0][5 + step], sequences[1][7 + step]];
                rows = shown(|visit| model.decode(&mut cache, &next, visit)).1;
            }
        }
    });
}

#[test]
fn g11_rows_beyond_the_tokenizer_are_never_chosen() {
    let prompts = prompts();
    let positions = std::slice::from_ref(&(3..15));
    let whole = with_model(|model| {
        let ids = greedy(&model, &slices(&prompts), 20).unwrap();
        assert!(
            ids.iter().flatten().any(|&id| id >= 23),
            "the test needs such a choice"
        );
        shown(|visit| model.logits_at(&[&prompts[1]], positions, visit)).1
    });
    with_ids(23, |model| {
        // Only prompts that the tokenizer could give.
        let known: Vec<Vec<u32>> = prompts
            .iter()
            .map(|prompt| prompt.iter().map(|id| id % 23).collect())
            .collect();
        let ids = greedy(&model, &slices(&known), 20).unwrap();
        assert!(ids.iter().flatten().all(|&id| id < 23));
        let cut = shown(|visit| model.logits_at(&[&prompts[1]], positions, visit)).1;
        let expected = whole.chunks_exact(VOCAB).flat_map(|row| &row[..23]);
        assert!(cut.iter().eq(expected));

        let documents: Vec<Probe> = known
            .iter()
            .zip(ids)
            .enumerate()
            .map(|(index, (prompt, ids))| {
                probe(&format!("d{index}"), prompt.iter().copied().chain(ids))
            })
            .collect();
        let mut settings = settings(&[20]);
        settings.tolerance = measure_tolerance(&model, &documents, &settings).unwrap();
        for one in score(&model, &documents, &settings).unwrap() {
            assert!(one.exact[0] || one.fragile[0], "{one:?}");
        }
    });
}

/// Half of the documents end as the model itself goes on, a quarter of them with one id changed;
/// the others end at random.
pub(crate) fn documents(model: &RankModel<'_>, prompts: &[Vec<u32>]) -> Vec<Probe> {
    let endings = greedy(model, &slices(prompts), 12).unwrap();
    let stream = Stream::new(1, "endings");
    prompts
        .iter()
        .zip(endings)
        .enumerate()
        .map(|(index, (prompt, mut ending))| {
            match index % 4 {
                0 | 1 => {}
                2 => ending[7] = (ending[7] + 1) % VOCAB as u32,
                _ => ending
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, id)| *id = (stream.bits(i as u64) % VOCAB as u64) as u32),
            }
            probe(&format!("d{index}"), prompt.iter().copied().chain(ending))
        })
        .collect()
}

#[test]
fn g09_teacher_forced_exact_match_is_that_of_free_running_at_any_batch() {
    with_model(|model| {
        let documents = documents(&model, &prompts());
        let mut settings = settings(&[12, 5]);
        settings.tolerance = measure_tolerance(&model, &documents, &settings).unwrap();
        assert!(settings.tolerance < 1e-2, "{}", settings.tolerance);
        let verdicts = |scores: Vec<Score>| -> Vec<_> {
            scores
                .into_iter()
                .map(|one| (one.exact, one.matched_prefix, one.predicted, one.generated))
                .collect()
        };
        let mut by_batch = Vec::new();
        for batch in [1, 2, 7] {
            settings.batch = batch;
            let scores = score(&model, &documents, &settings).unwrap();
            for one in &scores {
                assert!(!one.fragile[0], "{one:?}");
                let generated = one.generated.as_ref().unwrap();
                assert_eq!(one.exact[0], *generated == one.target);
                let same = generated
                    .iter()
                    .zip(&one.target)
                    .take_while(|(a, b)| a == b);
                assert_eq!(same.count() as u32, one.matched_prefix[0]);
            }
            by_batch.push(verdicts(scores));
        }
        assert_eq!(by_batch[0], by_batch[1]);
        assert_eq!(by_batch[0], by_batch[2]);
        let exact: Vec<bool> = by_batch[0].iter().map(|one| one.0[0]).collect();
        assert_eq!(exact, [true, true, false, false, true, true, false, false]);
        assert_eq!(by_batch[0][2].1[0], 7);
    });
}

#[test]
fn a_whole_batch_of_one_id_prompts_and_an_empty_prompt() {
    with_model(|model| {
        assert_eq!(greedy(&model, &[&[1], &[2]], 3).unwrap().len(), 2);
        assert!(greedy(&model, &[&[1], &[]], 3).is_err());
        assert!(model.prefill(&[&[1], &[]], 3, &mut |_| ()).is_err());
        assert!(greedy(&model, &[], 3).unwrap().is_empty());
    });
}

#[test]
fn g09_teacher_forced_and_free_running_agree_at_prefixes_around_256() {
    with_model(|model| {
        let documents = documents(
            &model,
            &prompts_of([255, 256, 257, 255, 256, 257, 255, 256]),
        );
        let mut settings = settings(&[12]);
        settings.batch = 3;
        settings.tolerance = measure_tolerance(&model, &documents, &settings).unwrap();
        let scores = score(&model, &documents, &settings).unwrap();
        for one in &scores {
            assert!(!one.fragile[0], "{one:?}");
            assert_eq!(one.generated_matched, Some(one.matched_prefix[0]));
        }
        let exact: Vec<bool> = scores.iter().map(|one| one.exact[0]).collect();
        assert_eq!(exact, [true, true, false, false, true, true, false, false]);
    });
}
