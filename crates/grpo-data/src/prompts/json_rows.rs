//! Objects of a JSON-lines file.

use crate::DataError;
use crate::json::{JsonEntries, json_line_reason};
use crate::line_reader::LineReader;
use crate::origin::{Bytes, FileOrigin};
use serde_json::{Map, Value};

/// Largest line in bytes. Parsed as JSON, a line takes up to 36 times its size.
const LONGEST: usize = 32 << 20;

/// The number of a record, from 1, and its keys.
pub(super) type NumberedKeys = (u64, Map<String, Value>);

pub(super) struct JsonRows(LineReader);

impl JsonRows {
    pub(super) fn new(source: Bytes) -> Self {
        Self(LineReader::new(source, LONGEST))
    }

    /// Returns the keys of the next line that is not empty.
    pub(super) fn next(&mut self, origin: &FileOrigin) -> Result<Option<NumberedKeys>, DataError> {
        while let Some((line, bytes)) = self.next_line(origin)? {
            let text = origin.text(bytes, line)?.trim_ascii();
            if !text.is_empty() {
                let keys = object(text).map_err(|fault| {
                    let remedy = match fault {
                        LineFault::DuplicateKey { .. } => "keep one of them",
                        _ => "write one object per line, such as {\"prompt\": \"2 + 2 =\"}",
                    };
                    DataError::Invalid(format!("{fault}; {remedy}")).at_line(&origin.path, line)
                })?;
                return Ok(Some((line, keys)));
            }
        }
        Ok(None)
    }

    /// Returns the number of the next line, from 1, and the line with its end and without a byte
    /// order mark.
    pub(super) fn next_line(
        &mut self,
        origin: &FileOrigin,
    ) -> Result<Option<(u64, &[u8])>, DataError> {
        self.0.next_line(origin)
    }
}

/// Why a line is not an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// The line is not UTF-8.
    #[error("the line is not UTF-8 text")]
    NotUtf8,
    /// The line is not valid JSON or not an object.
    #[error("the line is not a JSON object: {reason}")]
    NotAnObject {
        /// The message of the JSON parser.
        reason: String,
    },
    /// A key occurs twice.
    #[error("duplicate key `{key}`")]
    DuplicateKey {
        /// The key.
        key: String,
    },
}

/// Returns the keys of a line that is an object.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, LineFault> {
    let JsonEntries { entries, duplicate } = serde_json::from_str(text)
        .map_err(|error| LineFault::NotAnObject { reason: json_line_reason(&error) })?;
    match duplicate {
        Some(key) => Err(LineFault::DuplicateKey { key }),
        None => Ok(entries.into_iter().collect()),
    }
}
