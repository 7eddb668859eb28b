//! Files that grow by one JSON object a line.

use crate::{RunError, atomic_write};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::Write;
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
    lost: u64,
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
            lost: 0,
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
    /// The line could not be written whole. Only the first time: a full disk is one message, not
    /// one a step. Later records are tried all the same, and those lost are counted in
    /// [`Self::lost`].
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
        let before = self.file.metadata().map(|found| found.len());
        let Err(error) = self.file.write_all(&line) else {
            return Ok(());
        };
        // Half a line would spoil the next one. Where this fails as well, readers will say so.
        if let Ok(before) = before {
            let _ = self.file.set_len(before);
        }
        self.lost += 1;
        if self.lost == 1 { Err(RunError::write(&self.path)(error)) } else { Ok(()) }
    }

    /// Makes what was appended outlast a power cut.
    ///
    /// # Errors
    /// The system could not write it.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(RunError::write(&self.path))
    }

    /// Records that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
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

fn read(path: &Path) -> Result<String, RunError> {
    std::fs::read_to_string(path).map_err(RunError::read(path))
}

/// Lines with their numbers, without their ends.
fn finished_lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let finished = text.rfind('\n').map_or("", |end| &text[..=end]);
    (1..).zip(finished.lines())
}

fn parse<T: DeserializeOwned>(path: &Path, line: u64, text: &str) -> Result<T, RunError> {
    serde_json::from_str(text).map_err(|source| RunError::BadLine {
        path: path.to_owned(),
        line,
        source,
    })
}
