//! The one place for file access: every error names the path, and every file is written whole or
//! not at all.
//!
//! A write goes to a temporary file in the same folder, is flushed to the disk, renamed over the
//! target, and the folder is flushed too, so a killed process never leaves half a file under the
//! final name.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Opens a file for buffered reading.
pub fn open(path: impl AsRef<Path>) -> Result<BufReader<File>> {
    let path = path.as_ref();
    let file = File::open(path).map_err(Error::read("open", path))?;
    // A folder opens like a file on Unix and fails only at the first read, without its name.
    if file.metadata().map_err(Error::read("read", path))?.is_dir() {
        return Err(Error::input(path, "", "is a folder, a file was expected"));
    }
    Ok(BufReader::with_capacity(1 << 16, file))
}

/// Reads a whole file.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    open(path)?
        .read_to_end(&mut bytes)
        .map_err(Error::read("read", path))?;
    Ok(bytes)
}

/// Reads a whole file of UTF-8 text.
pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    String::from_utf8(read(path)?).map_err(|error| {
        let place = format!("byte {}", error.utf8_error().valid_up_to());
        Error::input(path, place, "is not UTF-8 text")
    })
}

/// The size of a file in bytes.
pub fn size(path: impl AsRef<Path>) -> Result<u64> {
    let path = path.as_ref();
    Ok(fs::metadata(path).map_err(Error::read("read", path))?.len())
}

/// The entries of a folder, sorted by name.
pub fn list(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::read("list", folder))? {
        paths.push(entry.map_err(Error::read("list", folder))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Creates a folder and its parents; an existing folder is fine.
pub fn create_dir_all(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    fs::create_dir_all(path).map_err(Error::write("create folder", path))
}

/// Removes a folder with everything in it.
pub fn remove_dir_all(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    fs::remove_dir_all(path).map_err(Error::write("remove folder", path))
}

/// Removes a file.
pub fn remove_file(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    fs::remove_file(path).map_err(Error::write("remove", path))
}

/// Opens a file to read it from its beginning and to write at its end; a missing file is made.
pub(crate) fn open_to_append(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(Error::write("open", path))
}

/// Makes the file at `path` and waits until no other process holds its lock; the lock is held
/// until the file is dropped. File systems without locks give none, which is no error.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(Error::write("create", path))?;
    match file.lock() {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => {
            Err(Error::write("lock", path)(error))
        }
        _ => Ok(file),
    }
}

/// Makes `link` lead to `target`, given relative to the folder of `link`; what was there is
/// replaced.
pub(crate) fn link(target: &Path, link: &Path) -> Result<()> {
    if link.symlink_metadata().is_ok() {
        remove_file(link)?;
    }
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink(target, link);
    #[cfg(not(unix))]
    let made = fs::copy(folder_of(link).join(target), link).map(|_| ());
    made.map_err(Error::write("link", link))
}

/// Renames a file or folder within one file system and flushes the folder of the new name.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    fs::rename(from, to).map_err(Error::write("rename to", to))?;
    sync_folder(folder_of(to))
}

/// Writes `bytes` to `path`, whole or not at all.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    write_atomic_with(path, |file| {
        file.write_all(bytes).map_err(Error::write("write", path))
    })
}

/// Lets `fill` write the content of `path`; nothing appears under that name if `fill` fails.
pub fn write_atomic_with(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let folder = folder_of(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".partial-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // The umask applies; the default of the temporary file would shut out other readers.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let (file, temporary) = builder
        .tempfile_in(folder)
        .map_err(Error::write("write", path))?
        .into_parts();
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    fill(&mut writer)?;
    let file = writer
        .into_inner()
        .map_err(|error| Error::write("write", path)(error.into_error()))?;
    file.sync_all().map_err(Error::write("write", path))?;
    temporary
        .persist(path)
        .map_err(|error| Error::write("write", path)(error.error))?;
    sync_folder(folder)
}

/// The SHA-256 of a file, in lower-case hexadecimal.
pub fn sha256_file(path: impl AsRef<Path>) -> Result<String> {
    sha256_file_with(path, |_| ())
}

/// As [`sha256_file`]; `progress` is told of every piece that was read, in bytes.
pub fn sha256_file_with(path: impl AsRef<Path>, progress: impl Fn(usize)) -> Result<String> {
    let path = path.as_ref();
    let mut file = open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer).map_err(Error::read("read", path))?;
        if count == 0 {
            return Ok(hexadecimal(&hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
        progress(count);
    }
}

/// The SHA-256 of some bytes, in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(Error::write("flush folder", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_fill_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        write_atomic(&path, b"old").unwrap();
        let failed = write_atomic_with(&path, |file| {
            file.write_all(b"half").unwrap();
            Err(Error::data("stopped"))
        });
        assert!(failed.is_err());
        assert_eq!(read(&path).unwrap(), b"old");
        assert_eq!(list(folder.path()).unwrap(), [path]);
    }

    #[test]
    fn errors_name_the_path() {
        let missing = Path::new("/no/such/folder/file");
        for error in [
            read(missing).unwrap_err(),
            write_atomic(missing, b"").unwrap_err(),
            list(missing).unwrap_err(),
        ] {
            assert!(
                error.to_string().contains("/no/such/folder/file"),
                "{error}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let error = read(folder.path()).unwrap_err();
        assert!(error.to_string().contains("is a folder"), "{error}");
    }

    #[test]
    fn hashes_are_the_published_ones() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        write_atomic(&path, b"").unwrap();
        assert_eq!(sha256_file(&path).unwrap(), empty);
        assert_eq!(size(&path).unwrap(), 0);
    }
}
