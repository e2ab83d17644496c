//! What must not matter to a score or a continuation: neighbours, batch size, cache, pieces, earlier requests.

use std::fs;

use axmem_datasets::table;
use axmem_eval::{LanguageModel as _, RankModel, greedy, measure_tolerance, score};
use axmem_trainer::{Llama, ModelConfig, Rank};

use super::llama::{config, documents, prompts_of, shown, slices, with_model};
use super::toy::settings;

const STEPS: usize = 8;

fn argmax(row: &[f32]) -> u32 {
    (0..row.len()).fold(0, |best, id| if row[id] > row[best] { id } else { best }) as u32
}

/// The continuation without a cache: the whole text is read again for every id.
fn uncached(model: &RankModel<'_>, prompt: &[u32]) -> Vec<u32> {
    let mut ids = prompt.to_vec();
    for _ in 0..STEPS {
        let last = ids.len() - 1..ids.len();
        let row = shown(|visit| model.logits_at(&[&ids], &[last], visit)).1;
        ids.push(argmax(&row));
    }
    ids.split_off(prompt.len())
}

/// The continuations when at most `piece` ids of each prompt are read at once.
fn in_pieces(model: &RankModel<'_>, prompts: &[Vec<u32>], piece: usize) -> Vec<Vec<u32>> {
    let longest = prompts.iter().map(Vec::len).max().unwrap();
    let (llama, rank) = (model.llama, model.rank);
    let width = llama.config().hidden;
    let mut cache = llama.cache(rank, prompts.len(), longest + STEPS);
    let mut last = vec![Vec::new(); prompts.len()];
    for start in (0..longest).step_by(piece) {
        let new: Vec<&[u32]> = prompts
            .iter()
            .map(|ids| &ids[start.min(ids.len())..(start + piece).min(ids.len())])
            .collect();
        let hidden = llama.extend(rank, &mut cache, &new).unwrap();
        let mut row = 0;
        for (ids, last) in new.iter().zip(&mut last) {
            row += ids.len();
            if !ids.is_empty() {
                *last = hidden[(row - 1) * width..row * width].to_vec();
            }
        }
    }
    let vocab = model.vocab();
    let choose = |logits: &[f32]| -> Vec<u32> { logits.chunks_exact(vocab).map(argmax).collect() };
    let mut next = choose(&llama.logits(rank, &last.concat()).unwrap());
    let mut continuations: Vec<Vec<u32>> = next.iter().map(|&id| vec![id]).collect();
    for _ in 1..STEPS {
        next = choose(&shown(|visit| model.decode(&mut cache, &next, visit)).1);
        for (ids, id) in continuations.iter_mut().zip(&next) {
            ids.push(*id);
        }
    }
    continuations
}

#[test]
fn g02_two_equal_texts_have_equal_logits_and_the_ids_of_one_alone() {
    with_model(|model| {
        let ids = prompts_of([40]).remove(0);
        let last = ids.len() - 1..ids.len();
        let pair = shown(|visit| model.logits_at(&[&ids, &ids], &[last.clone(), last], visit)).1;
        let (first, second) = pair.split_at(pair.len() / 2);
        assert_eq!(first, second);
        let alone = greedy(&model, &[&ids], STEPS).unwrap();
        let both = greedy(&model, &[&ids, &ids], STEPS).unwrap();
        assert_eq!(both, [alone.clone(), alone].concat());
    });
}

#[test]
fn g04_the_last_real_id_is_read_beside_a_longer_neighbour() {
    with_model(|model| {
        let prompt = prompts_of([9]).remove(0);
        let alone = greedy(&model, &[&prompt], 1).unwrap();
        for pad in [0, 1, 60] {
            let mut padded = prompt.clone();
            padded.extend([pad; 3]);
            let pair = greedy(&model, &[&prompt, &padded], 1).unwrap();
            assert_eq!(pair[0], alone[0]);
            assert_eq!(pair[1], greedy(&model, &[&padded], 1).unwrap()[0]);
        }
    });
}

#[test]
fn g06_ids_do_not_depend_on_batch_cache_or_pieces_of_the_prompt() {
    with_model(|model| {
        let lengths = [
            520, 255, 256, 257, 40, 511, 512, 513, 1, 300, 254, 258, 100, 7, 33, 600,
        ];
        let prompts = prompts_of(lengths);
        let alone: Vec<Vec<u32>> = prompts.iter().map(|ids| uncached(&model, ids)).collect();
        for batch in [1, 2, 7, 16] {
            let batches = prompts.chunks(batch);
            let cached: Vec<Vec<u32>> = batches
                .flat_map(|batch| greedy(&model, &slices(batch), STEPS).unwrap())
                .collect();
            assert_eq!(cached, alone, "batch {batch}");
        }
        for piece in [255, 256, 257] {
            assert_eq!(
                in_pieces(&model, &prompts, piece),
                alone,
                "pieces of {piece}"
            );
        }
    });
}

