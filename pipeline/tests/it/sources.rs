//! Local sources: what of them is in the keys, and what happens when they change.

use std::fs::{self, File};
use std::path::Path;

use axmem::store::Store;

use crate::support::{axmem, finish, run_smoke, smoke};

#[test]
fn names_count_in_a_folder_and_files_that_are_not_read_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("source");
    fs::create_dir(&source).expect("a folder");
    fs::write(source.join("a.txt"), "text").expect("a write");
    let store = Store::new(folder.path().join("store"));
    let content = |path: &Path| store.content(path).expect("a hash");
    let first = content(&source);
    fs::write(source.join("README.md"), "about").expect("a write");
    assert_eq!(content(&source), first);
    assert_ne!(content(&source.join("a.txt")), first);
    // The id of a plain text is the name of its file.
    fs::rename(source.join("a.txt"), source.join("b.txt")).expect("a rename");
    assert_ne!(content(&source), first);
    fs::remove_file(source.join("b.txt")).expect("a removal");
    assert!(store.content(&source).is_err());
}

#[test]
fn a_source_that_changes_between_plan_and_reading_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, store) = (
        folder.path().join("source.jsonl"),
        folder.path().join("store"),
    );
    fs::write(&source, "{\"id\": \"1\", \"text\": \"one\"}\n").expect("a write");
    let set = format!("corpus.source={}", source.display());
    fs::create_dir(&store).expect("a folder");
    let plan = finish(&mut run_smoke(&store, &["--dry-run", "--set", &set]));
    assert_eq!(plan.0, 0, "{}", plan.1);
    // The same size, time and inode: what the plan compares does not show the change.
    let modified = fs::metadata(&source)
        .and_then(|meta| meta.modified())
        .expect("a time");
    fs::write(&source, "{\"id\": \"1\", \"text\": \"two\"}\n").expect("a write");
    let file = File::options().write(true).open(&source).expect("the file");
    file.set_modified(modified).expect("a time");
    let bucket = || {
        let mut command = axmem(&["bucket"]);
        command
            .arg(smoke())
            .arg("--store")
            .arg(&store)
            .args(["--set", &set]);
        finish(&mut command)
    };
    let (code, text) = bucket();
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains(&format!("{} has changed", source.display())),
        "{text}"
    );
    // The next run takes it as it is, and fails on its only article alone.
    let (code, text) = bucket();
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("largest possible size"), "{text}");
}
