//! Files that grow by one JSON object a line.

use crate::{RunError, atomic_write};
use grpo_data::regular_file;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Appends records to a file, each handed to the operating system as one whole line.
///
/// NaN and infinite numbers are written as `null`, since JSON has neither. Keys come in the order
/// in which the record gives them; so a record is a struct, a `BTreeMap` or a `serde_json::Map`,
/// never a `HashMap`.
#[derive(Debug)]
pub struct JsonLinesWriter {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines, if more than these may be in the file: part of a line that could not be written.
    whole: Option<u64>,
}

impl JsonLinesWriter {
    /// Opens a file to append to; it is made if it is not there.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let options = OpenOptions::new().append(true).create(true).clone();
        Ok(Self {
            path: path.to_owned(),
            file: options.open(path).map_err(RunError::write(path))?,
            whole: None,
        })
    }

    /// Opens the file of a run that goes on from an earlier point: lines for which `keep` is false
    /// are taken out, and so is an unfinished last line. Without a file it is [`Self::open`].
    ///
    /// # Errors
    /// The file cannot be read or written, or a finished line is not a `T`; it is then as it was.
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

    /// Appends one record.
    ///
    /// # Errors
    /// The record is lost: the line could not be written whole, or the part of an earlier line that was written could not
    /// be taken out. Later records can be tried all the same.
    ///
    /// # Panics
    /// If the record is not an object in JSON, or has keys that are no strings.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        let mut line = serde_json::to_vec(record).expect("a record can be written as JSON");
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
            // Half a line would spoil the next one. If it stays, the next record is refused.
            self.whole = Some(before);
            let _tried_again = self.take_out_part();
        }
        written
    }

    fn take_out_part(&mut self) -> io::Result<()> {
        let Some(whole) = self.whole else { return Ok(()) };
        // A device, such as a full one in tests, keeps nothing.
        if self.file.metadata()?.is_file() {
            self.file.set_len(whole)?;
        }
        self.whole = None;
        Ok(())
    }

    /// Makes what was appended outlast a power cut.
    ///
    /// # Errors
    /// The system could not write it.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(RunError::write(&self.path))
    }
}

/// The records of a file, from the first line to the last. An unfinished last line, which a run
/// leaves that was killed while writing it, is left out.
///
/// # Errors
/// The file cannot be read, or a finished line is not a `T`.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunError> {
    finished_lines(&read(path)?).map(|(line, text)| parse(path, line, text)).collect()
}

/// Returns the step that a line of `metrics.jsonl` is of, as GRPO (`step`) and supervised training (`train_step`) write it.
pub fn step_of_line(line: &Map<String, Value>) -> Option<u64> {
    line.get("step").or_else(|| line.get("train_step"))?.as_u64()
}

/// The finished lines of a file as they are, with their numbers from 1.
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
    // However long the run was.
    let mut file = regular_file::open(path).map_err(RunError::read(path))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(RunError::read(path))?;
    Ok(text)
}

/// Lines with their numbers, without their ends.
fn finished_lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let finished = text.rfind('\n').map_or("", |end| &text[..=end]);
    (1..).zip(finished.lines())
}

fn parse<T: DeserializeOwned>(path: &Path, line: u64, text: &str) -> Result<T, RunError> {
    serde_json::from_str(text).map_err(RunError::line(path, line))
}
