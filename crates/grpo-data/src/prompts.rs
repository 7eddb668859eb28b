//! Reads prompts and optional completions from JSON lines and Parquet files.

mod array_rows;
mod foreign;
mod format;
mod json_rows;
mod keys;
mod messages;
mod object_rows;
mod parquet_rows;
mod rows;
mod shapes;
mod values;

pub use foreign::{message_text, nested_field};
pub use format::{RecordFormat, RecordKeys};
pub use json_rows::LineFault;
pub use keys::{CompletionSource, PromptRecord, PromptSource};
pub use object_rows::{ObjectReader, ObjectRow};

use crate::DataError;
use crate::origin::{FileOrigin, Records};
use rows::Rows;
use std::path::Path;

/// A lazy iterator over the examples in a file. It ends after the first error.
///
/// The prompt is in one of these keys, unless a [`RecordFormat`] names another one:
/// - `prompt`: text, a list of token ids, or a list of messages `{role, content}`;
/// - `messages`: a list of messages. If there is no separate completion and the last message is
///   from the assistant, that message is the completion;
/// - `prompt_ids`: a list of token ids;
/// - `text`: text to train on. The text becomes the completion of an empty prompt.
///
/// Without any of them, records of other programs are recognised: Alpaca, ShareGPT, `question` and
/// `answer`, `problem` and `solution` ([`PromptRecord::shape`]). Their columns also remain fields.
///
/// The completion is optional. It is contained in `completion` (text, a list of token ids, or a
/// list with one assistant message) or `completion_ids`. If a record has both ids and the
/// corresponding text, the ids are used and the text is stored as an additional field. Null values
/// are treated as missing. The content of a message can be a list of text parts, which are joined.
/// All remaining keys are stored in [`PromptRecord::fields`].
///
/// Byte order marks, `\r\n` line endings and a missing newline at the end of the file are accepted.
/// Empty lines are skipped. In Parquet files, dates, times, timestamps and decimals are converted
/// to strings, structs and maps to objects, and binary values that are not UTF-8 to an object
/// `{"bytes": …}` with hexadecimal digits.
pub struct PromptReader {
    origin: FileOrigin,
    rows: Rows,
    format: RecordFormat,
}

impl PromptReader {
    /// Opens a `.jsonl`, `.json` or `.parquet` file. The JSON formats have one object per line, or are
    /// one array of objects, and may be gzip-compressed, e.g. `prompts.jsonl.gz`.
    ///
    /// # Errors
    /// Returns an error if the file is missing or unreadable, has an unsupported extension, or is
    /// not a valid Parquet file.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let (origin, rows) = Rows::open(path, Records::Lines("prompt"))?;
        Ok(Self { origin, rows, format: RecordFormat::default() })
    }

    /// Opens a file whose records are texts to learn or to score. Only messages about other formats differ
    /// from [`Self::open`].
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub fn open_texts(path: &Path) -> Result<Self, DataError> {
        let (origin, rows) = Rows::open(path, Records::Lines("text"))?;
        Ok(Self { origin, rows, format: RecordFormat::default() })
    }

    /// Reads the records by a configuration that says what their columns are.
    #[must_use]
    pub fn with_format(self, format: &RecordFormat) -> Self {
        Self { format: format.clone(), ..self }
    }

    fn read(&mut self) -> Result<Option<PromptRecord>, DataError> {
        let row = match &mut self.rows {
            Rows::Json(rows) => rows.next(&self.origin)?,
            Rows::Array(rows) => rows.next(&self.origin)?,
            Rows::Parquet(rows) => rows.next(&self.origin)?,
            Rows::Ended => None,
        };
        let Some((line, keys)) = row else { return Ok(None) };
        let record = keys::record(line, keys, &self.format);
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
