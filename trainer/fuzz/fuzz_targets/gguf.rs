//! Any bytes in place of a GGUF file: an error or a model, never a panic or memory beyond the file's size.
//!
//! ```text
//! mkdir -p trainer/fuzz/corpus/gguf && cp trainer/tests/fixtures/tiny.gguf trainer/fuzz/corpus/gguf
//! cd trainer && cargo +nightly fuzz run gguf -- -max_total_time=600 -max_len=65536
//! ```
#![no_main]

use axmem_trainer::{Grid, Published, launch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("gguf").tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("a file in it");
    let Ok(published) = Published::open(&path) else {
        return;
    };
    // Values are in the file, so there are not many.
    let _ = launch::threads(&Grid::single(), |rank| published.llama(rank).map(|_| ()));
});
