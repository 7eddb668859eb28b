//! Reads and writes JSON-lines files.

use crate::RunError;
use crate::atomic::{around, write_file};
use grpo_data::{FileKind, OwnFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Longest line in bytes.
const LONGEST_LINE: usize = 32 << 20;

/// Largest file in bytes.
const LARGEST: u64 = 1 << 30;

/// Appends records to a JSON-lines file.
///
/// NaN and infinite values are written as `null` because JSON cannot represent them. Keys are
/// written in the order of the record, so records should be structs, `BTreeMap`s or
/// `serde_json::Map`s, but not `HashMap`s.
///
/// Before each record, it checks that the file is still the one that it opened, with all bytes that
/// it wrote and no others.
#[derive(Debug)]
pub struct JsonLinesWriter {
    folder: OwnFolder,
    name: PathBuf,
    file: File,
    /// Length of all complete lines.
    length: u64,
    /// Whether the file may end with an incomplete line, because writing failed.
    is_torn: bool,
}

impl JsonLinesWriter {
    /// Opens a file for appending and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let (folder, name) = around(path)?;
        Self::open_in(&folder, &name)
    }

    fn open_in(folder: &OwnFolder, name: &Path) -> Result<Self, RunError> {
        let path = folder.path_of(name);
        let file = folder.open_to_append(name).map_err(RunError::write(&path))?;
        let length = file.metadata().map_err(RunError::write(&path))?.len();
        Ok(Self { folder: folder.clone(), name: name.to_owned(), file, length, is_torn: false })
    }

    /// Opens the file to resume a run. Removes all lines for which `keep` returns false and an
    /// incomplete last line. The file is created if it does not exist. A file with other names (hard
    /// links) is copied first, so that copies of a run that share files are not changed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line cannot be
    /// parsed as `T`. The file is then unchanged.
    pub fn resume<T: DeserializeOwned>(
        path: &Path,
        keep: impl FnMut(&T) -> bool,
    ) -> Result<Self, RunError> {
        let (folder, name) = around(path)?;
        Self::resume_in(&folder, &name, keep)
    }

    /// Like [`Self::resume`], for a name in a folder.
    pub(crate) fn resume_in<T: DeserializeOwned>(
        folder: &OwnFolder,
        name: &Path,
        mut keep: impl FnMut(&T) -> bool,
    ) -> Result<Self, RunError> {
        let path = folder.path_of(name);
        if folder.is_kind(name, FileKind::File).map_err(RunError::read(&path))? {
            let text = read(folder, name)?;
            let mut kept = String::with_capacity(text.len());
            for (line, text) in finished_lines(&text) {
                if keep(&parse(&path, line, text)?) {
                    kept.push_str(text);
                    kept.push('\n');
                }
            }
            let file = folder.open_file(name).map_err(RunError::read(&path))?;
            let is_shared = OwnFolder::has_other_names(&file).map_err(RunError::read(&path))?;
            if kept != text || is_shared {
                write_file(folder, name, kept.as_bytes())?;
            }
        }
        Self::open_in(folder, name)
    }

    /// Appends a record.
    ///
    /// # Errors
    /// Returns an error if the line cannot be written completely, or if an incomplete line from an
    /// earlier error cannot be removed. The record is lost, but more records can be appended.
    ///
    /// # Panics
    /// Panics if the record does not serialize to a JSON object or has non-string keys.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        let mut line = serde_json::to_vec(record).expect("a record serializes to JSON");
        assert!(
            line.starts_with(b"{"),
            "a record must be a JSON object, found {}",
            String::from_utf8_lossy(&line)
        );
        line.push(b'\n');
        let path = self.path();
        self.repair().map_err(RunError::write(&path))?;
        self.check()?;
        let written = self.file.write_all(&line);
        match written {
            Ok(()) => self.length += line.len() as u64,
            Err(_) => {
                // An incomplete line would corrupt the next one. If it cannot be removed now, the
                // next call tries again and may fail.
                self.is_torn = true;
                let _tried_again = self.repair();
            }
        }
        written.map_err(RunError::write(&path))
    }

    /// Checks that the file is still the one that was opened, with the bytes that were written.
    ///
    /// # Errors
    /// Returns an error if the file was removed, replaced, truncated or extended, or if its folder
    /// was moved.
    pub fn check(&self) -> Result<(), RunError> {
        let path = self.path();
        let length = self.file.metadata().map_err(RunError::write(&path))?.len();
        let is_there = self.folder.is_file_at(&self.name, &self.file);
        match is_there.map_err(RunError::write(&path))? && length == self.length {
            true => Ok(()),
            false => Err(RunError::NotOurs { path }),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }

    fn repair(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Syncs the file to disk.
    ///
    /// # Errors
    /// Returns an error if the file cannot be synced.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(RunError::write(&self.path()))
    }
}

