//! Checkpoints: resume, reshard, and what damage does.

use std::fs;
use std::path::Path;

use axmem_trainer::checkpoint::{self, Index, latest, load_weights, prune, step_folder};
use axmem_trainer::{
    Error, Grid, Kind, Llama, Optimizer, Rank, Result, TrainConfig, Trainer, launch,
};
use serde_json::Value;
use tempfile::tempdir;

use crate::tiny::{Tensors, config, distance, goldfish_settings, rows, settings, trainer, whole};

/// Steps `first..=last`; the rows and the rate depend on the step alone.
fn train(
    rank: &Rank,
    trainer: &mut axmem_trainer::Trainer,
    first: u64,
    last: u64,
) -> Result<Vec<f64>> {
    (first..=last)
        .map(|step| {
            let rows = rows(&format!("step {step}"), &[11, 7, 9]);
            let record = trainer.step(rank, &rows, 1e-2 / step as f64)?;
            assert_eq!(record.step, step);
            Ok(record.loss)
        })
        .collect()
}

/// Trains `steps` on `grid`, saves to `folder`, and gives the whole weights.
fn saved(grid: &Grid, steps: u64, folder: &Path) -> Tensors {
    let params = launch::threads(grid, |rank| {
        let mut trainer = trainer(rank, settings())?;
        train(rank, &mut trainer, 1, steps)?;
        trainer.save(rank, folder)?;
        Ok(trainer.llama().params().to_vec())
    })
    .unwrap();
    whole(&params, |param| &param.weight)
}

/// Loads `folder` on one rank.
fn load(folder: &Path) -> Result<()> {
    launch::threads(&Grid::single(), |rank| {
        trainer(rank, settings())?.load(rank, folder)
    })
    .map(|_| ())
}

/// Rewrites the index.
fn edit_index(folder: &Path, edit: impl FnOnce(&mut Value)) {
    let path = folder.join("index.json");
    let mut index = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut index);
    fs::write(path, index.to_string()).unwrap();
}

