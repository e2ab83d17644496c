//! The order of a step: what is counted, summed, skipped and refused.

use axmem_trainer::engine::evaluate;
use axmem_trainer::{
    Error, Grid, Kind, Llama, Param, Rank, Recompute, Row, Schedule, StepRecord, TrainConfig,
    launch,
};

use crate::tiny::{
    Tensors, config, distance, goldfish_settings, ids, rows, settings, trainer, whole,
};

/// One step on `grid`: the record and the whole gradients.
fn one_step(grid: &Grid, settings: &TrainConfig, rows: &[Row]) -> (StepRecord, Tensors) {
    let results = launch::threads(grid, |rank| {
        let mut trainer = trainer(rank, settings.clone())?;
        let record = trainer.step(rank, rows, 1e-3)?;
        Ok((record, trainer.llama().params().to_vec()))
    })
    .unwrap();
    let (records, params): (Vec<StepRecord>, Vec<Vec<Param>>) = results.into_iter().unzip();
    for record in &records {
        assert_eq!(record.loss, records[0].loss);
        assert_eq!(record.grad_norm, records[0].grad_norm);
        assert_eq!(record.kept_tokens, records[0].kept_tokens);
    }
    (records[0], whole(&params, |param| &param.gradient))
}

fn with_micro_batch(micro_batch: usize) -> TrainConfig {
    TrainConfig {
        micro_batch,
        ..settings()
    }
}

fn assert_equal(case: &str, a: &(StepRecord, Tensors), b: &(StepRecord, Tensors)) {
    assert_eq!(a.0.kept_tokens, b.0.kept_tokens, "{case}");
    assert_eq!(a.0.tokens, b.0.tokens, "{case}");
    assert!((a.0.loss / b.0.loss - 1.0).abs() < 1e-6, "{case}");
    assert!((a.0.grad_norm / b.0.grad_norm - 1.0).abs() < 1e-5, "{case}");
    let (error, name) = distance(&a.1, &b.1);
    assert!(error < 1e-5, "{case}: {name} differs by {error}");
}

#[test]
fn o01_o17_micro_batches_are_not_averaged() {
    // Documents of 2 and 10 tokens: 1 and 9 targets.
    let rows = rows("o01", &[2, 10]);
    let whole = one_step(&Grid::single(), &with_micro_batch(2), &rows);
    assert_eq!(whole.0.kept_tokens, 10);
    let parts = one_step(&Grid::single(), &with_micro_batch(1), &rows);
    assert_equal("1 + 9", &parts, &whole);
    // The mean over ten targets, not the mean of two means.
    let sums: Vec<f64> = rows
        .iter()
        .map(|row| {
            let (record, _) = one_step(&Grid::single(), &settings(), std::slice::from_ref(row));
            record.loss * record.kept_tokens as f64
        })
        .collect();
    assert!((whole.0.loss - (sums[0] + sums[1]) / 10.0).abs() < 1e-6);
}

#[test]
fn o02_ranks_that_keep_three_and_seven_targets_weigh_each_target_equally() {
    let rows = rows("o02", &[4, 8]);
    let single = one_step(&Grid::single(), &settings(), &rows);
    for grid in [Grid::new(1, 1, 2, 1), Grid::new(1, 1, 1, 2)] {
        let split = one_step(&grid, &with_micro_batch(1), &rows);
        assert_equal(&grid.to_string(), &split, &single);
    }
}

#[test]
fn a_large_micro_batch_leaves_rows_for_every_rank() {
    let rows = rows("shares", &[8; 6]);
    for grid in [
        Grid::new(1, 1, 1, 2),
        Grid::new(1, 1, 3, 1),
        Grid::new(1, 1, 2, 3),
    ] {
        let peaks = |micro_batch| {
            launch::threads(&grid, |rank| {
                let mut trainer = trainer(rank, with_micro_batch(micro_batch))?;
                trainer.step(rank, &rows, 1e-3)?;
                Ok(rank.pool.peak_bytes())
            })
            .unwrap()
        };
        let share = rows.len() / (grid.z * grid.data);
        assert_eq!(peaks(100), peaks(share), "{grid}");
        assert!(
            peaks(100).iter().all(|peak| *peak == peaks(100)[0]),
            "{grid}"
        );
    }
}

