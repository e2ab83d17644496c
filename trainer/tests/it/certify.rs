//! The certificate of a grid, on the thread back end.

use axmem_trainer::certify::{Certificate, Study, Trained, shrink, train};
use axmem_trainer::{
    AttentionSplit, Decay, Grid, ModelConfig, Overlap, RateSchedule, Recompute, Schedule,
    TrainConfig, launch,
};

use crate::tiny::{config, goldfish_settings};

fn certificate(grid: &Grid, model: &ModelConfig, schedule: Schedule) -> Certificate {
    let study = Study {
        model: model.clone(),
        train: TrainConfig {
            schedule,
            micro_batch: 8,
            ..goldfish_settings(3)
        },
        rate: RateSchedule {
            peak: 3e-3,
            last: 3e-4,
            decay: Decay::Cosine,
            warmup_steps: 5,
            decay_steps: 15,
        },
        steps: 20,
    };
    let trained = launch::threads(grid, |rank| train(rank, &study)).unwrap();
    let mut trained: Vec<Trained> = trained.into_iter().flatten().collect();
    assert_eq!(trained.len(), 1);
    trained.remove(0).compare(&study).unwrap()
}

#[test]
fn grids_are_certified_against_one_rank() {
    let schedules = [
        Schedule::default(),
        Schedule {
            recompute: Recompute::Block,
            attention: AttentionSplit::YSharded,
            shard_optimizer: true,
            overlap: Overlap {
                row_chunks: 2,
                bucket_bytes: 1 << 10,
                all_gather: 2,
                ..Overlap::default()
            },
        },
    ];
    let model = ModelConfig {
        tied: false,
        qkv_bias: true,
        output_bias: true,
        ..config()
    };
    for (schedule, model) in schedules.into_iter().zip([config(), model]) {
        for grid in [
            Grid::new(2, 2, 2, 1),
            Grid::new(1, 2, 2, 2),
            // Copies of the key-value heads.
            Grid::new(4, 1, 1, 2),
        ] {
            let certificate = certificate(&grid, &model, schedule);
            for check in &certificate.checks {
                println!("{grid} {check:?}");
            }
            assert!(certificate.passed(), "{grid}: {certificate:#?}");
            assert_eq!(certificate.checks.len(), 8);
            assert_eq!(certificate.model, shrink(&model, &grid));
            // The last digits do differ, so something was compared.
            assert!(
                certificate.checks[..6]
                    .iter()
                    .any(|check| check.value > 0.0)
            );
        }
    }
}

#[test]
fn switches_that_are_off_are_certified_against_switches_that_are_on() {
    let schedule = Schedule {
        overlap: Overlap::default().off(),
        ..Schedule::default()
    };
    assert!(certificate(&Grid::new(1, 1, 2, 1), &config(), schedule).passed());
    let single = certificate(&Grid::single(), &config(), schedule);
    assert!(single.checks.iter().all(|check| check.value == 0.0));
}
