//! Everything that a user's data can get wrong, as one enum.

use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};

/// A fault in the user's data. The message says what is wrong, where, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Content, settings or a use of data that is refused, in a sentence.
    #[error("{0}")]
    Invalid(String),
    /// A fault in the data of a task.
    #[error(transparent)]
    Task(Box<dyn std::error::Error + Send + Sync>),
    /// The file does not exist.
    #[error("`{path}` does not exist; check the path")]
    MissingFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The operating system refused to open or read the file.
    #[error("cannot read `{path}`: {source}; check that it is a readable file")]
    Unreadable {
        /// The path as it was given.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Nothing to continue.
    #[error("a prompt has no tokens; give it at least one")]
    EmptyPrompt,
    /// What is wrong with one record of a file.
    #[error("{path}:{line}: {source}", path = path.display())]
    AtLine {
        /// The path as it was given.
        path: PathBuf,
        /// The line, or the row of a Parquet file, counted from 1.
        line: u64,
        /// The fault.
        source: Box<DataError>,
    },
    /// A file that nothing can be done with.
    #[error("{message}")]
    NoRecords {
        /// How many of its records were too long.
        too_long: usize,
        /// What was read and left out.
        message: String,
    },
    /// A chat template refuses messages, or fails on them.
    #[error(
        "line {line} of the chat template in `{path}` fails on the messages: {reason}; correct the messages or the template"
    )]
    TemplateFailed {
        /// The file that holds the template.
        path: PathBuf,
        /// The line of the template, counted from 1.
        line: u64,
        /// What the template or its engine said.
        reason: String,
    },
}

impl DataError {
    /// A setting or key, with the path to it, that holds something else than it should.
    pub fn setting(key: impl fmt::Display, found: impl fmt::Display, expected: &str) -> Self {
        Self::Invalid(format!("`{key}` is {found}; expected {expected}"))
    }

    /// The same fault as one of a line or row of a file, counted from 1.
    #[must_use]
    pub fn at_line(self, path: &Path, line: u64) -> Self {
        Self::AtLine { path: path.to_owned(), line, source: Box::new(self) }
    }
}

/// Names in a message: `a`, `b`, `c`.
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

/// A JSON value in a message: `the value 3`, `the string "a"`, `a list`.
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

/// The first hundred characters of a text that may be as long as a file, for messages.
pub struct Shortened<'a>(pub &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(100) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}
