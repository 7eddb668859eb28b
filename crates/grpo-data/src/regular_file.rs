//! Opens and reads untrusted files without blocking on named pipes or reading from infinite
//! devices.
//!
//! All file access in the programs goes through this module. Clippy refuses other calls (`clippy.toml`).
#![expect(clippy::disallowed_methods, reason = "the one place where files are opened")]

use crate::system_fault::noted;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The files that this process has opened for reading.
static OPENED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Maximum size of a settings file in bytes. Parsed JSON needs about 36 times as much memory.
const LARGEST_SETTINGS: u64 = 64 << 20;

/// Maximum size in bytes of a data file that is read into memory.
const LARGEST_DATA: u64 = 1 << 30;

/// Opens a regular file.
///
/// # Errors
/// Returns an error if the file cannot be opened or is a directory, a named pipe, a device or a
/// socket. The file type is checked first, because opening a named pipe can block.
pub fn open(path: &Path) -> io::Result<File> {
    let metadata = noted(path, std::fs::metadata(path))?;
    if metadata.is_file() {
        let file = noted(path, File::open(path))?;
        OPENED.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        return Ok(file);
    }
    let found = if metadata.is_dir() { "a folder" } else { "a named pipe, device or socket" };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {found}, not a regular file")))
}

/// Returns why a folder cannot be used, in words that follow its path.
pub fn folder_fault(path: &Path) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some("is not a folder".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Some("does not exist".to_owned()),
        Err(error) => Some(format!("cannot be read ({error})")),
    }
}

/// Returns the paths of the files that this process has opened with [`open`], for checks that no
/// output replaces one of them. They include those that no argument names, such as the files that a
/// configuration extends.
pub fn opened() -> Vec<PathBuf> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// Forgets which files were opened, before a process runs another command.
pub fn forget_opened() {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Reads a settings file, e.g. `config.json`, a tokenizer or a manifest.
///
/// # Errors
/// Returns an error if [`open`] fails, if the file cannot be read, or if it is larger than 64 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    noted(path, read_from(open(path)?))
}

/// Reads an open settings file. See [`read`].
///
/// # Errors
/// Returns an error if the file cannot be read, or if it is larger than 64 MiB.
pub fn read_from(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_up_to(LARGEST_SETTINGS, file, &mut bytes)?;
    Ok(bytes)
}

/// Reads a data file of at most 1 GiB.
///
/// # Errors
/// Returns an error if [`open`] fails, if the file cannot be read, or if it is larger than 1 GiB.
pub fn read_data(path: &Path) -> io::Result<Vec<u8>> {
    noted(path, read_data_from(open(path)?))
}

/// Reads an open data file. See [`read_data`].
///
/// # Errors
/// Returns an error if the file cannot be read, or if it is larger than 1 GiB.
pub fn read_data_from(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_whole(file, &mut bytes)?;
    Ok(bytes)
}

/// Reads a settings file into a string.
///
/// # Errors
/// Returns an error if [`read`] fails or if the file is not valid UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    noted(path, read_string_from(open(path)?))
}

/// Reads an open settings file into a string.
///
/// # Errors
/// Returns an error if [`read_from`] fails or if the file is not valid UTF-8.
pub fn read_string_from(file: File) -> io::Result<String> {
    String::from_utf8(read_from(file)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Reads a source to its end. At most 1 GiB is accepted.
pub(crate) fn read_whole(source: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    read_up_to(LARGEST_DATA, source, bytes)
}

fn read_up_to(largest: u64, source: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    source.take(largest + 1).read_to_end(bytes)?;
    if bytes.len() as u64 > largest {
        let fault =
            format!("it is larger than {} MiB, the limit for this kind of file", largest >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, fault));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_special_files_before_opening_them() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &Path, found: &str| {
            let expect = format!("it is {found}, not a regular file");
            assert_eq!(read(path).unwrap_err().to_string(), expect);
            assert_eq!(read_to_string(path).unwrap_err().to_string(), expect);
            assert_eq!(open(path).unwrap_err().to_string(), expect);
        };
        check(folder.path(), "a folder");
        if cfg!(unix) {
            let pipe = folder.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            check(&pipe, "a named pipe, device or socket");
            check(Path::new("/dev/zero"), "a named pipe, device or socket");
        }
        let absent = open(&folder.path().join("absent")).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn limits_the_size_of_files_read_as_a_whole() {
        let mut bytes = Vec::new();
        assert!(read_up_to(5, &b"12345"[..], &mut bytes).is_ok());
        let fault = read_up_to(5, io::repeat(0), &mut bytes).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::FileTooLarge);
    }
}