#[test]
fn w14_ten_and_ten_steps_are_twenty() {
    for grid in [Grid::single(), Grid::new(1, 1, 2, 2)] {
        let folder = tempdir().unwrap();
        let path = step_folder(folder.path(), 10);
        launch::threads(&grid, |rank| {
            let mut unbroken = trainer(rank, goldfish_settings(2))?;
            let mut losses = train(rank, &mut unbroken, 1, 20)?;

            let mut first = trainer(rank, goldfish_settings(2))?;
            train(rank, &mut first, 1, 10)?;
            first.save(rank, &path)?;
            let mut resumed = trainer(rank, goldfish_settings(2))?;
            resumed.load(rank, &path)?;
            assert_eq!(resumed.step_count(), 10);
            let rest = train(rank, &mut resumed, 11, 20)?;

            assert_eq!(losses.split_off(10), rest);
            assert_eq!(unbroken.state(), resumed.state());
            for (a, b) in unbroken
                .llama()
                .params()
                .iter()
                .zip(resumed.llama().params())
            {
                assert_eq!(a.weight, b.weight, "{}", a.name);
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn w15_a_save_that_breaks_off_leaves_the_one_before() {
    let folder = tempdir().unwrap();
    let (path, other) = (folder.path().join("step-1"), folder.path().join("step-2"));
    let old = saved(&Grid::single(), 1, &path);
    let new = saved(&Grid::single(), 2, &other);
    let weights = || {
        let params = launch::threads(&Grid::single(), |rank| {
            let mut llama = Llama::initialise(&config(), rank, 9)?;
            load_weights(rank, &path, &config(), llama.params_mut())?;
            Ok(llama.params().to_vec())
        })
        .unwrap();
        whole(&params, |param| &param.weight)
    };
    let partial = folder.path().join(".step-1.partial");
    let previous = folder.path().join(".step-1.previous");

    // While data are written: a half-written file, then a whole one without an index.
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join(".rank-00000.safetensors.partial"), b"half").unwrap();
    assert_eq!(weights(), old);
    fs::copy(
        other.join("rank-00000.safetensors"),
        partial.join("rank-00000.safetensors"),
    )
    .unwrap();
    assert_eq!(weights(), old);
    assert!(
        load(&partial)
            .unwrap_err()
            .to_string()
            .contains("no index.json")
    );
    // Before the first rename, between the two, and before the old one is removed.
    fs::copy(other.join("index.json"), partial.join("index.json")).unwrap();
    assert_eq!(weights(), old);
    fs::rename(&path, &previous).unwrap();
    assert_eq!(weights(), old);
    assert!(path.exists() && !previous.exists());
    fs::rename(&path, &previous).unwrap();
    fs::rename(&partial, &path).unwrap();
    assert_eq!(weights(), new);
    assert!(!previous.exists());

    // A new save replaces what is there and clears what was left.
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("rank-00007.safetensors"), b"left over").unwrap();
    assert_eq!(saved(&Grid::single(), 1, &path), weights());
    assert!(!partial.exists() && !previous.exists());
}

#[test]
fn the_newest_complete_checkpoint_is_found_and_old_ones_go() {
    let folder = tempdir().unwrap();
    let root = folder.path();
    assert_eq!(latest(&root.join("nothing")).unwrap(), None);
    for step in [1, 2, 3] {
        saved(&Grid::single(), step, &step_folder(root, step));
    }
    fs::create_dir(step_folder(root, 4)).unwrap();
    fs::create_dir(root.join(".step-00000004.partial")).unwrap();
    fs::create_dir(root.join("notes")).unwrap();
    // A replacement of the newest broke off between its two renames.
    fs::rename(step_folder(root, 3), root.join(".step-00000003.previous")).unwrap();
    assert_eq!(latest(root).unwrap(), Some((3, step_folder(root, 3))));
    prune(root, 1).unwrap();
    assert_eq!(latest(root).unwrap(), Some((3, step_folder(root, 3))));
    assert!(!step_folder(root, 2).exists() && !root.join(".step-00000004.partial").exists());
    assert!(root.join("notes").exists());
    let index = Index::read(&step_folder(root, 3)).unwrap();
    assert_eq!(index.description.step, 3);
    assert_eq!(index.description.model, config());
}

#[test]
fn w08_w10_missing_and_damaged_files_are_named() {
    let folder = tempdir().unwrap();
    let check = |damage: &dyn Fn(&Path), expected: &[&str]| {
        let path = folder.path().join("checkpoint");
        saved(&Grid::new(1, 1, 3, 1), 1, &path);
        load(&path).unwrap();
        damage(&path);
        let error = load(&path).unwrap_err();
        assert_eq!(error.kind(), Kind::Model, "{error}");
        for part in expected {
            assert!(error.to_string().contains(part), "{error}");
        }
    };
    let second = "rank-00001.safetensors";
    check(
        &|path| fs::remove_file(path.join(second)).unwrap(),
        &[second, "missing", "among 3 files"],
    );
    check(
        &|path| {
            let file = fs::File::options()
                .write(true)
                .open(path.join(second))
                .unwrap();
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        },
        &[second, "truncated"],
    );
    check(
        &|path| {
            let mut bytes = fs::read(path.join(second)).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(path.join(second), bytes).unwrap();
        },
        &[second, "field `v` of model.norm.weight", "hash"],
    );
    check(
        &|path| fs::remove_file(path.join("index.json")).unwrap(),
        &["no index.json"],
    );
    check(
        &|path| fs::write(path.join("index.json"), b"{\"format\": 3").unwrap(),
        &["index.json", "cannot be read"],
    );
    let records = |index: &mut Value, keep: &dyn Fn(usize, &Value) -> bool| {
        let records = index["records"].as_array_mut().unwrap();
        let mut at = 0;
        records.retain(|record| {
            at += 1;
            keep(at - 1, record)
        });
    };
    check(
        &|path| {
            edit_index(path, |index| {
                records(index, &|_, record| record["tensor"] != "model.norm.weight");
            });
        },
        &["lacks tensors", "model.norm.weight (1 in all)"],
    );
    check(
        &|path| edit_index(path, |index| records(index, &|at, _| at != 0)),
        &["model.embed_tokens.weight", "missing"],
    );
    check(
        &|path| {
            edit_index(path, |index| {
                let all = index["records"].as_array_mut().unwrap();
                all.push(all[0].clone());
            });
        },
        &["model.embed_tokens.weight", "stored twice"],
    );
    check(
        &|path| {
            edit_index(path, |index| {
                let all = index["records"].as_array_mut().unwrap();
                let mut record = all[0].clone();
                record["tensor"] = "lm_head.weight".into();
                all.push(record);
            });
        },
        &["does not have", "lm_head.weight (1 in all)"],
    );
    check(
        &|path| {
            edit_index(path, |index| {
                index["records"][0]["parts"][0]["offset"] = u64::MAX.into();
            });
        },
        &["model.embed_tokens.weight does not fit"],
    );
    check(
        &|path| {
            edit_index(path, |index| {
                let bytes = index["files"][second].clone();
                index["files"]["../elsewhere"] = bytes;
            });
        },
        &["../elsewhere", "not in its folder"],
    );
}

#[test]
fn another_model_and_a_missing_state_are_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    saved(&Grid::single(), 1, &path);
    launch::threads(&Grid::single(), |rank| {
        let mut other = config();
        other.rope_theta = 5e5;
        let mut llama = Llama::initialise(&other, rank, 0)?;
        let before = llama.params()[0].weight.clone();
        let error = load_weights(rank, &path, &other, llama.params_mut()).unwrap_err();
        assert!(error.to_string().contains("is of another model"), "{error}");
        assert_eq!(llama.params()[0].weight, before);

        let sgd = TrainConfig {
            optimizer: Optimizer::Sgd,
            ..settings()
        };
        let plain = folder.path().join("plain");
        trainer(rank, sgd.clone())?.save(rank, &plain)?;
        trainer(rank, sgd)?.load(rank, &plain)?;
        let error = trainer(rank, settings())?.load(rank, &plain).unwrap_err();
        assert!(matches!(error, Error::Checkpoint { .. }));
        assert!(
            error.to_string().contains("without optimizer state"),
            "{error}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
fn weights_alone_are_a_start_with_any_optimizer() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("weights");
    let trained = |grid: &Grid, saves: bool| {
        launch::threads(grid, |rank| {
            let mut llama = Llama::initialise(&config(), rank, if saves { 3 } else { 4 })?;
            if saves {
                checkpoint::save_weights(rank, &path, &llama)?;
            } else {
                load_weights(rank, &path, &config(), llama.params_mut())?;
            }
            let mut trainer = Trainer::new(rank, llama, settings())?;
            train(rank, &mut trainer, 1, 3)
        })
        .unwrap()
    };
    let from_memory = trained(&Grid::single(), true);
    assert_eq!(trained(&Grid::single(), false), from_memory);
    let resharded = trained(&Grid::new(1, 1, 2, 1), false);
    assert!((resharded[0][2] / from_memory[0][2] - 1.0).abs() < 1e-5);
    let index = Index::read(&path).unwrap();
    assert_eq!(index.description.optimizer, None);
    assert_eq!(index.fields.len(), 1);
    // It is no checkpoint to go on from with moments.
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("without optimizer state"), "{error}");
}

#[test]
fn data_files_are_plain_safetensors() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let weights = saved(&Grid::single(), 1, &path);
    let device = candle_core::Device::Cpu;
    let tensors =
        candle_core::safetensors::load(path.join("rank-00000.safetensors"), &device).unwrap();
    assert_eq!(tensors.len(), 3 * weights.len());
    for (name, values) in &weights {
        let stored = &tensors[&format!("weight/{name}")];
        assert_eq!(&stored.to_vec1::<f32>().unwrap(), values);
    }
    // Of all of it, only what is stored: no padding, each element once.
    let pieces = saved(&Grid::new(2, 1, 3, 2), 1, &folder.path().join("cut"));
    let (error, name) = distance(&pieces, &weights);
    assert!(error < 1e-4, "{name}: {error}");
    let index = Index::read(&folder.path().join("cut")).unwrap();
    let elements: usize = index.records.iter().map(|record| record.piece.len()).sum();
    assert_eq!(elements as u64, config().parameters());
}
