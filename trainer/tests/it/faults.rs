//! What must not go wrong on a grid, and what must be said when it does.

use std::fs;
use std::time::{Duration, Instant};

use axmem_trainer::comm::{Collective, Links};
use axmem_trainer::engine::evaluate;
use axmem_trainer::launch::Threads;
use axmem_trainer::random::Stream;
use axmem_trainer::{
    Axis, Error, Grid, Kind, Llama, ModelConfig, Optimizer, Param, Rank, Recompute, Result, Row,
    Schedule, StepRecord, TrainConfig, Trainer, launch,
};
use tempfile::tempdir;

use crate::tiny::{
    Tensors, config, distance, goldfish_settings, ids, rows, settings, trainer, whole,
};

/// Ranks that do not wait for long.
fn impatient(milliseconds: u64) -> Threads {
    Threads {
        timeout: Duration::from_millis(milliseconds),
        links: Links::default(),
    }
}

/// The error of ranks that all do `work`, which must come within `seconds`.
fn fails_within<T: Send>(
    seconds: u64,
    threads: Threads,
    grid: &Grid,
    work: impl Fn(&Rank) -> Result<T> + Sync,
) -> String {
    let start = Instant::now();
    let error = threads.run(grid, work).map(|_| "no error").unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(seconds), "{error}");
    assert_eq!(error.kind(), Kind::Rank);
    error.to_string()
}

fn assert_says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
}

/// Two sums along an axis, of 8 and of 16 elements, of which a rank may leave out one.
fn two_sums(rank: &Rank, axis: Axis, left_out: Option<usize>) -> Result<()> {
    for len in [8, 16] {
        if left_out != Some(len) {
            let data = rank.pool.zeros(len);
            rank.group(axis)
                .start(Collective::AllReduceSum, data)
                .wait()?;
        }
    }
    Ok(())
}

#[test]
fn p15_a_rank_that_skips_a_collective_is_named_at_the_next() {
    for (grid, axis, culprit) in [
        (Grid::new(1, 4, 1, 1), Axis::Y, 2),
        // Ranks of other groups, and with lower numbers, hear of it only because they are stopped.
        (Grid::new(1, 1, 3, 2), Axis::Z, 4),
    ] {
        let error = fails_within(10, impatient(60_000), &grid, |rank| {
            let skips = rank.index == culprit;
            two_sums(rank, axis, skips.then_some(8))?;
            rank.barrier()
        });
        let named =
            format!("rank {culprit}: brought an all-reduce (sum) of 16 f32 to collective 1");
        let usual = "an all-reduce (sum) of 8 f32";
        assert_says(&error, &[&named, &format!("along {axis:?}"), usual]);
    }
}

#[test]
fn p15_a_rank_that_skips_the_last_collective_is_missed_within_the_timeout() {
    for (grid, axis, culprit) in [
        (Grid::new(1, 4, 1, 1), Axis::Y, 2),
        (Grid::new(2, 1, 1, 1), Axis::X, 0),
        (Grid::new(1, 1, 3, 2), Axis::Z, 4),
    ] {
        let error = fails_within(10, impatient(300), &grid, |rank| {
            let skips = rank.index == culprit;
            two_sums(rank, axis, skips.then_some(16))
        });
        let missing = format!("for ranks [{culprit}], which never started it");
        let call = format!("collective 2 along {axis:?} (all-reduce (sum) of 16 f32)");
        assert_says(&error, &["waited 0.3 s", &call, &missing]);
    }
}

/// The collectives of a step, where one rank has other settings than the rest.
#[test]
fn p15_a_rank_with_another_micro_batch_is_named_in_the_step() {
    let grid = Grid::new(4, 2, 1, 1);
    let culprit = 5;
    let error = fails_within(10, impatient(60_000), &grid, |rank| {
        let micro_batch = if rank.index == culprit { 1 } else { 2 };
        let settings = TrainConfig {
            micro_batch,
            ..settings()
        };
        trainer(rank, settings)?.step(rank, &rows("p15", &[9, 7]), 1e-3)
    });
    let named = format!("rank {culprit}: brought an all-reduce (sum)");
    assert_says(&error, &[&named, "along X", "where rank"]);
}

