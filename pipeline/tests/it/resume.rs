//! Killed at any moment, a study goes on and ends with the tables of an unbroken run.

use std::hash::{BuildHasher, RandomState};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{finish, run_smoke, tables};

#[test]
fn r08_r09_killed_at_random_moments_gives_the_tables_of_an_unbroken_run() {
    let unbroken = tempfile::tempdir().expect("a folder");
    let started = Instant::now();
    assert_eq!(finish(&mut run_smoke(unbroken.path(), &[])).0, 0);
    let whole = started.elapsed();

    let broken = tempfile::tempdir().expect("a folder");
    let random = RandomState::new();
    let mut delays = Vec::new();
    for attempt in 0..10_u64 {
        let mut child = run_smoke(broken.path(), &[])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // Enough for every attempt to get a little further, wherever it is hit.
        let share = (random.hash_one(attempt) % 1000) as f64 / 1000.0;
        let delay = Duration::from_millis(30) + whole.mul_f64(share * 0.25);
        delays.push(delay);
        std::thread::sleep(delay);
        child.kill().expect("a kill");
        child.wait().expect("an end");
    }
    let (code, text) = finish(&mut run_smoke(broken.path(), &[]));
    assert_eq!(code, 0, "killed after {delays:?}: {text}");
    assert_eq!(
        tables(broken.path()),
        tables(unbroken.path()),
        "killed after {delays:?}"
    );
}
