//! The error type of this crate.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// An error from loading, writing or configuring a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Underlying I/O error.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {message}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Reason for the failure.
        message: String,
    },
    /// A file or directory is damaged, or belongs to a different model.
    #[error("{}{problem}", path.display())]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// Description of the problem. It is appended to the path.
        problem: String,
    },
    /// A vocabulary, tokenizer or chat template is invalid.
    #[error(transparent)]
    Codec(#[from] grpo_data::DataError),
    /// A setting is out of range, settings contradict each other, or the model is of the wrong
    /// kind.
    #[error("{0}")]
    Unfit(String),
}

impl ModelError {
    /// Creates a [`Self::Write`] error.
    pub(crate) fn write(path: &Path, error: &impl Display) -> Self {
        Self::Write { path: path.to_owned(), message: error.to_string() }
    }

    /// Creates a [`Self::File`] error. The message starts with the path.
    pub fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), problem: problem.into() }
    }

    /// Creates a [`Self::File`] error for a problem inside the file.
    pub fn in_file(path: &Path, problem: impl Display) -> Self {
        Self::file(path, format!(": {problem}"))
    }

    /// Creates an error for a missing tensor.
    pub fn missing_tensor(path: &Path, name: &str) -> Self {
        Self::file(
            path,
            format!(" is missing tensor '{name}'; is it a checkpoint of this model family?"),
        )
    }

    /// Creates an error for an unexpected tensor.
    pub fn unknown_tensor(path: &Path, name: &str) -> Self {
        Self::in_file(
            path,
            format!("unexpected tensor '{name}': this model family does not use it"),
        )
    }

    /// Creates an error for a tensor of a layer that the configuration does not have.
    pub(crate) fn further_layer(path: &Path, name: &str, layers: usize) -> Self {
        let plural = if layers == 1 { "" } else { "s" };
        let problem = format!(
            "unexpected tensor '{name}': config.json has {layers} layer{plural}, but the weights have more; use the config.json that belongs to them"
        );
        Self::in_file(path, problem)
    }

    /// Creates an error for a tensor whose shape differs from the configuration.
    pub(crate) fn shape(path: &Path, name: &str, found: &[usize], expected: &[usize]) -> Self {
        let problem =
            format!("tensor '{name}' has shape {found:?}, but config.json requires {expected:?}");
        Self::in_file(path, problem)
    }

    /// Creates an error for an invalid adapter setting.
    pub(crate) fn lora(key: &str, message: impl Display) -> Self {
        Self::Unfit(format!("lora.{key} = {message}"))
    }
}
