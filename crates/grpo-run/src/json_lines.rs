//! JSON-lines files.

use crate::{RunError, atomic_write};
use grpo_data::regular_file;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Appends records to a file, each written as one whole line.
///
/// NaN and infinite numbers are written as `null`, because JSON has neither. Keys keep the order of
/// the record, which is therefore a struct, a `BTreeMap` or a `serde_json::Map`, never a `HashMap`.
#[derive(Debug)]
pub struct JsonLinesWriter {
    path: PathBuf,
    file: File,
    /// Length of the complete lines, if the file may end with a partly written line.
    whole: Option<u64>,
}

impl JsonLinesWriter {
    /// Opens a file for appending and creates it if necessary.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let options = OpenOptions::new().append(true).create(true).clone();
        Ok(Self {
            path: path.to_owned(),
            file: options.open(path).map_err(RunError::write(path))?,
            whole: None,
        })
    }

    /// Opens the file of a resumed run. Lines for which `keep` is false and an unfinished last line
    /// are removed. A missing file is created.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line is not a `T`.
    /// The file is then unchanged.
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
    /// Returns an error if the line could not be written completely, or if a partly written earlier
    /// line could not be removed. The record is lost; later records can still be appended.
    ///
    /// # Panics
    /// Panics if the record is not a JSON object or has keys that are not strings.
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
            // A partial line would corrupt the next one. If it cannot be removed, the next record
            // is rejected.
            self.whole = Some(before);
            let _tried_again = self.take_out_part();
        }
        written
    }

    fn take_out_part(&mut self) -> io::Result<()> {
        let Some(whole) = self.whole else { return Ok(()) };
        // A device, such as /dev/full in tests, keeps nothing.
        if self.file.metadata()?.is_file() {
            self.file.set_len(whole)?;
        }
        self.whole = None;
        Ok(())
    }

    /// Syncs the file to disk.
    ///
    /// # Errors
    /// Returns an error if the system could not write it.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(RunError::write(&self.path))
    }
}

/// Reads the records of a file. An unfinished last line of a killed run is ignored.
///
/// # Errors
/// Returns an error if the file cannot be read or a complete line is not a `T`.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunError> {
    finished_lines(&read(path)?).map(|(line, text)| parse(path, line, text)).collect()
}

/// Returns the step of a line of `metrics.jsonl`: `step` in GRPO, `train_step` in supervised
/// training.
pub fn step_of_line(line: &Map<String, Value>) -> Option<u64> {
    line.get("step").or_else(|| line.get("train_step"))?.as_u64()
}

/// Returns the complete lines of a file with their numbers, from 1.
pub(crate) fn read_lines(path: &Path) -> Result<Vec<(u64, String)>, RunError> {
    let text = read(path)?;
    Ok(finished_lines(&text).map(|(number, line)| (number, line.to_owned())).collect())
}

/// Returns how many bytes follow the last finished line of a file.
pub(crate) fn unfinished_bytes(path: &Path) -> Result<usize, RunError> {
    let text = read(path)?;
    Ok(text.len() - text.rfind('\n').map_or(0, |end| end + 1))
}

fn read(path: &Path) -> Result<String, RunError> {
    // No size limit; runs may be long.
    let mut file = regular_file::open(path).map_err(RunError::read(path))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(RunError::read(path))?;
    Ok(text)
}

/// Returns lines with their numbers, without line ends.
fn finished_lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let finished = text.rfind('\n').map_or("", |end| &text[..=end]);
    (1..).zip(finished.lines())
}

fn parse<T: DeserializeOwned>(path: &Path, line: u64, text: &str) -> Result<T, RunError> {
    serde_json::from_str(text).map_err(RunError::line(path, line))
}
