//! The objects of a file of JSON lines.

use super::Row;
use crate::DataError;
use crate::error::PromptFault;
use crate::origin::{Bytes, FileOrigin};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::io::{BufRead, BufReader, Read};

/// Bytes of the longest line. More is a file of another kind, or a bomb in gzip.
const LONGEST: usize = 256 << 20;

pub(crate) struct JsonRows {
    source: BufReader<Bytes>,
    /// Lines that were read whole.
    line: u64,
    bytes: Vec<u8>,
}

impl JsonRows {
    pub(super) fn new(source: Bytes) -> Self {
        Self { source: BufReader::with_capacity(1 << 16, source), line: 0, bytes: Vec::new() }
    }

    /// The keys of the next line that is not empty.
    pub(super) fn next(&mut self, origin: &FileOrigin) -> Result<Option<Row>, DataError> {
        while let Some((line, bytes)) = self.next_line(origin)? {
            let text = origin.text(bytes, line)?.trim_ascii();
            if !text.is_empty() {
                let keys = object(text).map_err(|fault| origin.fault(line, fault))?;
                return Ok(Some((line, keys)));
            }
        }
        Ok(None)
    }

    /// The next line as it stands there, with its end and without a byte order mark, and its number from 1.
    pub(crate) fn next_line(
        &mut self,
        origin: &FileOrigin,
    ) -> Result<Option<(u64, &[u8])>, DataError> {
        self.bytes.clear();
        let mut source = (&mut self.source).take(LONGEST as u64 + 1);
        let read = source.read_until(b'\n', &mut self.bytes);
        if read.map_err(|error| origin.io_error(error, self.line))? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.bytes.len() > LONGEST {
            return Err(origin.fault(self.line, PromptFault::TooLong { most: LONGEST }));
        }
        let bytes = self.bytes.as_slice();
        let marked = bytes.strip_prefix("\u{feff}".as_bytes()).filter(|_| self.line == 1);
        Ok(Some((self.line, marked.unwrap_or(bytes))))
    }
}

/// The keys of a line that is an object.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, PromptFault> {
    let Keys { map, duplicate } = serde_json::from_str(text)
        .map_err(|error| PromptFault::NotAnObject { reason: reason(&error) })?;
    match duplicate {
        Some(key) => Err(PromptFault::DuplicateKey { key }),
        None => Ok(map),
    }
}

/// What the JSON reader said, with the column alone: its line is always 1.
fn reason(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// The keys of an object, and the first that is there twice, which serde_json would let pass.
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
