//! Ranks that hold one model share the documents.

use std::cell::RefCell;
use std::ops::Range;

use axmem_eval::{
    Error, LanguageModel, Probe, RankModel, Result, Score, Visit, greedy, measure_tolerance, score,
};
use axmem_trainer::random::Stream;
use axmem_trainer::{Grid, KvCache, Llama, Rank, launch};

use super::llama::{VOCAB, config, documents, llama, prompts_of, slices, with_model};
use super::toy::settings;

/// A model that lists what it reads, and that may fail before it computes.
struct Watched<'a> {
    model: RankModel<'a>,
    read: RefCell<Vec<Vec<u32>>>,
    fails: bool,
}

impl<'a> Watched<'a> {
    fn new(llama: &'a Llama, rank: &'a Rank) -> Self {
        Self {
            model: RankModel {
                llama,
                rank,
                ids: VOCAB,
            },
            read: RefCell::default(),
            fails: false,
        }
    }
}

impl LanguageModel for Watched<'_> {
    type Cache = KvCache;

    fn vocab(&self) -> usize {
        self.model.vocab()
    }

    fn max_positions(&self) -> usize {
        self.model.max_positions()
    }

    fn logits_at(
        &self,
        sequences: &[&[u32]],
        positions: &[Range<usize>],
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let ids = sequences.iter().map(|ids| ids.to_vec());
        self.read.borrow_mut().extend(ids);
        if self.fails {
            return Err(Error::Model("has no room".to_owned()));
        }
        self.model.logits_at(sequences, positions, visit)
    }

    fn prefill(
        &self,
        sequences: &[&[u32]],
        steps: usize,
        visit: &mut Visit<'_>,
    ) -> Result<KvCache> {
        self.model.prefill(sequences, steps, visit)
    }

    fn decode(&self, cache: &mut KvCache, next: &[u32], visit: &mut Visit<'_>) -> Result<()> {
        self.model.decode(cache, next, visit)
    }

    fn share(&self) -> (usize, usize) {
        self.model.share()
    }

    fn gather(&self, words: Vec<u64>) -> Result<Vec<Vec<u64>>> {
        self.model.gather(words)
    }
}

/// 21 documents of unequal lengths.
fn prompts() -> Vec<Vec<u32>> {
    prompts_of((0..21).map(|index| [5, 15, 8, 1, 15, 9, 20, 11][index % 8] + index / 8))
}

fn verdicts(scores: Vec<Score>) -> Vec<impl PartialEq + std::fmt::Debug + Send> {
    scores
        .into_iter()
        .map(|one| {
            (
                one.document,
                one.exact,
                one.matched_prefix,
                one.predicted,
                one.generated,
            )
        })
        .collect()
}

#[test]
fn s11_m13_a_split_model_scores_as_on_one_rank_and_reads_each_document_once() {
    let (documents, settings, expected) = with_model(|model| {
        let documents = documents(&model, &prompts());
        let mut settings = settings(&[12, 5]);
        settings.tolerance = measure_tolerance(&model, &documents, &settings).unwrap();
        let scores = score(&model, &documents, &settings).unwrap();
        assert!(scores.iter().any(|one| one.exact[0]));
        (documents, settings, verdicts(scores))
    });
    let mut once: Vec<&[u32]> = documents
        .iter()
        .map(|probe: &Probe| &probe.ids[..probe.ids.len() - 1])
        .collect();
    once.sort_unstable();
    // X of 4 has two copies of each key-value head. The last of six batches has one document.
    for [x, y, z, data] in [
        [2, 2, 2, 1],
        [4, 1, 1, 2],
        [4, 2, 1, 1],
        [1, 1, 2, 2],
        [2, 1, 2, 1],
        [1, 1, 3, 2],
    ] {
        let grid = Grid::new(x, y, z, data);
        let outcomes = launch::threads(&grid, |rank| {
            let llama = llama(rank);
            let model = Watched::new(&llama, rank);
            let scores = score(&model, &documents, &settings).unwrap();
            let read = model.read.take();
            let tolerance = measure_tolerance(&model, &documents, &settings).unwrap();
            let speaks = rank.coord.x == 0 && rank.coord.y == 0;
            Ok((
                verdicts(scores),
                tolerance,
                if speaks { read } else { Vec::new() },
            ))
        });
        let outcomes = outcomes.unwrap();
        let mut read = Vec::new();
        for (rank, (scores, tolerance, own)) in outcomes.iter().enumerate() {
            assert_eq!(*scores, expected, "{grid} rank {rank}");
            assert_eq!(tolerance.to_bits(), outcomes[0].1.to_bits());
            assert!((1e-4..1e-2).contains(tolerance), "{tolerance}");
            let share = documents.len().div_ceil(z * data);
            assert!(
                own.len() <= share + z * data,
                "{grid} rank {rank} reads {}",
                own.len()
            );
            read.extend(own.iter().map(Vec::as_slice));
        }
        read.sort_unstable();
        assert_eq!(read, once, "{grid}");
    }
}

