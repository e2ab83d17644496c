//! Checkpoints of one grid on another: weights and moments bit for bit, and the steps that follow.

use std::collections::BTreeMap;
use std::path::Path;

use axmem_trainer::checkpoint::Index;
use axmem_trainer::optim::Moments;
use axmem_trainer::{
    Axis, Grid, Llama, ModelConfig, Param, Rank, Result, Row, Schedule, TrainConfig, Trainer,
    launch,
};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::tiny::{goldfish_settings, rows};

/// Sizes that eight ranks along X or Y divide; four and more of them hold copies of the two key-value heads. Along Z and
/// in the vocabulary there is padding.
fn model() -> ModelConfig {
    ModelConfig {
        vocab: 37,
        hidden: 24,
        layers: 1,
        heads: 8,
        kv_heads: 2,
        head_dim: 2,
        ffn: 40,
        max_positions: 16,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: false,
        qkv_bias: true,
        output_bias: true,
        rope_scaling: None,
    }
}

/// A grid, and whether its optimizer is sharded over Data.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    grid: Grid,
    shard_optimizer: bool,
}

fn place([x, y, z, data]: [usize; 4], shard_optimizer: bool) -> Place {
    Place {
        grid: Grid::new(x, y, z, data),
        shard_optimizer,
    }
}

fn trainer(rank: &Rank, place: &Place, seed: u64) -> Result<Trainer> {
    let settings = TrainConfig {
        schedule: Schedule {
            shard_optimizer: place.shard_optimizer,
            ..Schedule::default()
        },
        ..goldfish_settings(3)
    };
    Trainer::new(rank, Llama::initialise(&model(), rank, seed)?, settings)
}

/// The step after those made.
fn step(rank: &Rank, trainer: &mut Trainer) -> Result<f64> {
    let number = trainer.step_count() + 1;
    let rows: Vec<Row> = rows(&format!("reshard {number}"), &[9, 4, 7, 11, 2, 8]);
    Ok(trainer.step(rank, &rows, 1e-2 / number as f64)?.loss)
}

/// Bits of every element of weight, m and v, by tensor.
type Contents = BTreeMap<String, Vec<[u32; 3]>>;

/// What the ranks hold together; those that hold the same element must agree on it.
fn contents(ranks: &[(Vec<Param>, Vec<Moments>)]) -> Contents {
    let mut weights: BTreeMap<(&str, usize), u32> = BTreeMap::new();
    let mut moments: BTreeMap<(&str, usize), [u32; 2]> = BTreeMap::new();
    for (params, state) in ranks {
        for (param, state) in params.iter().zip(state) {
            let at = |position| {
                let (row, column) = param.block.element(position)?;
                Some((&param.name[..], row * param.shape[1] + column))
            };
            for (position, weight) in param.block.flat.clone().zip(param.weight.iter()) {
                if let Some(at) = at(position) {
                    let known = *weights.entry(at).or_insert(weight.to_bits());
                    assert_eq!(known, weight.to_bits(), "{at:?}");
                }
            }
            let owned = param.block.part(&state.owned).flat;
            for ((position, first), second) in
                owned.zip(state.first.iter()).zip(state.second.iter())
            {
                if let Some(at) = at(position) {
                    let bits = [first.to_bits(), second.to_bits()];
                    assert_eq!(*moments.entry(at).or_insert(bits), bits, "{at:?}");
                }
            }
        }
    }
    assert!(weights.keys().eq(moments.keys()));
    assert_eq!(weights.len() as u64, model().parameters());
    let mut contents = Contents::new();
    for (((name, _), weight), [first, second]) in weights.into_iter().zip(moments.into_values()) {
        let tensor = contents.entry(name.to_owned()).or_default();
        tensor.push([weight, first, second]);
    }
    contents
}

fn held(trainer: &Trainer) -> (Vec<Param>, Vec<Moments>) {
    (
        trainer.llama().params().to_vec(),
        trainer.state().moments.clone(),
    )
}

/// Two more losses, and what is held before and after them.
#[derive(PartialEq)]
struct Next {
    losses: [u64; 2],
    before: Contents,
    after: Contents,
}

impl Next {
    fn loss(&self, step: usize) -> f64 {
        f64::from_bits(self.losses[step])
    }
}

/// Makes two steps from what `start` gives.
fn next(place: &Place, start: impl Fn(&Rank) -> Result<Trainer> + Sync) -> Next {
    let results = launch::threads(&place.grid, |rank| {
        let mut trainer = start(rank)?;
        let before = held(&trainer);
        let losses = [step(rank, &mut trainer)?, step(rank, &mut trainer)?].map(f64::to_bits);
        Ok((losses, before, held(&trainer)))
    })
    .unwrap();
    let losses = results[0].0;
    assert!(results.iter().all(|result| result.0 == losses));
    let (before, after): (Vec<_>, Vec<_>) = results
        .into_iter()
        .map(|(_, before, after)| (before, after))
        .unzip();
    Next {
        losses,
        before: contents(&before),
        after: contents(&after),
    }
}

