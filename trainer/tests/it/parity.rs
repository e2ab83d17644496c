//! The engine against `PyTorch`: logits, loss and every gradient of tiny Llamas from fixtures.

use axmem_trainer::{Grid, Recompute, Schedule, launch};

use crate::fixture::{Fixture, documents, relative_error};

#[test]
fn logits_and_loss_equal_pytorch() {
    for name in ["tied", "untied", "bias"] {
        let fixture = Fixture::load(name);
        let batch = fixture.batch();
        launch::threads(&Grid::single(), |rank| {
            let model = fixture.model(rank)?;
            let hidden = model.hidden(rank, &documents(&batch))?;
            let error = relative_error(&model.logits(rank, &hidden)?, &fixture.values("logits"));
            assert!(error < 1e-5, "{name}: logits differ by {error:e}");
            let count = batch.keep.iter().filter(|&&keep| keep).count() as f64;
            let loss = model.loss(rank, &batch)? / count;
            let expected = f64::from(fixture.values("loss")[0]);
            let error = (loss - expected).abs() / expected;
            assert!(error < 1e-5, "{name}: loss {loss} instead of {expected}");
            Ok(())
        })
        .expect(name);
    }
}

/// W01, W02: the rotation convention shows at later positions only; the last rows of the first document are past 64.
#[test]
fn w01_w02_logits_at_positions_past_64_equal_pytorch() {
    let fixture = Fixture::load("tied");
    let batch = fixture.batch();
    let vocab = fixture.config.vocab;
    launch::threads(&Grid::single(), |rank| {
        let model = fixture.model(rank)?;
        let hidden = model.hidden(rank, &documents(&batch))?;
        let rows = 64 * vocab..batch.segments[0] * vocab;
        let logits = &model.logits(rank, &hidden)?[rows.clone()];
        let error = relative_error(logits, &fixture.values("logits")[rows]);
        assert!(error < 1e-5, "logits differ by {error:e}");
        Ok(())
    })
    .expect("one rank");
}

/// Step-1 gradients on a grid against `PyTorch`'s, whichever part a rank holds.
fn gradients_equal_pytorch(name: &str, grid: &Grid, recompute: Recompute, chunk: usize) {
    let fixture = Fixture::load(name);
    let whole = fixture.batch();
    let count = whole.keep.iter().filter(|&&keep| keep).count() as f64;
    // Rows are split over Z and Data: here the first rank of these axes takes all of them, the others none.
    let schedule = Schedule {
        recompute,
        ..Schedule::default()
    };
    let shards = launch::threads(grid, |rank| {
        let batch = match (rank.coord.z, rank.coord.data) {
            (0, 0) => whole.clone(),
            _ => axmem_trainer::Batch::default(),
        };
        let mut model = fixture.model(rank)?.with_loss_chunk_rows(chunk);
        let loss = model.loss_and_gradients(rank, &batch, 1.0 / count, &schedule)?;
        Ok((loss, model.params().to_vec()))
    })
    .expect(name);

    let loss: f64 = shards
        .iter()
        .enumerate()
        .filter(|(rank, _)| grid.coord(*rank).x == 0 && grid.coord(*rank).y == 0)
        .map(|(_, (loss, _))| loss)
        .sum();
    let expected = f64::from(fixture.values("loss")[0]);
    assert!(
        (loss / count - expected).abs() / expected < 1e-5,
        "{name} {grid}: loss {loss}"
    );
    for (index, param) in shards[0].1.iter().enumerate() {
        let expected = fixture.values(&format!("gradient.{}", param.name));
        let mut gradient = vec![0.0; expected.len()];
        for (_, params) in &shards {
            let param = &params[index];
            let coord_counts = param.block.flat.clone().zip(param.gradient.iter());
            for (position, value) in coord_counts {
                if position >= param.block.shape[0] * param.block.shape[1] {
                    continue;
                }
                if let Some((row, column)) = param.block.element(position) {
                    gradient[row * param.shape[1] + column] += value;
                }
            }
        }
        // Copies along X or Y are equal; along Data the parts add up to the whole.
        let copies = grid.ranks()
            / (grid.z * grid.data)
            / [param.placement.rows, param.placement.columns]
                .iter()
                .flatten()
                .map(|&axis| grid.size(axis))
                .product::<usize>();
        for value in &mut gradient {
            *value /= copies as f32;
        }
        let error = relative_error(&gradient, &expected);
        assert!(
            error < 1e-4,
            "{name} {grid} {recompute:?}: {} differs by {error:e}",
            param.name
        );
    }
}

#[test]
fn gradients_equal_pytorch_on_one_rank() {
    for name in ["tied", "untied", "bias"] {
        for recompute in [Recompute::None, Recompute::Block] {
            gradients_equal_pytorch(name, &Grid::single(), recompute, 256);
        }
    }
}

#[test]
fn l08_gradients_equal_pytorch_for_any_chunk_of_the_loss() {
    for chunk in [1, 7, 256] {
        gradients_equal_pytorch("tied", &Grid::single(), Recompute::None, chunk);
    }
}

#[test]
fn gradients_equal_pytorch_on_grids() {
    for (x, y, z, data) in [
        (1, 1, 2, 1),
        (1, 1, 3, 1),
        (2, 1, 1, 1),
        (1, 2, 1, 1),
        (1, 1, 1, 2),
        (2, 2, 1, 1),
        (2, 2, 2, 1),
    ] {
        let grid = Grid::new(x, y, z, data);
        for name in ["tied", "untied"] {
            gradients_equal_pytorch(name, &grid, Recompute::Block, 16);
        }
    }
    // One key-value head is not split over X.
    gradients_equal_pytorch("bias", &Grid::new(1, 2, 2, 1), Recompute::None, 16);
}
