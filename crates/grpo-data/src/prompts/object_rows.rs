//! Objects of a file, for readers that skip invalid lines.

use super::json_rows::{LineFault, object};
use super::rows::Rows;
use crate::DataError;
use crate::origin::FileOrigin;
use serde_json::{Map, Value};
use std::path::Path;

/// A line of a JSON-lines file, or a row of a Parquet file.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectRow {
    /// Number of the line or row, from 1.
    pub line: u64,
    /// The line without its end, or the row as an object, and its keys.
    pub object: Result<(String, Map<String, Value>), LineFault>,
}

/// Reads the objects of a file. Empty lines are skipped; an invalid line is an item too.
pub struct ObjectReader {
    origin: FileOrigin,
    rows: Rows,
}

impl ObjectReader {
    /// Opens a file as [`PromptReader::open`](crate::PromptReader::open) does.
    ///
    /// # Errors
    /// Returns an error if the file is missing or unreadable, has another extension, or is not a
    /// Parquet file.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (origin, rows) = Rows::open(path)?;
        Ok(Self { origin, rows })
    }

    /// Returns the next line or row.
    ///
    /// # Errors
    /// Returns an error if the file is damaged (gzip, Parquet), cannot be read, or has a line that
    /// is too long.
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
    // Trailing white space belongs to the line.
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    Ok((text.to_owned(), object(text.trim_ascii())?))
}
