//! Errors caused by user data.

use crate::system_fault::system_words;
use serde_json::Value;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error in the user's data. The message explains what is wrong, where, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The data or a setting is invalid, or the data cannot be used this way.
    #[error("{0}")]
    Invalid(String),
    /// A task-specific error.
    #[error(transparent)]
    Task(Box<dyn std::error::Error + Send + Sync>),
    /// The file does not exist.
    #[error("`{path}` does not exist; check the path")]
    MissingFile {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file cannot be opened or read.
    #[error("cannot read `{path}`: {}", with_remedy(source, "check that it is a readable file"))]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The underlying I/O error.
        source: io::Error,
    },
    /// The prompt is empty.
    #[error("a prompt has no tokens; expected at least one")]
    EmptyPrompt,
    /// A record is invalid.
    #[error("{path}:{line}: {source}", path = path.display())]
    AtLine {
        /// Path of the file.
        path: PathBuf,
        /// The line or, in a Parquet file, the row, starting at 1.
        line: u64,
        /// The underlying error.
        source: Box<DataError>,
    },
    /// The file contains no usable records.
    #[error("{message}")]
    NoRecords {
        /// Number of records dropped because they were too long.
        too_long: usize,
        /// Report on the dropped records.
        message: String,
    },
    /// A chat template rejected the messages or failed.
    #[error(
        "line {line} of the chat template in `{path}` cannot render the messages: {reason}; correct the messages or the template"
    )]
    TemplateFailed {
        /// Path of the template file.
        path: PathBuf,
        /// The line in the template, starting at 1.
        line: u64,
        /// The error message.
        reason: String,
    },
}

impl DataError {
    /// Creates an error for a setting or key with an unexpected value.
    pub fn setting(key: impl fmt::Display, found: impl fmt::Display, expected: &str) -> Self {
        Self::Invalid(format!("`{key}` is {found}; expected {expected}"))
    }

    /// Adds the line or row number, starting at 1.
    #[must_use]
    pub fn at_line(self, path: &Path, line: u64) -> Self {
        Self::AtLine { path: path.to_owned(), line, source: Box::new(self) }
    }
}

/// Joins an error of the operating system with a remedy: `usual`, unless the error needs another one.
pub fn with_remedy(error: &io::Error, usual: &str) -> String {
    match system_words(error) {
        Some((what, remedy)) => format!("{what}; {remedy}"),
        None => format!("{error}; {usual}"),
    }
}

/// Number of bytes of names after which a list is cut.
const MOST_SHOWN: usize = 1000;

/// A list of names, displayed as `a`, `b`, `c`. Long names and long lists, which come from files, are
/// shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(none)");
        }
        let mut shown = 0;
        for (i, name) in self.0.iter().enumerate() {
            if shown > MOST_SHOWN {
                return write!(f, " … and {} more", self.0.len() - i);
            }
            shown += name.len();
            write!(f, "{}`{}`", if i == 0 { "" } else { ", " }, Shortened(name))?;
        }
        Ok(())
    }
}

/// Describes a JSON value in an error message, e.g. `the value 3`, `the string "a"`, `a list`.
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

/// Displays the first hundred characters of a string.
pub struct Shortened<'a>(pub &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(100) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_are_shortened() {
        let of = |names: &[String]| Names(names.to_vec()).to_string();
        assert_eq!(of(&["a".to_owned(), "b".to_owned()]), "`a`, `b`");
        let long = of(&["x".repeat(300_000), "b".to_owned()]);
        assert_eq!(long, format!("`{}…` … and 1 more", "x".repeat(100)));
        let many = of(&vec!["column".to_owned(); 100_000]);
        assert!(many.ends_with("`column` … and 99833 more"), "{many}");
    }
}
