//! Errors of models.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// An error of a model or its files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {message}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// A file or folder is damaged or belongs to another model.
    #[error("{}{problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The message, which follows the path.
        problem: String,
    },
    /// A vocabulary, tokenizer or chat template.
    #[error(transparent)]
    Codec(#[from] grpo_data::DataError),
    /// Settings are out of range or inconsistent, or the model is of another kind.
    #[error("{0}")]
    Unfit(String),
}

impl ModelError {
    /// Returns [`Self::Write`] for this file.
    pub(crate) fn write(path: &Path, error: &impl Display) -> Self {
        Self::Write { path: path.to_owned(), message: error.to_string() }
    }

    /// Returns [`Self::File`] with a message that starts with the path.
    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), problem: problem.into() }
    }

    /// Returns an error in a file.
    pub(crate) fn in_file(path: &Path, problem: impl Display) -> Self {
        Self::file(path, format!(": {problem}"))
    }

    /// Returns the error of a missing tensor.
    pub(crate) fn missing_tensor(path: &Path, name: &str) -> Self {
        Self::file(
            path,
            format!(" is missing tensor '{name}'; is it a checkpoint of this model family?"),
        )
    }

    /// Returns the error of an unexpected tensor.
    pub(crate) fn unknown_tensor(path: &Path, name: &str) -> Self {
        Self::in_file(
            path,
            format!("unexpected tensor '{name}': this model family does not use it"),
        )
    }

    /// Returns the error of a tensor with another size than configured.
    pub(crate) fn shape(path: &Path, name: &str, found: &[usize], expected: &[usize]) -> Self {
        let problem =
            format!("tensor '{name}' has shape {found:?}, but config.json requires {expected:?}");
        Self::in_file(path, problem)
    }

    /// Returns the error of an invalid adapter setting.
    pub(crate) fn lora(key: &str, message: impl Display) -> Self {
        Self::Unfit(format!("lora.{key} = {message}"))
    }
}
