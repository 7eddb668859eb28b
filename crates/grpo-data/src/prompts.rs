//! Reads prompts and optional completions from JSON lines and Parquet.

mod json_rows;
mod keys;
mod object_rows;
mod parquet_rows;
mod rows;

pub use json_rows::LineFault;
pub use keys::{CompletionSource, PromptRecord, PromptSource};
pub use object_rows::{ObjectReader, ObjectRow};

use crate::DataError;
use crate::origin::FileOrigin;
use rows::Rows;
use std::path::Path;

/// Iterates lazily over the examples of a file. After an error the iterator ends.
///
/// One of these keys contains the prompt:
/// - `prompt`: a text, a list of token ids, or a list of messages `{role, content}`;
/// - `messages`: a list of messages. If the last is the assistant's and there is no completion, it is the completion;
/// - `prompt_ids`: a list of token ids;
/// - `text`: a whole text to train on. The prompt is then empty and the text is the completion.
///
/// If there are both ids and their text, the ids are used and the text is one of the fields.
///
/// `completion` (a text, a list of token ids, or a list of one message of the assistant) or
/// `completion_ids` contains the completion. A null counts as missing. All other keys go to
/// [`PromptRecord::fields`].
///
/// Byte order marks, `\r\n` and a last line without an end are accepted. Empty lines are skipped.
/// In Parquet files, dates, times, timestamps and decimals become strings, structs and maps become
/// objects, and bytes that are not UTF-8 become an object `{"bytes": …}` of hexadecimal digits.
pub struct PromptReader {
    origin: FileOrigin,
    rows: Rows,
}

impl PromptReader {
    /// Opens a file whose name ends in `.jsonl` or `.json` (also one object per line), optionally
    /// with `.gz`, or in `.parquet`.
    ///
    /// # Errors
    /// Returns an error if the file is missing or unreadable, has another extension, or is not a
    /// Parquet file.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (origin, rows) = Rows::open(path)?;
        Ok(Self { origin, rows })
    }

    fn read(&mut self) -> Result<Option<PromptRecord>, DataError> {
        let row = match &mut self.rows {
            Rows::Json(rows) => rows.next(&self.origin)?,
            Rows::Parquet(rows) => rows.next(&self.origin)?,
            Rows::Ended => None,
        };
        let Some((line, keys)) = row else { return Ok(None) };
        let record = keys::record(line, keys);
        let at = |fault| DataError::Invalid(fault).at_line(&self.origin.path, line);
        record.map(Some).map_err(at)
    }
}

impl Iterator for PromptReader {
    type Item = Result<PromptRecord, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.read().transpose();
        if !matches!(record, Some(Ok(_))) {
            self.rows = Rows::Ended;
        }
        record
    }
}
