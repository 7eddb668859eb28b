//! Reading a user's prompts, and completions where there are any, from JSON lines and Parquet.

mod json_rows;
mod keys;
mod parquet_rows;

use crate::origin::{Bytes, FileOrigin, open_file};
use crate::{DataError, Message};
use flate2::read::MultiGzDecoder;
pub(crate) use json_rows::{JsonRows, object};
use parquet_rows::ParquetRows;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::BufReader;
use std::path::Path;

/// One example of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptRecord {
    /// The line of the file, or the row of a Parquet file, counted from 1.
    pub line: u64,
    /// What a completion follows.
    pub prompt: PromptSource,
    /// What follows the prompt, where the file says so.
    pub completion: Option<CompletionSource>,
    /// All other keys, untouched: what rewards may need, such as an answer.
    pub fields: Map<String, Value>,
}

/// A prompt as a file gives it, before a tokenizer or a chat template has seen it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PromptSource {
    /// Text as it is.
    Text(String),
    /// A conversation, for the model's chat template; at least one message.
    Messages(Vec<Message>),
    /// Token ids.
    Ids(Vec<u32>),
}

/// A completion as a file gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CompletionSource {
    /// Text as it is; behind a conversation it is what the assistant says.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

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
        let (origin, rows) = open_rows(path)?;
        Ok(Self { origin, rows })
    }

    fn read(&mut self) -> Result<Option<PromptRecord>, DataError> {
        let row = match &mut self.rows {
            Rows::Json(rows) => rows.next(&self.origin)?,
            Rows::Parquet(rows) => rows.next(&self.origin)?,
            Rows::Ended => None,
        };
        let Some((line, keys)) = row else { return Ok(None) };
        let record = keys::record(line, keys).map_err(|fault| self.origin.fault(line, fault))?;
        Ok(Some(record))
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

/// What is read of a file, by its name.
pub(crate) fn open_rows(path: &Path) -> Result<(FileOrigin, Rows), DataError> {
    let name = path.file_name().unwrap_or_default();
    let name = name.to_string_lossy().to_ascii_lowercase();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let compressed = plain.len() < name.len();
    let origin = FileOrigin { path: path.into(), compressed };
    let rows = match plain.rsplit_once('.') {
        Some((_, "jsonl" | "json")) => {
            let file = open_file(path)?;
            let source: Bytes = if compressed {
                Box::new(MultiGzDecoder::new(BufReader::new(file)))
            } else {
                Box::new(file)
            };
            Rows::Json(JsonRows::new(source))
        }
        Some((_, "parquet")) if !compressed => {
            Rows::Parquet(ParquetRows::new(open_file(path)?, &origin)?)
        }
        _ => {
            return Err(DataError::UnknownFormat {
                path: path.into(),
                expected: "`.jsonl`, `.jsonl.gz`, `.json`, `.json.gz` or `.parquet`",
            });
        }
    };
    Ok((origin, rows))
}

pub(crate) enum Rows {
    Json(JsonRows),
    Parquet(ParquetRows),
    Ended,
}

/// A line's or row's number and its keys.
type Row = (u64, Map<String, Value>);
