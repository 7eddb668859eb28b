//! A reader of JSON objects that lets the caller skip invalid lines.

use super::json_rows::{LineFault, object};
use super::rows::Rows;
use crate::DataError;
use crate::origin::{FileOrigin, Records};
use serde_json::{Map, Value};
use std::path::Path;

/// A line of a JSON lines file or a row of a Parquet file.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectRow {
    /// Line or row number, starting at 1.
    pub line: u64,
    /// The text and the parsed object. The text is the line without its newline or, in a Parquet
    /// file, the row formatted as JSON.
    pub object: Result<(String, Map<String, Value>), LineFault>,
}

/// Iterates over the objects in a file. Empty lines are skipped, but invalid lines are returned as
/// rows with a [`LineFault`].
pub struct ObjectReader {
    origin: FileOrigin,
    rows: Rows,
}

impl ObjectReader {
    /// Opens a file in one of the formats of [`PromptReader::open`](crate::PromptReader::open). `keys`
    /// names the keys that an object requires, for error messages.
    ///
    /// # Errors
    /// Returns an error if the file is missing or unreadable, has an unsupported extension, or is
    /// not a valid Parquet file.
    pub fn open(path: &Path, keys: &str) -> Result<Self, DataError> {
        let (origin, rows) = Rows::open(path, Records::Keys(keys))?;
        Ok(Self { origin, rows })
    }

    /// Returns the next line or row, or `None` at the end of the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is damaged (gzip, Parquet), or contains a line
    /// that is too long.
    pub fn next_row(&mut self) -> Result<Option<ObjectRow>, DataError> {
        match &mut self.rows {
            Rows::Json(rows) => {
                while let Some((line, bytes)) = rows.next_line(&self.origin)? {
                    if !bytes.trim_ascii().is_empty() {
                        return Ok(Some(ObjectRow { line, object: object_of(bytes) }));
                    }
                }
                Ok(None)
            }
            Rows::Parquet(rows) => Ok(rows.next(&self.origin)?.map(|(line, keys)| {
                let text = Value::Object(keys.clone()).to_string();
                ObjectRow { line, object: Ok((text, keys)) }
            })),
            Rows::Ended => Ok(None),
        }
    }
}

fn object_of(bytes: &[u8]) -> Result<(String, Map<String, Value>), LineFault> {
    let text = str::from_utf8(bytes).map_err(|_| LineFault::NotUtf8)?;
    // Only the newline is removed. Other trailing whitespace is part of the line.
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    Ok((text.to_owned(), object(text.trim_ascii())?))
}
