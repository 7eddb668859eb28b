//! Error type for run folders.

use grpo_data::{ForeignFile, dangling_link, note_system_fault, with_remedy};
use std::io;
use std::path::{Path, PathBuf};

/// An error while reading or writing run files. Messages state what is wrong, where, and how to fix
/// it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The folder of a new run already exists.
    #[error(
        "run folder `{path}` already exists; use another folder with `--run FOLDER`, or add `--force` to rename the old one"
    )]
    RunExists {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The path of a new run is a file, or a folder with other files.
    #[error("`{path}` exists, but is not a run; use another folder with `--run FOLDER`")]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// Another process is writing to the run folder.
    #[error("another process is using run folder `{path}`; wait for it to finish, or stop it")]
    RunLocked {
        /// Path of the folder.
        path: PathBuf,
    },
    /// Another process is writing to a folder.
    #[error("another process is writing to `{path}`; wait for it to finish, or use another folder")]
    FolderLocked {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The configuration was modified after the run started.
    #[error(
        "`{path}` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it"
    )]
    ConfigChanged {
        /// Path of the configuration file.
        path: PathBuf,
    },
    /// The folder does not contain a run.
    #[error("`{path}` is not a run folder (no `run.json`); check the path")]
    NotARun {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The target folder already exists.
    #[error("`{path}` already exists; use another path, or remove it first")]
    Exists {
        /// Path of the folder.
        path: PathBuf,
    },
    /// A run folder cannot have this path.
    #[error("`{name}` cannot be a run folder: {reason}; use a path such as runs/first")]
    BadName {
        /// The path, shortened.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The path does not end with a file or folder name.
    #[error("`{path}` does not end in a file or folder name; use a path that does")]
    NoName {
        /// The invalid path.
        path: PathBuf,
    },
    /// Something in a run or output folder is not the file or folder that the program uses.
    #[error(transparent)]
    Foreign(ForeignFile),
    /// A file that the run appends to was removed, replaced or changed.
    #[error(
        "`{path}` is no longer the file that this run writes: it was removed, replaced or changed by something else; restore it from a copy, then resume the run"
    )]
    NotOurs {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file of a run is too large to be read.
    #[error(
        "`{path}` is larger than {} GiB, the limit for files of a run; restore it from a copy",
        .limit >> 30
    )]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Largest size in bytes.
        limit: u64,
    },
    /// A link on the way to a file or folder leads nowhere.
    #[error("cannot use `{path}`: {link}; create what it leads to, or remove the link")]
    Dangling {
        /// Path of the file or folder.
        path: PathBuf,
        /// Description of the link.
        link: String,
    },
    /// A file or folder could not be written, synced or renamed.
    #[error("cannot write `{path}`: {}", fault_of_writing(source))]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error reported by the operating system.
        source: io::Error,
    },
    /// A file or folder could not be read.
    #[error(
        "cannot read `{path}`: {}",
        with_remedy(source, "check that it exists and is readable")
    )]
    Read {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error reported by the operating system.
        source: io::Error,
    },
    /// The contents of a JSON file are invalid.
    #[error("`{path}` is damaged: {reason}; restore it from a copy, or start the run again")]
    BadJson {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem with line and column.
        reason: String,
    },
    /// A line in a JSON-lines file is invalid.
    #[error(
        "line {line} of `{path}` is damaged: {reason}; remove the line, or restore the file from a copy"
    )]
    BadLine {
        /// Path of the file.
        path: PathBuf,
        /// Line number, starting at 1.
        line: u64,
        /// Description of the problem with the column.
        reason: String,
    },
    /// The metrics of a finished run lack its last steps.
    #[error(
        "`{path}` is damaged: {}, but events.jsonl records that the run finished after step {finished}; restore it from a copy, or start a new run (the trained weights are not affected)",
        match found {
            None => "it has no steps".to_owned(),
            Some(step) => format!("its last step is {step}"),
        }
    )]
    LostMetrics {
        /// Path of the file.
        path: PathBuf,
        /// The last step in the file.
        found: Option<u64>,
        /// The last step of the run.
        finished: u64,
    },
    /// The contents of a completions file are invalid.
    #[error("`{path}` is damaged: {reason}; restore it from a copy, or train again")]
    BadCompletions {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem with the row number, starting at 1.
        reason: String,
    },
    /// The start time in `run.json` is invalid.
    #[error(
        "`{path}` has the invalid start time `{started}`; expected a time such as 2026-01-31T12:00:00Z; restore the file"
    )]
    BadStart {
        /// Path of the file.
        path: PathBuf,
        /// The invalid value.
        started: String,
    },
    /// The manifest is missing, or the folder does not match it.
    #[error("`{path}` {fault}")]
    Manifest {
        /// Path of the folder or of the offending file.
        path: PathBuf,
        /// Description of the problem and how to fix it.
        fault: String,
    },
}

/// Describes why nothing can be written. Folders such as `/proc` answer as if they did not exist.
fn fault_of_writing(source: &io::Error) -> String {
    let remedy = match source.kind() {
        io::ErrorKind::NotFound => {
            "its folder does not exist or accepts no new files, so choose another one"
        }
        io::ErrorKind::NotADirectory => "choose another path",
        io::ErrorKind::PermissionDenied => "change its permissions, or choose a writable folder",
        io::ErrorKind::ReadOnlyFilesystem => "choose a folder on another file system",
        _ => "free some space or choose a writable folder",
    };
    with_remedy(source, remedy)
}

impl RunError {
    pub(crate) fn manifest(path: impl Into<PathBuf>, fault: impl Into<String>) -> Self {
        Self::Manifest { path: path.into(), fault: fault.into() }
    }

    /// For use with `map_err` when parsing `path` as JSON.
    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| Self::BadJson { path: path.to_owned(), reason: grpo_data::json_reason(&error) }
    }

    /// For use with `map_err` when parsing a line of `path` as JSON.
    pub(crate) fn line(path: &Path, line: u64) -> impl FnOnce(serde_json::Error) -> Self {
        move |error| {
            let reason = grpo_data::json_line_reason(&error);
            Self::BadLine { path: path.to_owned(), line, reason }
        }
    }

    /// For use with `map_err` when writing `path`.
    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            note_system_fault(path, &source);
            match ForeignFile::of(&source) {
                Some(foreign) => Self::Foreign(foreign.clone()),
                None => Self::dangling(path, &source)
                    .unwrap_or_else(|| Self::Write { path: path.to_owned(), source }),
            }
        }
    }

    /// Names the link that leads nowhere, if this is why `path` cannot be used.
    pub(crate) fn dangling(path: &Path, source: &io::Error) -> Option<Self> {
        use io::ErrorKind::{AlreadyExists, NotADirectory, NotFound};
        match source.kind() {
            AlreadyExists | NotADirectory | NotFound => {
                let link = dangling_link(path)?;
                Some(Self::Dangling { path: path.to_owned(), link })
            }
            _ => None,
        }
    }

    /// For use with `map_err` when reading `path`.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            note_system_fault(path, &source);
            match ForeignFile::of(&source) {
                Some(foreign) => Self::Foreign(foreign.clone()),
                None => Self::dangling(path, &source)
                    .unwrap_or_else(|| Self::Read { path: path.to_owned(), source }),
            }
        }
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
        let expected = "found -1; expected a whole number that is not negative at column 13";
        assert!(negative.starts_with(&format!("{said}{expected};")), "{negative}");
        assert!(
            of_line("{\"version\"")
                .starts_with(&format!("{said}unexpected end of input at column 10;")),
            "{}",
            of_line("{\"version\"")
        );
    }
}
