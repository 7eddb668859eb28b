//! Errors of user data.

use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};

/// An error in the user's data. The message says what is wrong, where, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Invalid content, settings or use of data.
    #[error("{0}")]
    Invalid(String),
    /// An error in the data of a task.
    #[error(transparent)]
    Task(Box<dyn std::error::Error + Send + Sync>),
    /// The file does not exist.
    #[error("`{path}` does not exist; check the path")]
    MissingFile {
        /// The path as given.
        path: PathBuf,
    },
    /// The file cannot be opened or read.
    #[error("cannot read `{path}`: {source}; check that it is a readable file")]
    Unreadable {
        /// The path as given.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The prompt is empty.
    #[error("a prompt has no tokens; expected at least one")]
    EmptyPrompt,
    /// An error in a record of a file.
    #[error("{path}:{line}: {source}", path = path.display())]
    AtLine {
        /// The path as given.
        path: PathBuf,
        /// The line, or the row of a Parquet file, counted from 1.
        line: u64,
        /// The error.
        source: Box<DataError>,
    },
    /// A file has no usable record.
    #[error("{message}")]
    NoRecords {
        /// Number of records that were too long.
        too_long: usize,
        /// Report on the records that were dropped.
        message: String,
    },
    /// A chat template rejects messages or fails.
    #[error(
        "line {line} of the chat template in `{path}` cannot render the messages: {reason}; correct the messages or the template"
    )]
    TemplateFailed {
        /// The file of the template.
        path: PathBuf,
        /// The line of the template, counted from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
}

impl DataError {
    /// Creates the error of a setting or key with an unexpected value.
    pub fn setting(key: impl fmt::Display, found: impl fmt::Display, expected: &str) -> Self {
        Self::Invalid(format!("`{key}` is {found}; expected {expected}"))
    }

    /// Adds the line or row, counted from 1.
    #[must_use]
    pub fn at_line(self, path: &Path, line: u64) -> Self {
        Self::AtLine { path: path.to_owned(), line, source: Box::new(self) }
    }
}

/// A list of names in a message: `a`, `b`, `c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(none)");
        }
        for (i, name) in self.0.iter().enumerate() {
            write!(f, "{}`{name}`", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Describes a JSON value in a message: `the value 3`, `the string "a"`, `a list`.
pub fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("the value {value}"),
        Value::String(text) => format!("the string {:?}", Shortened(text).to_string()),
        Value::Array(list) if list.is_empty() => "an empty list".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The first hundred characters of a text, for messages.
pub struct Shortened<'a>(pub &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(100) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}
