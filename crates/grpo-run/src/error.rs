//! Errors of run folders.

use std::io;
use std::path::{Path, PathBuf};

/// An error of files or their contents. The message says what is wrong, where, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The folder of a new run exists already.
    #[error(
        "run folder `{path}` already exists; use another folder with `--run FOLDER`, or add `--force` to rename the old one"
    )]
    RunExists {
        /// The folder.
        path: PathBuf,
    },
    /// Another process is writing to the run folder.
    #[error("another process is using run folder `{path}`; wait for it to finish, or stop it")]
    RunLocked {
        /// The folder.
        path: PathBuf,
    },
    /// Another process is writing to a folder.
    #[error("another process is writing to `{path}`; wait for it to finish, or use another folder")]
    FolderLocked {
        /// The folder.
        path: PathBuf,
    },
    /// The configuration of a run was changed after its start.
    #[error(
        "`{path}` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it"
    )]
    ConfigChanged {
        /// The configuration.
        path: PathBuf,
    },
    /// The folder is not a run.
    #[error("`{path}` is not a run folder (no `run.json`); check the path")]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// A new folder exists already.
    #[error("`{path}` already exists; use another path, or remove it first")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A path does not end in a name.
    #[error("`{path}` does not end in a file or folder name; use a path that does")]
    NoName {
        /// The path.
        path: PathBuf,
    },
    /// Writing, syncing or renaming failed.
    #[error("cannot write `{path}`: {source}; free some space or choose a writable folder")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read `{path}`: {source}; check that it exists and is readable")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A JSON file of ours does not hold what it should.
    #[error("`{path}` is damaged: {reason}; restore it from a copy, or start the run again")]
    BadJson {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with the line and column.
        reason: String,
    },
    /// A line of a JSON-lines file is invalid.
    #[error(
        "line {line} of `{path}` is damaged: {reason}; remove the line, or restore the file from a copy"
    )]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it, with the column.
        reason: String,
    },
    /// The content of a file of completions is invalid.
    #[error("`{path}` is damaged: {reason}; restore it from a copy, or train again")]
    BadCompletions {
        /// The file.
        path: PathBuf,
        /// The reason, with the row counted from 1.
        reason: String,
    },
    /// The start time in `run.json` is invalid.
    #[error(
        "`{path}` has the invalid start time `{started}`; expected a time such as 2026-01-31T12:00:00Z; restore the file"
    )]
    BadStart {
        /// The file.
        path: PathBuf,
        /// The value.
        started: String,
    },
    /// A folder does not match its manifest, or has none.
    #[error("`{path}` {fault}")]
    Manifest {
        /// The folder, or the file in it.
        path: PathBuf,
        /// What is wrong, and how to fix it.
        fault: String,
    },
}

impl RunError {
    pub(crate) fn manifest(path: impl Into<PathBuf>, fault: impl Into<String>) -> Self {
        Self::Manifest { path: path.into(), fault: fault.into() }
    }

    /// For `map_err` after reading `path` as JSON.
    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Self::BadJson { path: path.to_owned(), reason: grpo_data::json_reason(&error) }
    }

    /// For `map_err` after reading a line of `path` as JSON.
    pub(crate) fn line(path: &Path, line: u64) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| {
            let reason = grpo_data::json_line_reason(&error);
            Self::BadLine { path: path.to_owned(), line, reason }
        }
    }

    /// For `map_err` after an operation that writes `path`.
    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    /// Returns a converter for `map_err` after reading `path`.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_json_reader_are_in_plain_words() {
        let of_line = |text: &str| {
            let error = serde_json::from_str::<crate::LedgerUpdate>(text).unwrap_err();
            RunError::line(Path::new("ledger.jsonl"), 2)(error).to_string()
        };
        let said = "line 2 of `ledger.jsonl` is damaged: ";
        assert!(of_line("").starts_with(&format!("{said}it is empty; remove the line")));
        let negative = of_line("{\"version\":-1}");
        let expected =
            "invalid value: integer `-1`, expected a whole number, 0 or more at column 13";
        assert!(negative.starts_with(&format!("{said}{expected};")), "{negative}");
        assert!(
            of_line("{\"version\"").starts_with(&format!("{said}it ends too early, at column 10;")),
            "{}",
            of_line("{\"version\"")
        );
    }
}