/// Trains two steps, saves to `folder`, and goes on without it.
fn unbroken(place: &Place, folder: &Path) -> Next {
    next(place, |rank| {
        let mut trainer = trainer(rank, place, 1)?;
        for _ in 0..2 {
            step(rank, &mut trainer)?;
        }
        trainer.save(rank, folder)?;
        Ok(trainer)
    })
}

/// Goes on from `folder`.
fn resumed(place: &Place, folder: &Path) -> Next {
    next(place, |rank| {
        let mut trainer = trainer(rank, place, 9)?;
        trainer.load(rank, folder)?;
        assert_eq!((trainer.step_count(), trainer.state().updates), (2, 2));
        Ok(trainer)
    })
}

#[test]
fn w11_tensors_of_eight_ranks_are_those_of_one_two_and_four() {
    let eight: [fn(usize) -> [usize; 4]; 3] =
        [|n| [n, 1, 1, 1], |n| [1, n, 1, 1], |n| [1, 1, n, 1]];
    for along in eight {
        let folder = tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let saved = unbroken(&place(along(8), false), &path);
        for ranks in [1, 2, 4] {
            let place = place(along(ranks), false);
            let loaded = resumed(&place, &path);
            assert!(loaded.before == saved.before, "8 to {}", place.grid);
        }
        // No tensor is fused of others, whose halves a reader would have to tell apart.
        let index = Index::read(&path).unwrap();
        let stored = |part: &str| {
            let name = format!("model.layers.0.{part}.weight");
            index.records.iter().any(|record| record.tensor == name)
        };
        for part in ["mlp.gate_proj", "mlp.up_proj"] {
            assert!(stored(part), "{part}");
        }
        for part in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"] {
            assert!(stored(part), "{part}");
        }
    }
}

#[test]
fn w12_w13_all_pairs_of_twelve_grids_go_on_alike() {
    let places = [
        place([1, 1, 1, 1], false),
        place([1, 1, 1, 3], false),
        place([1, 1, 3, 1], false),
        place([1, 1, 8, 1], false),
        place([8, 1, 1, 1], false),
        place([1, 8, 1, 1], false),
        place([4, 1, 1, 2], true),
        place([2, 2, 2, 1], false),
        place([1, 2, 2, 2], true),
        place([2, 1, 2, 2], false),
        place([1, 1, 1, 5], true),
        Place {
            grid: Grid {
                order: [Axis::Data, Axis::Z, Axis::X, Axis::Y],
                ..Grid::new(2, 2, 1, 2)
            },
            shard_optimizer: true,
        },
    ];
    for from in &places {
        let folder = tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let expected = unbroken(from, &path);
        for to in &places {
            let result = resumed(to, &path);
            let case = format!("{from:?} to {to:?}");
            assert!(result.before == expected.before, "{case}");
            if from == to {
                assert!(result == expected, "{case}");
            }
            // The first loss sees the weights, the second m and v too.
            for step in 0..2 {
                let (loss, expected) = (result.loss(step), expected.loss(step));
                let error = (loss / expected - 1.0).abs();
                assert!(error <= 1e-5, "{case}: step {}: {error:e}", step + 3);
            }
        }
    }
}

/// Places of at most eight ranks, in any order of the axes.
fn places() -> impl Strategy<Value = Place> {
    let power = || prop::sample::select(vec![1, 2, 4]);
    let order = Just(Axis::DEFAULT_ORDER.to_vec()).prop_shuffle();
    (power(), power(), 1usize..5, 1usize..4, order, any::<bool>())
        .prop_filter("at most eight ranks", |(x, y, z, data, ..)| {
            x * y * z * data <= 8
        })
        .prop_map(|(x, y, z, data, order, shard_optimizer)| Place {
            grid: Grid {
                order: order.try_into().unwrap(),
                ..Grid::new(x, y, z, data)
            },
            shard_optimizer,
        })
}

/// Loads `from` and saves it to `to`.
fn copied(place: &Place, from: &Path, to: &Path) -> Contents {
    let ranks = launch::threads(&place.grid, |rank| {
        let mut trainer = trainer(rank, place, 9)?;
        trainer.load(rank, from)?;
        trainer.save(rank, to)?;
        Ok(held(&trainer))
    })
    .unwrap();
    contents(&ranks)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn w12_there_and_back_is_the_identity(there in places(), back in places()) {
        let folder = tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let saved = unbroken(&there, &path("first")).before;
        prop_assert!(copied(&back, &path("first"), &path("second")) == saved);
        prop_assert!(copied(&there, &path("second"), &path("third")) == saved);
        // The same files, too: records, offsets and hashes.
        let index = |name| std::fs::read(path(name).join("index.json")).unwrap();
        prop_assert_eq!(index("third"), index("first"));
    }
}
