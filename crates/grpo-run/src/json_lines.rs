//! Reads and writes JSON-lines files.

use crate::{RunError, atomic_write};
use grpo_data::regular_file;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Appends records to a JSON-lines file.
///
/// NaN and infinite values are written as `null` because JSON cannot represent them. Keys are
/// written in the order of the record, so records should be structs, `BTreeMap`s or
/// `serde_json::Map`s, but not `HashMap`s.
#[derive(Debug)]
pub struct JsonLinesWriter {
    path: PathBuf,
    file: File,
    /// Length of all complete lines. Only set if the file may end with an incomplete line.
    whole: Option<u64>,
}

impl JsonLinesWriter {
    /// Opens a file for appending and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let options = OpenOptions::new().append(true).create(true).clone();
        Ok(Self {
            path: path.to_owned(),
            file: options.open(path).map_err(RunError::write(path))?,
            whole: None,
        })
    }

    /// Opens the file to resume a run. Removes all lines for which `keep` returns false and an
    /// incomplete last line. The file is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line cannot be
    /// parsed as `T`. The file is then unchanged.
    pub fn resume<T: DeserializeOwned>(
        path: &Path,
        mut keep: impl FnMut(&T) -> bool,
    ) -> Result<Self, RunError> {
        if path.exists() {
            let text = read(path)?;
            let mut kept = String::with_capacity(text.len());
            for (line, text) in finished_lines(&text) {
                if keep(&parse(path, line, text)?) {
                    kept.push_str(text);
                    kept.push('\n');
                }
            }
            if kept != text {
                atomic_write(path, kept.as_bytes())?;
            }
        }
        Self::open(path)
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
        self.write(&line).map_err(RunError::write(&self.path))
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.take_out_part()?;
        let before = self.file.metadata()?.len();
        let written = self.file.write_all(line);
        if written.is_err() {
            // An incomplete line would corrupt the next one. If it cannot be removed now, the next
            // call to `append` tries again and may fail.
            self.whole = Some(before);
            let _tried_again = self.take_out_part();
        }
        written
    }

    fn take_out_part(&mut self) -> io::Result<()> {
        let Some(whole) = self.whole else { return Ok(()) };
        // Devices such as `/dev/full`, which is used in tests, cannot be truncated.
        if self.file.metadata()?.is_file() {
            self.file.set_len(whole)?;
        }
        self.whole = None;
        Ok(())
    }

    /// Syncs the file to disk.
    ///
    /// # Errors
    /// Returns an error if the file cannot be synced.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(RunError::write(&self.path))
    }
}

/// Reads all records of a file. An incomplete last line, as left by a killed process, is ignored.
///
/// # Errors
/// Returns an error if the file cannot be read or a complete line cannot be parsed as `T`.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunError> {
    finished_lines(&read(path)?).map(|(line, text)| parse(path, line, text)).collect()
}

/// Returns the step number of a `metrics.jsonl` line. The key is `step` in GRPO runs and
/// `train_step` in supervised runs.
pub fn step_of_line(line: &Map<String, Value>) -> Option<u64> {
    line.get("step").or_else(|| line.get("train_step"))?.as_u64()
}

/// Reads all complete lines of a file with their line numbers, starting at 1.
pub(crate) fn read_lines(path: &Path) -> Result<Vec<(u64, String)>, RunError> {
    let text = read(path)?;
    Ok(finished_lines(&text).map(|(number, line)| (number, line.to_owned())).collect())
}

/// Returns the number of bytes after the last line break of a file.
pub(crate) fn unfinished_bytes(path: &Path) -> Result<usize, RunError> {
    let text = read(path)?;
    Ok(text.len() - text.rfind('\n').map_or(0, |end| end + 1))
}

fn read(path: &Path) -> Result<String, RunError> {
    // There is no size limit because runs may be long.
    let mut file = regular_file::open(path).map_err(RunError::read(path))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(RunError::read(path))?;
    Ok(text)
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
