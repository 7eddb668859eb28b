//! Objects of a JSON-lines file.

use crate::DataError;
use crate::line_reader::LineReader;
use crate::origin::{Bytes, FileOrigin};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

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
                        _ => "write one object a line, such as {\"prompt\": \"2 + 2 =\"}",
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
    #[error("the key `{key}` is there twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
}

/// Returns the keys of a line that is an object.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, LineFault> {
    let Keys { map, duplicate } = serde_json::from_str(text)
        .map_err(|error| LineFault::NotAnObject { reason: reason(&error) })?;
    match duplicate {
        Some(key) => Err(LineFault::DuplicateKey { key }),
        None => Ok(map),
    }
}

/// Returns the message of the JSON parser with the column only, because the line is always 1.
fn reason(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// The keys of an object, and the first duplicate, which serde_json would accept.
struct Keys {
    map: Map<String, Value>,
    duplicate: Option<String>,
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Keys, A::Error> {
        let mut keys = Keys { map: Map::new(), duplicate: None };
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value()?;
            if keys.map.insert(key.clone(), value).is_some() && keys.duplicate.is_none() {
                keys.duplicate = Some(key);
            }
        }
        Ok(keys)
    }
}
