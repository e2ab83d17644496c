//! Learning rates, clipping and the update rules.

use axmem_trainer::launch;
use axmem_trainer::optim::{
    AdamW, Decay, Optimizer, RateSchedule, Update, clip_factor, global_norm, sum_of_squares,
};
use axmem_trainer::{Grid, Param, Placement, Schedule};

use crate::fixture::{self, Fixture, relative_error};
use crate::tiny::whole;

const ADAMW: AdamW = AdamW {
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    decay_norms: false,
};

fn schedule(decay: Decay) -> RateSchedule {
    RateSchedule {
        peak: 2e-3,
        last: 2e-4,
        decay,
        warmup_steps: 4,
        decay_steps: 8,
    }
}

#[test]
fn w17_rate_is_a_pure_function_of_the_step() {
    let expected = [
        0.5e-3, 1e-3, 1.5e-3, 2e-3, 1.775e-3, 1.55e-3, 1.325e-3, 1.1e-3,
    ];
    let linear = schedule(Decay::Linear);
    for (step, rate) in (1..).zip(expected) {
        assert!((linear.at(step) - rate).abs() < 1e-15, "step {step}");
    }
    let cosine = schedule(Decay::Cosine);
    assert!((cosine.at(8) - 1.1e-3).abs() < 1e-15);
    assert!(cosine.at(6) > linear.at(6) && cosine.at(10) < linear.at(10));
    for decay in [Decay::Cosine, Decay::Linear] {
        // Peak at the end of the warm-up, final at the end of the decay and after it.
        let schedule = schedule(decay);
        assert_eq!(schedule.at(4), 2e-3);
        for step in [12, 13, 10_000] {
            assert!((schedule.at(step) - 2e-4).abs() < 1e-18);
        }
    }
    assert!((4..100).all(|step| schedule(Decay::Constant).at(step) == 2e-3));
}

#[test]
fn schedules_without_warmup_or_decay() {
    let no_warmup = RateSchedule {
        warmup_steps: 0,
        ..schedule(Decay::Linear)
    };
    assert!((no_warmup.at(1) - 1.775e-3).abs() < 1e-15);
    let no_decay = RateSchedule {
        decay_steps: 0,
        ..schedule(Decay::Linear)
    };
    assert_eq!(no_decay.at(4), 2e-3);
    assert_eq!(no_decay.at(5), 2e-4);
    let error = RateSchedule {
        last: 1.0,
        ..schedule(Decay::Linear)
    }
    .validate()
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rate.final: 1 is not between 0 and the peak 0.002"
    );
}

/// Parameters of a toy model: a matrix and a gain, both with a gradient of known norm.
fn params(rank: &axmem_trainer::Rank) -> Vec<Param> {
    let mut params = vec![
        Param::new("w", [6, 4], Placement::NORMAL, rank, |r, c| {
            (r * 4 + c) as f32
        }),
        Param::new("g", [1, 4], Placement::HIDDEN, rank, |_, c| c as f32),
    ];
    for param in &mut params {
        param.gradient.clone_from(&param.weight);
    }
    params
}

#[test]
fn p01_each_element_counts_once_in_the_norm_on_every_grid() {
    let squares: u32 = (0..24).chain(0..4).map(|i| i * i).sum();
    let expected = f64::from(squares).sqrt();
    for (x, y, z, data) in [
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (1, 2, 1, 2),
        (2, 2, 2, 1),
        (4, 1, 3, 1),
    ] {
        let grid = Grid::new(x, y, z, data);
        let norms = launch::threads(&grid, |rank| {
            global_norm(rank, &params(rank), &Schedule::default())
        })
        .unwrap();
        for norm in norms {
            assert!((norm - expected).abs() < 1e-12 * expected, "{grid}: {norm}");
        }
    }
}

#[test]
fn p03_after_the_clip_the_norm_is_the_largest_allowed() {
    // Plain gradient descent at rate 1 moves the weights by exactly the clipped gradient.
    let grid = Grid::single();
    launch::threads(&grid, |rank| {
        let mut params = params(rank);
        let norm = global_norm(rank, &params, &Schedule::default())?;
        assert!(norm > 10.0);
        let before: Vec<Vec<f32>> = params.iter().map(|param| param.weight.to_vec()).collect();
        let mut state = Optimizer::Sgd.state(&params, rank, &Schedule::default());
        let factor = clip_factor(norm, Some(1.0));
        Optimizer::Sgd.update(&mut params, &mut state, 1.0, factor);
        let moved: f64 = params
            .iter()
            .zip(&before)
            .map(|(param, before)| {
                let difference: Vec<f32> = param
                    .weight
                    .iter()
                    .zip(before)
                    .map(|(after, before)| after - before)
                    .collect();
                sum_of_squares(&difference)
            })
            .sum();
        assert!((moved.sqrt() - 1.0).abs() < 1e-5, "{}", moved.sqrt());
        Ok(())
    })
    .unwrap();
    assert_eq!(clip_factor(0.5, Some(1.0)), 1.0);
    assert_eq!(clip_factor(10.0, None), 1.0);
}