/// Reads all records of a file. An incomplete last line, as left by a killed process, is ignored.
///
/// # Errors
/// Returns an error if the file cannot be read, is larger than 1 GiB or has a line longer than
/// 32 MiB, or if a complete line cannot be parsed as `T`.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunError> {
    let (folder, name) = OwnFolder::around(path).map_err(RunError::read(path))?;
    records(&folder, &name)
}

/// Like [`read_json_lines`], for a name in a folder.
pub(crate) fn records<T: DeserializeOwned>(
    folder: &OwnFolder,
    name: &Path,
) -> Result<Vec<T>, RunError> {
    let path = folder.path_of(name);
    finished_lines(&read(folder, name)?).map(|(line, text)| parse(&path, line, text)).collect()
}

/// Like [`records`], without the lines that cannot be parsed. Also returns their errors, or the one
/// of the file.
pub(crate) fn sound_records<T: DeserializeOwned>(
    folder: &OwnFolder,
    name: &Path,
) -> (Vec<T>, Vec<RunError>) {
    let path = folder.path_of(name);
    let text = match read(folder, name) {
        Ok(text) => text,
        Err(fault) => return (Vec::new(), vec![fault]),
    };
    let (mut records, mut faults) = (Vec::new(), Vec::new());
    for (line, text) in finished_lines(&text) {
        match parse(&path, line, text) {
            Ok(record) => records.push(record),
            Err(fault) => faults.push(fault),
        }
    }
    (records, faults)
}

/// Returns the step number of a `metrics.jsonl` line. The key is `step` in GRPO runs and
/// `train_step` in supervised runs.
pub fn step_of_line(line: &Map<String, Value>) -> Option<u64> {
    line.get("step").or_else(|| line.get("train_step"))?.as_u64()
}

/// Reads all complete lines of a file with their line numbers, starting at 1.
pub(crate) fn read_lines(folder: &OwnFolder, name: &Path) -> Result<Vec<(u64, String)>, RunError> {
    let text = read(folder, name)?;
    Ok(finished_lines(&text).map(|(number, line)| (number, line.to_owned())).collect())
}

/// Returns the number of bytes after the last line break of a file.
pub(crate) fn unfinished_bytes(folder: &OwnFolder, name: &Path) -> Result<usize, RunError> {
    let text = read(folder, name)?;
    Ok(text.len() - text.rfind('\n').map_or(0, |end| end + 1))
}

fn read(folder: &OwnFolder, name: &Path) -> Result<String, RunError> {
    let path = folder.path_of(name);
    let file = folder.open_file(name).map_err(RunError::read(&path))?;
    let length = file.metadata().map_err(RunError::read(&path))?.len();
    // A running process may still extend the file.
    let mut source = file.take(LARGEST + 1);
    if length > LARGEST {
        return Err(RunError::TooLarge { path, limit: LARGEST });
    }
    let (mut bytes, mut line, mut start) = (Vec::new(), 1, 0);
    loop {
        let before = bytes.len();
        let read = (&mut source).take(1 << 20).read_to_end(&mut bytes);
        if read.map_err(RunError::read(&path))? == 0 {
            break;
        }
        for end in (before..bytes.len()).filter(|place| bytes[*place] == b'\n') {
            check_line(&path, line, end - start)?;
            (line, start) = (line + 1, end + 1);
        }
        check_line(&path, line, bytes.len() - start)?;
    }
    if bytes.len() as u64 > LARGEST {
        return Err(RunError::TooLarge { path, limit: LARGEST });
    }
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(bytes).map_err(not_text).map_err(RunError::read(&path))
}

fn check_line(path: &Path, line: u64, length: usize) -> Result<(), RunError> {
    match length > LONGEST_LINE {
        true => {
            let reason = format!("it is longer than {} MiB", LONGEST_LINE >> 20);
            Err(RunError::BadLine { path: path.to_owned(), line, reason })
        }
        false => Ok(()),
    }
}

/// Returns an iterator over complete lines and their line numbers. Line breaks are stripped.
fn finished_lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let finished = text.rfind('\n').map_or("", |end| &text[..=end]);
    // A carriage return counts as part of the line, so that it is not overlooked.
    (1..).zip(finished.split_terminator('\n'))
}

fn parse<T: DeserializeOwned>(path: &Path, line: u64, text: &str) -> Result<T, RunError> {
    serde_json::from_str(text).map_err(RunError::line(path, line))
}