#[test]
fn p15_a_rank_that_panics_is_named_and_frees_the_others() {
    for culprit in [0, 3] {
        let error = fails_within(10, impatient(20_000), &Grid::new(2, 2, 1, 1), |rank| {
            assert!(rank.index != culprit, "a panic that the test wants");
            rank.barrier()
        });
        assert_says(&error, &[&format!("rank {culprit}: panicked")]);
    }
}

/// Records and gradients of the first of `steps`, on every rank.
fn run(
    grid: &Grid,
    model: &ModelConfig,
    settings: &TrainConfig,
    steps: u64,
) -> Vec<(Vec<StepRecord>, Vec<Param>)> {
    launch::threads(grid, |rank| {
        let llama = Llama::initialise(model, rank, 1)?;
        let mut trainer = Trainer::new(rank, llama, settings.clone())?;
        let (mut records, mut first) = (Vec::new(), Vec::new());
        for step in 0..steps {
            let rows = rows(&format!("faults {step}"), &[9, 4, 7, 11, 3, 8]);
            records.push(trainer.step(rank, &rows, 1e-2)?);
            if step == 0 {
                first = trainer.llama().params().to_vec();
            }
        }
        Ok((records, first))
    })
    .unwrap()
}

#[test]
fn p01_the_norm_is_that_of_one_rank_on_all_grids_up_to_2_2_2_2() {
    for (tied, bias) in [(true, false), (false, true)] {
        let model = ModelConfig {
            tied,
            qkv_bias: bias,
            output_bias: bias,
            ..config()
        };
        let norm = |x, y, z, data| {
            let grid = Grid::new(x, y, z, data);
            run(&grid, &model, &goldfish_settings(3), 1)[0].0[0].grad_norm
        };
        let single = norm(1, 1, 1, 1);
        for grid in 0..16 {
            let [x, y, z, data] = [0, 1, 2, 3].map(|axis| 1 + (grid >> axis) % 2);
            let norm = norm(x, y, z, data);
            let error = (norm / single - 1.0).abs();
            assert!(error <= 1e-6, "({x}, {y}, {z}, {data}): {norm} {single}");
        }
    }
}

#[test]
fn p16_loss_and_norm_have_the_same_bits_on_all_ranks_and_when_repeated() {
    for (x, y, z, data) in [(2, 2, 2, 1), (1, 1, 1, 3), (4, 1, 1, 2), (2, 2, 2, 2)] {
        for shard_optimizer in [false, true] {
            let settings = TrainConfig {
                // Every step is clipped.
                clip: Some(0.1),
                schedule: Schedule {
                    shard_optimizer,
                    ..Schedule::default()
                },
                ..goldfish_settings(3)
            };
            let grid = Grid::new(x, y, z, data);
            let recorded = || -> Vec<Vec<[u64; 2]>> {
                run(&grid, &config(), &settings, 5)
                    .iter()
                    .map(|(records, _)| {
                        let bits = |record: &StepRecord| [record.loss, record.grad_norm];
                        records.iter().map(|r| bits(r).map(f64::to_bits)).collect()
                    })
                    .collect()
            };
            let first = recorded();
            for (rank, records) in first.iter().enumerate() {
                assert_eq!(records, &first[0], "{grid} rank {rank}");
            }
            assert_eq!(recorded(), first, "{grid}");
        }
    }
}

/// A model whose gradients are large, and of whose one key-value head two ranks of X hold copies.
fn steep() -> ModelConfig {
    ModelConfig {
        kv_heads: 1,
        tied: false,
        ..config()
    }
}

