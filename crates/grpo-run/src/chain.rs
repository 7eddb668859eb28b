//! JSON-lines files with a hash chain. Each line contains the hash of the previous line, so
//! changing, removing, inserting or moving a single line breaks the chain.

use std::path::Path;

use grpo_data::{FileKind, OwnFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::json_lines::read_lines;
use crate::manifest::sha256;
use crate::{JsonLinesWriter, RunError};

/// Appends records to a hash chain. The SHA-256 of the previous line is added to each record under
/// the key `previous`.
#[derive(Debug)]
pub struct ChainWriter {
    lines: JsonLinesWriter,
    head: String,
}

impl ChainWriter {
    /// Opens the file to resume a run. Truncates it before the first line for which `keep` returns
    /// false. An incomplete last line is removed. The file is created if it does not exist.
    pub(crate) fn resume<T: DeserializeOwned>(
        folder: &OwnFolder,
        name: &Path,
        mut keep: impl FnMut(&T) -> bool,
    ) -> Result<Self, RunError> {
        let mut is_kept = true;
        let lines = JsonLinesWriter::resume_in(folder, name, |record: &T| {
            is_kept = is_kept && keep(record);
            is_kept
        })?;
        let head = read_lines(folder, name)?.last().map_or_else(start, |(_, text)| hash_of(text));
        Ok(Self { lines, head })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// Returns an error if [`JsonLinesWriter::append`] fails. The chain then continues from the
    /// last line that was written.
    ///
    /// # Panics
    /// Panics if the record does not serialize to a JSON object or has non-string keys.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        let line = Linked { record, previous: &self.head };
        let text = serde_json::to_string(&line).expect("a record serializes to JSON");
        self.lines.append(&line)?;
        self.head = hash_of(&text);
        Ok(())
    }

    /// Returns the SHA-256 of the last line, or zeros if there are no lines.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Checks that the file is still the one that this writer opened. See
    /// [`JsonLinesWriter::check`].
    ///
    /// # Errors
    /// Returns an error if the file was removed, replaced or changed.
    pub fn check(&self) -> Result<(), RunError> {
        self.lines.check()
    }

    /// Syncs the file to disk.
    ///
    /// # Errors
    /// Returns an error if the file cannot be synced.
    pub fn sync(&self) -> Result<(), RunError> {
        self.lines.sync()
    }
}

#[derive(Serialize)]
struct Linked<'a, T> {
    #[serde(flatten)]
    record: &'a T,
    previous: &'a str,
}

/// Returns the value of `previous` in the first line.
fn start() -> String {
    "0".repeat(64)
}

fn hash_of(text: &str) -> String {
    sha256(text.as_bytes())
}

/// A parsed line of a hash chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainLine {
    /// Line number, starting at 1.
    pub(crate) number: u64,
    pub(crate) record: Map<String, Value>,
    /// Hash of the previous line. `None` in files written by older versions.
    pub(crate) previous: Option<String>,
    /// Hash of this line.
    pub(crate) hash: String,
}

impl ChainLine {
    fn new(number: u64, text: &str, record: Map<String, Value>) -> Self {
        let previous = record.get("previous").map(|hash| hash.as_str().unwrap_or("").to_owned());
        Self { number, previous, hash: hash_of(text), record }
    }

    pub(crate) fn step(&self) -> Option<u64> {
        crate::step_of_line(&self.record)
    }
}

/// Reads a hash chain without verifying it. Lines that are not JSON objects are left out, and their
/// errors are returned too. If the file cannot be read, this is the only error. Returns nothing if
/// the file does not exist.
pub(crate) fn read_chain(folder: &OwnFolder, name: &Path) -> (Vec<ChainLine>, Vec<RunError>) {
    let path = folder.path_of(name);
    let is_there = folder.is_kind(name, FileKind::File).map_err(RunError::read(&path));
    let read = is_there.and_then(|is_there| match is_there {
        true => read_lines(folder, name),
        false => Ok(Vec::new()),
    });
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    match read {
        Ok(read) => read.into_iter().for_each(|(number, text)| {
            match serde_json::from_str::<Map<String, Value>>(&text) {
                Ok(record) => lines.push(ChainLine::new(number, &text, record)),
                Err(error) => faults.push(RunError::line(&path, number)(error)),
            }
        }),
        Err(fault) => faults.push(fault),
    }
    (lines, faults)
}

/// Verifies the chain and returns the number of each line that does not match its predecessor,
/// along with an error message. If `all` is false, lines before the first hash are allowed.
pub(crate) fn broken_links(file: &str, lines: &[ChainLine], all: bool) -> Vec<(u64, String)> {
    let mut faults = Vec::new();
    let mut expected = start();
    let mut is_linked = all;
    for (place, line) in lines.iter().enumerate() {
        let number = line.number;
        match &line.previous {
            None if is_linked => faults.push((
                number,
                format!(
                    "line {number} of {file} is missing the hash of the previous line (`previous`)"
                ),
            )),
            Some(found) if *found != expected => {
                let double = lines[..place].iter().find(|earlier| earlier.hash == line.hash);
                faults.push((number, fault(file, number, double)));
            }
            _ => {}
        }
        is_linked |= line.previous.is_some();
        expected.clone_from(&line.hash);
    }
    faults
}

fn fault(file: &str, number: u64, double: Option<&ChainLine>) -> String {
    match (double, number) {
        (Some(earlier), _) => {
            format!("line {number} of {file} repeats line {}", earlier.number)
        }
        (None, 1) => format!("line 1 of {file} was not the first line: earlier lines are missing"),
        (None, _) => format!(
            "line {number} of {file} does not follow line {}: a line was changed, removed, added or moved there",
            number - 1
        ),
    }
}