#[test]
fn ranks_with_nothing_to_decode_keep_step_with_the_others() {
    let prompts = prompts_of([5, 9]);
    let expected = with_model(|model| greedy(&model, &slices(&prompts), 6).unwrap());
    for grid in [
        Grid::new(1, 1, 4, 1),
        Grid::new(1, 2, 1, 4),
        Grid::new(2, 1, 2, 2),
    ] {
        let outcomes = launch::threads(&grid, |rank| {
            let llama = llama(rank);
            let model = Watched::new(&llama, rank);
            Ok(greedy(&model, &slices(&prompts), 6).unwrap())
        });
        for ids in outcomes.unwrap() {
            assert_eq!(ids, expected, "{grid}");
        }
    }
}

#[test]
fn numbers_that_break_down_on_one_rank_are_an_error_on_all() {
    const BROKEN: usize = VOCAB - 1;
    let mut prompts = prompts();
    for prompt in &mut prompts {
        for id in prompt {
            *id %= BROKEN as u32;
        }
    }
    prompts[17][4] = BROKEN as u32;
    let documents: Vec<Probe> = prompts
        .iter()
        .enumerate()
        .map(|(index, ids)| {
            super::toy::probe(&format!("d{index}"), ids.iter().copied().chain([3, 4, 5]))
        })
        .collect();
    for grid in [Grid::new(1, 1, 2, 2), Grid::new(2, 1, 2, 1)] {
        let outcomes = launch::threads(&grid, |rank| {
            let values =
                |name: &str, [_, columns]: [usize; 2]| -> Box<dyn Fn(usize, usize) -> f32> {
                    let stream = Stream::new(1, name);
                    let (norm, table) = (name.contains("norm"), name.contains("embed"));
                    Box::new(move |row, column| match (norm, table && row == BROKEN) {
                        (true, _) => 1.0,
                        (_, true) => f32::NAN,
                        _ => stream.normal((row * columns + column) as u64) as f32 * 0.2,
                    })
                };
            let llama = Llama::from_values(&config(), rank, values)?;
            let model = Watched::new(&llama, rank);
            let scored = score(&model, &documents, &settings(&[3])).unwrap_err();
            let decoded = greedy(&model, &slices(&prompts), 1).unwrap_err();
            Ok((scored.to_string(), decoded.to_string()))
        });
        for (scored, decoded) in outcomes.unwrap() {
            assert!(scored.contains("document `d17`"), "{scored}");
            assert!(decoded.contains("prefix 17"), "{decoded}");
        }
    }
}

#[test]
fn a_rank_that_fails_leaves_no_other_waiting() {
    let (documents, settings) =
        with_model(|model| (documents(&model, &prompts()), settings(&[12])));
    let outcomes = launch::threads(&Grid::new(1, 1, 1, 2), |rank| {
        let llama = llama(rank);
        let mut model = Watched::new(&llama, rank);
        model.fails = rank.index == 1;
        Ok(score(&model, &documents, &settings)
            .unwrap_err()
            .to_string())
    });
    let outcomes = outcomes.unwrap();
    assert!(outcomes[0].contains("share 1 of 2"), "{}", outcomes[0]);
    assert!(outcomes[1].contains("has no room"), "{}", outcomes[1]);
}