/// The values of [`steep`], with `change` added to one element.
fn steep_on(rank: &Rank, change: Option<(&str, usize, f32)>) -> Result<Llama> {
    Llama::from_values(&steep(), rank, |name, [_, columns]| {
        let stream = Stream::new(5, name);
        let change = change.filter(|(changed, ..)| *changed == name);
        let gain = name.contains("norm");
        Box::new(move |row, column| {
            let at = row * columns + column;
            let value = stream.normal(at as u64) as f32 * 0.3 + f32::from(u8::from(gain));
            match change {
                Some((_, changed, by)) if changed == at => value + by,
                _ => value,
            }
        })
    })
}

#[test]
fn p06_gradients_are_those_of_finite_differences_across_ranks() {
    const STEP: f32 = 1e-2;
    let grid = Grid::new(2, 2, 2, 1);
    let rows = rows("p06", &[9, 7, 12, 5]);
    let settings = TrainConfig {
        optimizer: Optimizer::Sgd,
        ..settings()
    };
    let params = launch::threads(&grid, |rank| {
        let mut trainer = Trainer::new(rank, steep_on(rank, None)?, settings.clone())?;
        trainer.step(rank, &rows, 0.0)?;
        Ok(trainer.llama().params().to_vec())
    })
    .unwrap();
    let copies = |name: &str| {
        let param = params[0].iter().find(|param| param.name == name).unwrap();
        param.placement.copies
    };
    let gradients = whole(&params, |param| &param.gradient);
    let mut checks = Vec::new();
    for (name, expected_copies) in [
        ("model.embed_tokens.weight", 1),
        ("model.layers.0.self_attn.q_proj.weight", 1),
        ("model.layers.0.self_attn.k_proj.weight", 2),
        ("model.layers.1.self_attn.v_proj.weight", 2),
        ("model.layers.0.mlp.gate_proj.weight", 1),
        ("model.layers.1.mlp.down_proj.weight", 1),
        ("model.layers.1.input_layernorm.weight", 1),
        ("model.norm.weight", 1),
        ("lm_head.weight", 1),
    ] {
        assert_eq!(copies(name), expected_copies);
        // The steepest element of the first and of the last half: other ranks own them.
        let gradient = &gradients[name];
        let (first, last) = (0..gradient.len() / 2, gradient.len() / 2..gradient.len());
        for half in [first, last] {
            let at = half
                .max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs()))
                .unwrap();
            checks.push((name, at, f64::from(gradient[at])));
        }
    }
    launch::threads(&grid, |rank| {
        let loss = |name, at, by| {
            let llama = steep_on(rank, Some((name, at, by)))?;
            let (sum, count) = evaluate(&llama, rank, &rows, 1)?;
            Ok::<f64, Error>(sum / count as f64)
        };
        for &(name, at, gradient) in &checks {
            let difference = loss(name, at, STEP)? - loss(name, at, -STEP)?;
            let slope = difference / (2.0 * f64::from(STEP));
            assert!(
                (slope / gradient - 1.0).abs() <= 2e-2,
                "{name}[{at}]: {gradient} for {slope}"
            );
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn p14_gradients_of_a_step_that_broke_off_do_not_leak_into_the_next() {
    let good = rows("p14", &[9, 7, 5, 8]);
    let mut bad = good.clone();
    // One rank of Z has the bad row; every rank refuses it.
    bad[3] = Row::document(vec![1, 99, 2], false);
    for grid in [Grid::single(), Grid::new(2, 2, 1, 1), Grid::new(1, 1, 2, 1)] {
        launch::threads(&grid, |rank| {
            let settings = TrainConfig {
                micro_batch: 1,
                optimizer: Optimizer::Sgd,
                ..settings()
            };
            let mut broken = trainer(rank, settings.clone())?;
            // A step at rate 0 leaves nothing but its gradients.
            broken.step(rank, &good, 0.0)?;
            let error = broken.step(rank, &bad, 1e-2).unwrap_err();
            assert!(error.to_string().contains("token id 99"), "{error}");
            assert_eq!(broken.step_count(), 1);
            let gradients = |trainer: &Trainer| -> f32 {
                let params = trainer.llama().params().iter();
                params.flat_map(|param| param.gradient.iter()).sum()
            };
            assert!(gradients(&broken) != 0.0);

            let mut fresh = trainer(rank, settings)?;
            let (after, expected) = (
                broken.step(rank, &good, 1e-2)?,
                fresh.step(rank, &good, 1e-2)?,
            );
            assert_eq!(after.loss, expected.loss);
            assert_eq!(after.grad_norm, expected.grad_norm);
            for (a, b) in broken.llama().params().iter().zip(fresh.llama().params()) {
                assert_eq!(a.gradient, b.gradient, "{grid}: {}", a.name);
                assert_eq!(a.weight, b.weight, "{grid}: {}", a.name);
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn p17_a_model_with_dropout_is_refused() {
    let read = |key: &str| {
        let mut model = serde_json::to_value(config()).unwrap();
        model[key] = 0.1.into();
        serde_json::from_value::<ModelConfig>(model)
    };
    for key in ["attention_dropout", "hidden_dropout"] {
        let error = read(key).unwrap_err().to_string();
        assert_says(&error, &["unknown field", key]);
    }
    assert!(read("norm_eps").is_ok());
}

#[test]
fn p18_copies_of_key_value_heads_work_and_other_grids_are_refused_before_the_first_step() {
    let model = ModelConfig {
        heads: 8,
        hidden: 16,
        ffn: 24,
        ..config()
    };
    let with_copies = |grid: &Grid| -> (StepRecord, Tensors) {
        let results = run(grid, &model, &settings(), 1);
        let record = results[0].0[0];
        let params: Vec<Vec<Param>> = results.into_iter().map(|(_, params)| params).collect();
        (record, whole(&params, |param| &param.gradient))
    };
    let (expected, gradients) = with_copies(&Grid::single());
    for (x, copies) in [(4, 2), (8, 4)] {
        let grid = Grid::new(x, 1, 1, 1);
        let groups = launch::threads(&grid, |rank| {
            let group = rank.replicas(copies)?;
            Ok((group.size(), group.place(), group.sum_count(1)?))
        })
        .unwrap();
        for (rank, group) in groups.into_iter().enumerate() {
            assert_eq!(group, (copies, rank % copies, copies as u64));
        }
        let (record, split) = with_copies(&grid);
        assert!((record.loss / expected.loss - 1.0).abs() <= 1e-5, "{grid}");
        let (error, name) = distance(&split, &gradients);
        assert!(error <= 1e-5, "{grid}: {name} {error:e}");
    }

    let model = ModelConfig {
        heads: 12,
        kv_heads: 4,
        ffn: 24,
        ..config()
    };
    let grid = Grid::new(6, 1, 1, 1);
    let planned = model.check_grid(&grid).unwrap_err();
    let started = launch::threads(&grid, |rank| {
        // Neither a group of copies nor a step: the model is not even made.
        Llama::initialise(&model, rank, 1).map(drop)
    })
    .unwrap_err();
    assert_eq!(planned.kind(), Kind::Usage);
    assert_eq!(planned.to_string(), started.to_string());
    assert_says(&planned.to_string(), &["grid.x", "6 ranks", "kv_heads = 4"]);
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    4096 * pages
}

/// Nothing grows in a long run: the ranks' pools not at all, the process by less than a page for each rank and step.
#[test]
fn p08_a_thousand_steps_on_eight_ranks_need_no_more_memory_than_ten() {
    let settings = TrainConfig {
        schedule: Schedule {
            recompute: Recompute::Block,
            ..Schedule::default()
        },
        ..goldfish_settings(3)
    };
    // Batches of unequal sequences, as many kinds as steps in a round.
    let batches: Vec<Vec<Row>> = (0..10)
        .map(|step| rows(&format!("p08 {step}"), &[6 + step, 4, 9 - step % 3, 5]))
        .collect();
    let resident_bytes = launch::threads(&Grid::new(2, 2, 2, 1), |rank| {
        let mut trainer = trainer(rank, settings.clone())?;
        let mut steps = |count| -> Result<(usize, usize, u64)> {
            for rows in batches.iter().cycle().take(count) {
                trainer.step(rank, rows, 1e-3)?;
            }
            rank.barrier()?;
            let resident = resident();
            rank.barrier()?;
            Ok((rank.pool.live_bytes(), rank.pool.peak_bytes(), resident))
        };
        let (live, peak, _) = steps(10)?;
        let (_, _, early) = steps(90)?;
        let (late_live, late_peak, late) = steps(900)?;
        assert_eq!((live, peak), (late_live, late_peak), "rank {}", rank.index);
        Ok([early, late])
    })
    .unwrap();
    for [early, late] in resident_bytes {
        assert!(late <= early + (8 << 20), "{early} bytes, then {late}");
    }
}

#[test]
fn w16_a_checkpoint_that_cannot_be_written_is_an_error_at_the_save() {
    for grid in [Grid::single(), Grid::new(1, 1, 2, 1), Grid::new(2, 1, 1, 2)] {
        let folder = tempdir().unwrap();
        let blocked = folder.path().join("checkpoints");
        fs::write(&blocked, "a file where a folder should be").unwrap();
        let results = impatient(20_000).run(&grid, |rank| {
            let mut saving = trainer(rank, settings())?;
            let mut unbroken = trainer(rank, settings())?;
            let rows = rows("w16", &[9, 7, 5, 8]);
            saving.step(rank, &rows, 1e-2)?;
            unbroken.step(rank, &rows, 1e-2)?;
            let error = saving.save(rank, &blocked.join("step-1")).unwrap_err();
            assert_says(&error.to_string(), &["write", "checkpoints"]);
            if rank.is_first() {
                assert_eq!(error.kind(), Kind::Resources, "{error}");
            }
            // Nothing was lost: training goes on, and a save elsewhere is whole.
            let (after, expected) = (
                saving.step(rank, &rows, 1e-2)?,
                unbroken.step(rank, &rows, 1e-2)?,
            );
            assert_eq!(after.loss, expected.loss);
            let path = folder.path().join("step-2");
            saving.save(rank, &path)?;
            unbroken.load(rank, &path)?;
            assert_eq!(unbroken.step_count(), 2);
            Ok(())
        });
        results.unwrap_or_else(|error| panic!("{grid}: {error}"));
    }
}

#[test]
fn w16_a_file_in_the_place_of_a_checkpoint_is_left_alone() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("step-1");
    fs::write(&path, "notes").unwrap();
    launch::threads(&Grid::single(), |rank| {
        let trainer = trainer(rank, settings())?;
        for _ in 0..2 {
            let error = trainer.save(rank, &path).unwrap_err();
            assert_says(&error.to_string(), &["cannot write", "step-1"]);
            assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
        }
        fs::remove_file(&path).unwrap();
        trainer.save(rank, &path)
    })
    .unwrap();
}

#[test]
fn w16_a_save_that_fails_ends_the_run_with_its_own_error() {
    let folder = tempdir().unwrap();
    let blocked = folder.path().join("checkpoints");
    fs::write(&blocked, "a file where a folder should be").unwrap();
    let start = Instant::now();
    let error = impatient(20_000)
        .run(&Grid::new(2, 1, 2, 1), |rank| {
            let mut trainer = trainer(rank, settings())?;
            trainer.save(rank, &blocked.join("step-0"))?;
            let row = Row::document(ids("w16", 9), false);
            trainer.step(rank, &[row], 1e-2)
        })
        .map(|_| "no error")
        .unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_says(&error.to_string(), &["cannot write", "checkpoints"]);
}