#[test]
fn o03_the_factoring_of_the_batch_does_not_matter() {
    let lengths: Vec<usize> = (0..24).map(|i| 2 + i * 5 % 7).collect();
    let rows = rows("o03", &lengths);
    let reference = one_step(&Grid::single(), &with_micro_batch(24), &rows);
    for (micro_batch, z, data) in [
        (1, 1, 1),
        (5, 1, 1),
        (12, 1, 1),
        (12, 2, 1),
        (12, 1, 2),
        (1, 2, 2),
        (6, 2, 2),
        (8, 3, 1),
        (1, 3, 2),
        (2, 1, 4),
        (7, 2, 1),
    ] {
        let grid = Grid::new(1, 1, z, data);
        let result = one_step(&grid, &with_micro_batch(micro_batch), &rows);
        assert_equal(
            &format!("micro-batch {micro_batch} on {grid}"),
            &result,
            &reference,
        );
    }
}

#[test]
fn o04_a_globally_empty_batch_counts_and_changes_nothing() {
    // A row whose one target is dropped by Goldfish under h = 1.
    let mut settings = goldfish_settings(1);
    let goldfish = settings.goldfish.clone().unwrap();
    let dropped = (0..31)
        .find(|&id| !goldfish.keep(&[id, 5])[1])
        .expect("half of all ids drop what follows");
    let row = Row::document(vec![dropped, 5], true);
    for grid in [Grid::single(), Grid::new(1, 1, 2, 2)] {
        let results = launch::threads(&grid, |rank| {
            let mut trainer = trainer(rank, settings.clone())?;
            let before = trainer.llama().params().to_vec();
            let record = trainer.step(rank, std::slice::from_ref(&row), 1e-3)?;
            assert_eq!(trainer.step_count(), 1);
            assert_eq!(trainer.state().updates, 0);
            for (before, after) in before.iter().zip(trainer.llama().params()) {
                assert_eq!(before.weight, after.weight);
                assert!(after.gradient.iter().all(|gradient| *gradient == 0.0));
            }
            // The same target counts in a row that is not masked.
            let row = Row::document(vec![dropped, 5], false);
            assert_eq!(trainer.step(rank, &[row], 1e-3)?.kept_tokens, 1);
            Ok(record)
        })
        .unwrap();
        for record in results {
            assert_eq!((record.loss, record.grad_norm), (0.0, 0.0));
            assert_eq!((record.kept_tokens, record.tokens), (0, 2));
        }
    }
    settings.goldfish = None;
    let (record, _) = one_step(&Grid::single(), &settings, &[]);
    assert_eq!(
        (record.loss, record.kept_tokens, record.tokens),
        (0.0, 0, 0)
    );
}

#[test]
fn o05_a_rank_without_targets_takes_part() {
    let rows = rows("o05", &[9, 1]);
    let single = one_step(&Grid::single(), &settings(), &rows);
    for (grid, micro_batch) in [
        (Grid::new(1, 1, 2, 1), 1),
        (Grid::new(1, 1, 1, 2), 1),
        // Ranks that have no row at all.
        (Grid::new(1, 1, 2, 2), 2),
    ] {
        let split = one_step(&grid, &with_micro_batch(micro_batch), &rows);
        assert_equal(&grid.to_string(), &split, &single);
    }
}

#[test]
fn o11_small_gradients_add_up_over_many_micro_batches() {
    let mut rows = rows("o11", &[16]);
    rows.extend(vec![Row::document(ids("o11 small", 2), false); 256]);
    let whole = one_step(&Grid::single(), &with_micro_batch(257), &rows);
    let parts = one_step(&Grid::single(), &with_micro_batch(1), &rows);
    assert_equal("257 micro-batches", &parts, &whole);
}

#[test]
fn o16_a_packed_document_has_the_mask_and_the_loss_it_has_alone() {
    let documents = rows("o16", &[14, 9]);
    let packed = Row {
        ids: [&documents[0].ids[..], &documents[1].ids[..]].concat(),
        segments: vec![14, 9],
        masked: true,
    };
    let settings = goldfish_settings(3);
    let sum = |rows: &[Row]| {
        let (record, _) = one_step(&Grid::single(), &settings, rows);
        (record.kept_tokens, record.loss * record.kept_tokens as f64)
    };
    let (first, second) = (sum(&documents[..1]), sum(&documents[1..]));
    let together = sum(&[packed]);
    assert!(together.0 < 13 + 8, "some target is dropped");
    assert_eq!(together.0, first.0 + second.0);
    assert!((together.1 - first.1 - second.1).abs() < 1e-5);
}

