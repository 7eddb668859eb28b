//! Files of JSON lines that are a chain: each line has the hash of the one before, so that none can be changed, taken out,
//! added or moved alone.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::json_lines::read_lines;
use crate::manifest::sha256;
use crate::{JsonLinesWriter, RunError};

/// Appends records to a file, each with the SHA-256 of the line before as its last key, `previous`.
#[derive(Debug)]
pub struct ChainWriter {
    lines: JsonLinesWriter,
    head: String,
}

impl ChainWriter {
    /// Opens the file of a run that resumes: the first line for which `keep` is false and all lines after it are taken
    /// out, and so is an unfinished last line. Without a file it begins one.
    pub(crate) fn resume<T: DeserializeOwned>(
        path: &Path,
        mut keep: impl FnMut(&T) -> bool,
    ) -> Result<Self, RunError> {
        let mut is_kept = true;
        let lines = JsonLinesWriter::resume(path, |record: &T| {
            is_kept = is_kept && keep(record);
            is_kept
        })?;
        let head = read_lines(path)?.last().map_or_else(start, |(_, text)| hash_of(text));
        Ok(Self { lines, head })
    }

    /// Appends one record.
    ///
    /// # Errors
    /// As [`JsonLinesWriter::append`]; the next record then follows the line before.
    ///
    /// # Panics
    /// If the record is not an object in JSON, or has keys that are no strings.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        let line = Linked { record, previous: &self.head };
        let text = serde_json::to_string(&line).expect("a record can be written as JSON");
        self.lines.append(&line)?;
        self.head = hash_of(&text);
        Ok(())
    }

    /// The SHA-256 of the last line.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Makes what was appended outlast a power cut.
    ///
    /// # Errors
    /// The system could not write it.
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

/// What the first line has for the hash of the line before.
fn start() -> String {
    "0".repeat(64)
}

fn hash_of(text: &str) -> String {
    sha256(text.as_bytes())
}

/// A line of a chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainLine {
    /// Its number in the file, from 1.
    pub(crate) number: u64,
    pub(crate) record: Map<String, Value>,
    /// The hash that it has of the line before; `None` in a line of an older version.
    pub(crate) previous: Option<String>,
    /// Its own hash.
    pub(crate) hash: String,
}

impl ChainLine {
    pub(crate) fn step(&self) -> Option<u64> {
        crate::step_of_line(&self.record)
    }
}

/// Reads the lines of a chain as they are; none without a file.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<ChainLine>, RunError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let line = |(number, text): (u64, String)| {
        let record: Map<String, Value> =
            serde_json::from_str(&text).map_err(RunError::line(path, number))?;
        let previous = record.get("previous").map(|hash| hash.as_str().unwrap_or("").to_owned());
        Ok(ChainLine { number, previous, hash: hash_of(&text), record })
    };
    read_lines(path)?.into_iter().map(line).collect()
}

/// The lines that do not follow the one before, each with the sentence that says so. `all` is whether every line has to
/// have a hash, and not only those after the first that has one.
pub(crate) fn broken_links(file: &str, lines: &[ChainLine], all: bool) -> Vec<(u64, String)> {
    let mut faults = Vec::new();
    let mut expected = start();
    let mut is_linked = all;
    for (place, line) in lines.iter().enumerate() {
        let number = line.number;
        match &line.previous {
            None if is_linked => faults.push((
                number,
                format!("line {number} of {file} lacks the hash of the line before (`previous`)"),
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
            format!("line {number} of {file} is line {} once more", earlier.number)
        }
        (None, 1) => format!("line 1 of {file} was not the first: the lines before it are missing"),
        (None, _) => format!(
            "line {number} of {file} does not follow line {}: a line was changed, removed, added or moved there",
            number - 1
        ),
    }
}
