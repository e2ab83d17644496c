//! Tests of ranks that are MPI processes; `.ci/mpi` runs them under `mpirun`.
//!
//! The first argument chooses what runs: `collectives` (the usual), `chunks` and `library` are the same with other
//! settings; `unchecked` does not compare what the ranks bring; `training` and `memory` run whole steps; `skip`, `leave`, `stop`, `mismatch` and `fail` end with an
//! error on purpose.

mod collectives;
mod failures;
mod training;

use std::process::ExitCode;
use std::time::Duration;

use axmem_trainer::launch::{Mpi, MpiSettings, Reduce, launched};

/// The exit code of a failed rank.
const FAILED: i32 = 7;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(launched) = launched() else {
        // Test runners ask for a list of tests, of which there is none.
        if name != "--list" {
            println!("the tests of the MPI back end want 8 processes: run .ci/mpi");
        }
        return ExitCode::SUCCESS;
    };
    let mut settings = MpiSettings {
        check: true,
        ..MpiSettings::default()
    };
    match name.as_str() {
        "chunks" => settings.limit = 24,
        "library" => settings.reduce = Reduce::Library,
        "unchecked" => settings.check = false,
        "skip" | "leave" | "stop" => settings.timeout = Duration::from_secs(2),
        _ => {}
    }
    let mpi = match Mpi::start(settings) {
        Ok(mpi) => mpi,
        Err(error) => launched.refuse(&error.to_string(), FAILED),
    };
    let outcome = match name.as_str() {
        "skip" => failures::skip(&mpi),
        "leave" => failures::leave(&mpi),
        "stop" => failures::stop(&mpi),
        "mismatch" => failures::mismatch(&mpi),
        "fail" => failures::fail(&mpi),
        "training" => training::run(&mpi),
        "memory" => training::memory(&mpi),
        _ => collectives::run(&mpi, settings),
    };
    match outcome {
        Ok(()) => {
            if mpi.index() == 0 {
                println!("mpi {name}: passed on {} ranks", mpi.size());
            }
            ExitCode::SUCCESS
        }
        Err(error) => mpi.fail(&error.to_string(), FAILED),
    }
}
