//! Folders and commands for the tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use axmem_datasets::{files, table};

/// The shipped smoke study.
pub(crate) fn smoke() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/smoke.yaml")
}

/// The command with arguments.
pub(crate) fn axmem(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_axmem"));
    command.args(arguments);
    command
}

/// The smoke study in a store, with more arguments.
pub(crate) fn run_smoke(store: &Path, more: &[&str]) -> Command {
    let mut command = axmem(&["run"]);
    command.arg(smoke()).arg("--store").arg(store).args(more);
    command
}

/// Runs to the end; the error and the exit code.
pub(crate) fn finish(command: &mut Command) -> (i32, String) {
    let output: Output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

/// Rows of one table of all artefacts of a stage.
pub(crate) fn rows<R: table::Record>(store: &Path, stage: &str, name: &str) -> Vec<R> {
    let folders = files::list(store.join(stage)).expect("artefacts");
    let read = |folder| table::read(Path::join(folder, name)).expect("a table");
    folders.iter().flat_map(|folder| read(folder)).collect()
}

/// Hash of every table of a store but the measured times, by path.
pub(crate) fn tables(store: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect(store, store, &mut found);
    found
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for path in files::list(folder).expect("a folder") {
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|end| end == "parquet")
            && path
                .file_name()
                .is_some_and(|name| name != "timings.parquet")
        {
            let name = path
                .strip_prefix(root)
                .expect("below the root")
                .display()
                .to_string();
            found.insert(name, files::sha256_file(&path).expect("a hash"));
        }
    }
}