#[test]
fn g10_a_document_has_one_score_among_any_neighbours() {
    with_model(|model| {
        let mut documents = documents(&model, &prompts_of([9, 14, 30, 21, 5, 60, 8, 17]));
        let mut settings = settings(&[12, 5]);
        settings.batch = 3;
        let scored = score(&model, &documents, &settings).unwrap();
        let first = documents.remove(0);
        for neighbours in documents.windows(2) {
            let batch = [neighbours[0].clone(), first.clone(), neighbours[1].clone()];
            let again = score(&model, &batch, &settings).unwrap();
            assert_eq!(again[1].predicted, scored[0].predicted);
            assert_eq!(again[1].generated, scored[0].generated);
            let change = again[1].log_probability[0] - scored[0].log_probability[0];
            assert!(change.abs() < 1e-4, "{change}");
        }
    });
}

#[test]
fn g15_a_second_request_sees_nothing_of_the_first() {
    let [first, second] = [prompts_of([30, 7, 12]), prompts_of([5, 41])];
    let fresh =
        |prompts: &[Vec<u32>]| with_model(|model| greedy(&model, &slices(prompts), STEPS).unwrap());
    with_model(|model| {
        assert_eq!(
            greedy(&model, &slices(&first), STEPS).unwrap(),
            fresh(&first)
        );
        assert_eq!(
            greedy(&model, &slices(&second), STEPS).unwrap(),
            fresh(&second)
        );
    });
}

#[test]
fn g17_the_same_command_twice_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = ["first", "second"].map(|name| {
        let path = folder.path().join(name);
        with_model(|model| {
            let documents = documents(&model, &prompts_of([5, 15, 8, 1, 15]));
            let mut settings = settings(&[12, 5]);
            settings.tolerance = measure_tolerance(&model, &documents, &settings).unwrap();
            table::write(&path, &score(&model, &documents, &settings).unwrap()).unwrap();
        });
        fs::read(path).unwrap()
    });
    assert!(bytes[0] == bytes[1]);
}

#[test]
fn g18_exact_match_is_the_same_at_batch_1_and_16() {
    with_model(|model| {
        let documents = documents(&model, &prompts_of((0..16).map(|index| 4 + 5 * index)));
        let at = |batch| {
            let mut settings = settings(&[12, 5]);
            settings.batch = batch;
            let scores = score(&model, &documents, &settings).unwrap();
            let verdicts = scores
                .into_iter()
                .map(|one| (one.exact, one.matched_prefix));
            verdicts.collect::<Vec<_>>()
        };
        let exact = at(1);
        assert_eq!(exact, at(16));
        assert_eq!(exact.iter().filter(|one| one.0[0]).count(), 8);
    });
}

#[test]
fn l07_logits_held_at_once_grow_with_neither_documents_nor_their_length() {
    const VOCAB: usize = 1 << 16;
    let rank = Rank::single();
    let config = ModelConfig {
        vocab: VOCAB,
        ..config()
    };
    let llama = Llama::initialise(&config, &rank, 1).unwrap();
    let model = RankModel {
        llama: &llama,
        rank: &rank,
        ids: VOCAB - 1,
    };
    let mut peaks = Vec::new();
    for (documents, length) in [(8, 41), (16, 41), (8, 120)] {
        let prompts = prompts_of(vec![length; documents]);
        let positions = vec![length - 40..length; documents];
        let (mut rows, mut largest) = (0, 0);
        let state = rank.pool.live_bytes();
        rank.pool.reset_peak();
        let mut visit = |logits: &[f32]| {
            rows += logits.len() / (VOCAB - 1);
            largest = largest.max(logits.len());
        };
        model
            .logits_at(&slices(&prompts), &positions, &mut visit)
            .unwrap();
        assert_eq!(rows, 40 * documents);
        assert!(largest <= 1 << 24, "{largest}");
        peaks.push(rank.pool.peak_bytes() - state);
    }
    assert!(peaks.iter().all(|&peak| peak <= peaks[0]), "{peaks:?}");
}
