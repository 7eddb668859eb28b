//! Reading a user's prompts, and completions where there are any, from JSON lines and Parquet.

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

/// The examples of a file, from top to bottom, read as they are asked for. After an error the
/// iterator ends.
///
/// One of these keys gives the prompt:
/// - `prompt`: a text, a list of token ids, or a list of messages `{role, content}`;
/// - `messages`: a list of messages. If the last is the assistant's and there is no completion, it
///   is the completion;
/// - `prompt_ids`: a list of token ids;
/// - `text`: a whole text to train on. The prompt is then an empty text and this the completion.
///
/// Where there are ids and the text that they are of, the ids count, and the text is one of the fields.
///
/// `completion` (a text, a list of token ids, or a list of one message of the assistant's) or
/// `completion_ids` gives the completion. A key of these that holds null counts as missing. All other
/// keys go to [`PromptRecord::fields`].
///
/// Byte order marks, `\r\n` and a last line without an end are fine. Empty lines are skipped. In
/// Parquet files dates, times, timestamps and decimals become strings, structs and maps objects, and
/// bytes that are not UTF-8 an object `{"bytes": …}` of hexadecimal digits.
pub struct PromptReader {
    origin: FileOrigin,
    rows: Rows,
}

impl PromptReader {
    /// Opens a file whose name ends in `.jsonl`, `.json` (one object a line too), either with `.gz`
    /// behind it, or `.parquet`.
    ///
    /// # Errors
    /// The file is missing or unreadable, its name has another ending, or it is no Parquet file.
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