#[test]
fn recomputation_changes_nothing() {
    let rows = rows("recompute", &[12, 7, 9]);
    let kept = one_step(&Grid::single(), &settings(), &rows);
    let again = TrainConfig {
        schedule: Schedule {
            recompute: Recompute::Block,
            ..Schedule::default()
        },
        ..settings()
    };
    let recomputed = one_step(&Grid::single(), &again, &rows);
    assert_eq!(kept.0.loss, recomputed.0.loss);
    assert_eq!(kept.1, recomputed.1);
}

#[test]
fn a_model_learns_a_document_and_says_so() {
    let rows = rows("learn", &[20]);
    launch::threads(&Grid::single(), |rank| {
        let mut trainer = trainer(rank, settings())?;
        let (sum, count) = trainer.evaluate(rank, &rows)?;
        assert_eq!(count, 19);
        let first = trainer.step(rank, &rows, 1e-2)?;
        assert!((first.loss - sum / 19.0).abs() < 1e-6);
        assert_eq!((first.step, first.tokens, first.rate), (1, 20, 1e-2));
        assert!(first.model_flops > 0 && first.seconds > 0.0);
        for _ in 0..200 {
            trainer.step(rank, &rows, 1e-2)?;
        }
        let (sum, count) = evaluate(trainer.llama(), rank, &rows, 1)?;
        assert!(sum / (count as f64) < 0.1, "{}", sum / count as f64);
        Ok(())
    })
    .unwrap();
}

#[test]
fn validation_is_unmasked_and_equal_on_every_grid() {
    let rows = rows("validation", &[12, 3, 8, 5, 9]);
    let on = |grid: &Grid| {
        launch::threads(grid, |rank| {
            trainer(rank, goldfish_settings(2))?.evaluate(rank, &rows)
        })
        .unwrap()[0]
    };
    let (sum, count) = on(&Grid::single());
    assert_eq!(count, 37 - 5);
    let (split, split_count) = on(&Grid::new(1, 1, 2, 2));
    assert_eq!(split_count, count);
    assert!((split / sum - 1.0).abs() < 1e-6);
}

#[test]
fn a_loss_that_is_not_finite_stops_before_the_update() {
    launch::threads(&Grid::single(), |rank| {
        let huge = |_: &str, _: [usize; 2]| -> Box<dyn Fn(usize, usize) -> f32> {
            Box::new(|row, column| if row == column { f32::NAN } else { 1.0 })
        };
        let llama = Llama::from_values(&config(), rank, huge)?;
        let mut trainer = axmem_trainer::Trainer::new(rank, llama, settings())?;
        let error = trainer.step(rank, &rows("nan", &[6]), 1e-3).unwrap_err();
        assert!(
            matches!(
                error,
                Error::NotFinite {
                    step: 1,
                    what: "loss",
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(error.kind(), Kind::Numerical);
        assert_eq!(trainer.step_count(), 0);
        assert_eq!(trainer.llama().params()[0].weight[1], 1.0);
        Ok(())
    })
    .unwrap();
}

#[test]
fn impossible_settings_and_rows_are_refused() {
    launch::threads(&Grid::single(), |rank: &Rank| {
        let zero = trainer(rank, with_micro_batch(0)).unwrap_err();
        assert_eq!(
            zero.to_string(),
            "micro_batch: is 0; at least one row runs at a time"
        );
        let clip = TrainConfig {
            clip: Some(0.0),
            ..settings()
        };
        assert!(
            trainer(rank, clip)
                .unwrap_err()
                .to_string()
                .starts_with("clip: 0")
        );
        let mut row = Row::document(vec![1, 2, 3], false);
        row.segments = vec![2];
        let error = trainer(rank, settings())?
            .step(rank, &[row], 1e-3)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "row 0 of the batch has 3 ids, but its documents have 2"
        );
        Ok(())
    })
    .unwrap();
}
