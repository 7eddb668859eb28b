//! Rows of a JSON lines file.

use crate::DataError;
use crate::json::{JsonEntries, json_line_reason};
use crate::line_reader::LineReader;
use crate::origin::{Bytes, FileOrigin};
use serde_json::{Map, Value};

/// Maximum line length in bytes. The parsed JSON needs up to 36 times as much memory.
pub(super) const LONGEST: usize = 32 << 20;

/// A record number, starting at 1, and the key-value pairs of the record.
pub(super) type NumberedKeys = (u64, Map<String, Value>);

pub(super) struct JsonRows(LineReader);

impl JsonRows {
    pub(super) fn new(source: Bytes) -> Self {
        Self(LineReader::new(source, LONGEST))
    }

    /// Returns the next non-empty line as an object.
    pub(super) fn next(&mut self, origin: &FileOrigin) -> Result<Option<NumberedKeys>, DataError> {
        while let Some((line, bytes)) = self.next_line(origin)? {
            let text = origin.text(bytes, line)?.trim_ascii();
            if !text.is_empty() {
                let keys = object(text).map_err(|fault| {
                    let remedy = match fault {
                        LineFault::DuplicateKey { .. } => "; keep one of them",
                        LineFault::Spread { .. } => "",
                        _ => "; write one object per line, such as {\"prompt\": \"2 + 2 =\"}",
                    };
                    DataError::Invalid(format!("{fault}{remedy}")).at_line(&origin.path, line)
                })?;
                return Ok(Some((line, keys)));
            }
        }
        Ok(None)
    }

    /// Returns the next line and its number, starting at 1. The line includes its newline. A byte
    /// order mark is removed.
    pub(super) fn next_line(
        &mut self,
        origin: &FileOrigin,
    ) -> Result<Option<(u64, &[u8])>, DataError> {
        self.0.next_line(origin)
    }
}

/// The reason why a line is not a valid object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// The line is not valid UTF-8.
    #[error("the line is not UTF-8 text")]
    NotUtf8,
    /// The line is not a valid JSON object.
    #[error("the line is not a JSON object: {reason}")]
    NotAnObject {
        /// The JSON parser's error message.
        reason: String,
    },
    /// The file is a JSON array, or its objects are spread over several lines.
    #[error("{what}; write one object per line, which `jq -c '{filter}' OLD > NEW` does")]
    Spread {
        /// What the line contains.
        what: &'static str,
        /// Filter for `jq` that converts the file.
        filter: &'static str,
    },
    /// A key occurs twice.
    #[error("duplicate key `{key}`")]
    DuplicateKey {
        /// The duplicate key.
        key: String,
    },
}

/// Parses a line that contains a JSON object.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, LineFault> {
    if text == "{" {
        let what = "the object is spread over several lines";
        return Err(LineFault::Spread { what, filter: "." });
    }
    if starts_array_of_objects(text) {
        return Err(LineFault::Spread { what: "the line starts a JSON array", filter: ".[]" });
    }
    let JsonEntries { entries, duplicate } = serde_json::from_str(text)
        .map_err(|error| LineFault::NotAnObject { reason: json_line_reason(&error) })?;
    match duplicate {
        Some(key) => Err(LineFault::DuplicateKey { key }),
        None => Ok(entries.into_iter().collect()),
    }
}

/// Returns whether the line is the start of an array of objects, as `json.dump` writes it.
fn starts_array_of_objects(text: &str) -> bool {
    let inside = text.strip_prefix('[').map(str::trim_start);
    inside.is_some_and(|inside| inside.is_empty() || inside.starts_with('{'))
}
