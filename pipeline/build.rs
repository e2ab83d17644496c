//! Records the commit that the program is built from, where it is built from a clone; it stands in every manifest.

use std::process::Command;

fn main() {
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let version = match commit {
        Some(commit) => format!("{} ({})", env!("CARGO_PKG_VERSION"), commit.trim()),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    };
    println!("cargo:rustc-env=AXMEM_VERSION={version}");
    println!("cargo:rerun-if-changed=build.rs");
    // Written at every commit and checkout; a path that is missing would run this script at every build.
    if std::path::Path::new("../.git/logs/HEAD").exists() {
        println!("cargo:rerun-if-changed=../.git/logs/HEAD");
    }
}