#[test]
fn the_first_update_of_adamw_moves_by_the_rate_whatever_the_gradient() {
    let (mut weight, gradient) = (vec![1.0f32, 1.0, 1.0], [1e-3f32, -5.0, 0.0]);
    let (mut first, mut second) = (vec![0.0; 3], vec![0.0; 3]);
    let update = Update {
        update: 1,
        rate: 0.01,
        factor: 1.0,
    };
    ADAMW.update(
        &mut weight,
        &mut first,
        &mut second,
        &gradient,
        &update,
        false,
    );
    // m / (1 - beta1) = g and sqrt(v / (1 - beta2)) = |g|: the step is the sign of g.
    for (weight, expected) in weight.iter().zip([0.99, 1.01, 1.0]) {
        assert!((weight - expected).abs() < 1e-6);
    }
    // Decay is decoupled: it does not pass through the moments.
    let mut weight = vec![1.0f32];
    ADAMW.update(&mut weight, &mut [0.0], &mut [0.0], &[0.0], &update, true);
    assert!((weight[0] - (1.0 - 0.01 * 0.1)).abs() < 1e-7);
}

#[test]
fn gains_and_biases_decay_only_when_asked() {
    let grid = Grid::single();
    launch::threads(&grid, |rank| {
        for decay_norms in [false, true] {
            let mut params = params(rank);
            for param in &mut params {
                param.gradient.fill(0.0);
            }
            let optimizer = Optimizer::AdamW(AdamW {
                decay_norms,
                ..ADAMW
            });
            let mut state = optimizer.state(&params, rank, &Schedule::default());
            optimizer.update(&mut params, &mut state, 0.5, 1.0);
            assert_eq!(params[0].weight[1], 0.95);
            assert_eq!(params[1].weight[1], if decay_norms { 0.95 } else { 1.0 });
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn impossible_settings_are_refused_with_the_field() {
    let bad = Optimizer::AdamW(AdamW {
        beta2: 1.0,
        ..ADAMW
    });
    assert_eq!(
        bad.validate().unwrap_err().to_string(),
        "optimizer.adamw.beta2: 1 is not in [0, 1)"
    );
    let read: Optimizer = serde_json::from_str(
        r#"{"adamw": {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "decay_norms": false}}"#,
    )
    .unwrap();
    assert_eq!(read, Optimizer::AdamW(ADAMW));
}

/// Ten steps of `make_llama.py` on one batch, on `grid`: losses and norms as `PyTorch`'s, then the weights.
fn ten_steps_equal_pytorch(name: &str, grid: &Grid) {
    let fixture = Fixture::load(name);
    let expected = fixture::load(&format!("llama_{name}_adamw.safetensors"));
    let (losses, norms) = (
        fixture::values(&expected, "losses"),
        fixture::values(&expected, "norms"),
    );
    let optimizer = Optimizer::AdamW(ADAMW);
    let params = launch::threads(grid, |rank| {
        let mut llama = fixture.model(rank)?;
        let batch = fixture.batch();
        let inverse_count = 1.0 / batch.keep.iter().filter(|kept| **kept).count() as f64;
        let mut state = optimizer.state(llama.params(), rank, &Schedule::default());
        for step in 0..10 {
            llama.forget_gradients();
            let sum =
                llama.loss_and_gradients(rank, &batch, inverse_count, &Schedule::default())?;
            let norm = global_norm(rank, llama.params(), &Schedule::default())?;
            let off = |value: f64, expected: f32| (value / f64::from(expected) - 1.0).abs();
            assert!(
                off(sum * inverse_count, losses[step]) < 1e-5,
                "loss of step {step}"
            );
            assert!(off(norm, norms[step]) < 1e-4, "norm of step {step}");
            let factor = clip_factor(norm, Some(1.0));
            optimizer.update(llama.params_mut(), &mut state, 1e-2, factor);
        }
        Ok(llama.params().to_vec())
    })
    .unwrap();
    for (name, weight) in whole(&params, |param| &param.weight) {
        let expected = fixture::values(&expected, &format!("weight.{name}"));
        let error = relative_error(&weight, &expected);
        assert!(error < 1e-4, "{name} differs by {error}");
    }
}

#[test]
fn ten_adamw_steps_equal_pytorch() {
    for name in ["tied", "untied"] {
        for grid in [Grid::single(), Grid::new(2, 2, 1, 1)] {
            ten_steps_equal_pytorch(name, &grid);
        }
    }
}
