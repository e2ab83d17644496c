//! Any bytes in place of a MediaWiki dump: an error or documents, never a panic.
//!
//! ```text
//! cd datasets && cargo +nightly fuzz run dump -- -max_total_time=600 -max_len=20000
//! ```
#![no_main]

use axmem_datasets::reader::read_documents;
use axmem_datasets::source::SourceFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("dump").tempdir().expect("a temporary folder");
    let path = folder.path().join("dump.xml");
    std::fs::write(&path, bytes).expect("a file in it");
    let file = SourceFile {
        path,
        label: "dump.xml".to_owned(),
        sha256: String::new(),
        bytes: bytes.len() as u64,
    };
    let _ = read_documents(&[file], &mut |_| Ok(()));
});
