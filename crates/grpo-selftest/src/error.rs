//! Self-test errors.

use std::path::{Path, PathBuf};

use grpo_model::ModelError;

/// Errors that occur while golden folders and files are read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelftestError {
    /// A file could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// Path to the file.
        path: PathBuf,
        /// Underlying I/O error.
        source: std::io::Error,
    },
    /// A file or folder is invalid.
    #[error("{0}")]
    Golden(String),
    /// A model folder is invalid.
    #[error(transparent)]
    Folder(#[from] ModelError),
    /// A sentence-transformers folder is invalid.
    #[error(transparent)]
    Embedder(#[from] Box<grpo_data::ConfigFault>),
}

impl SelftestError {
    pub(crate) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self {
        |source| Self::Read { path: path.to_owned(), source }
    }

    /// Creates an error for invalid JSON.
    pub(crate) fn json(file: &str, error: &serde_json::Error) -> Self {
        Self::Golden(format!("`{file}` is not valid JSON: {}", grpo_data::json_reason(error)))
    }

    /// Creates an error for a key with an unexpected value.
    pub(crate) fn key(file: &str, key: &str, problem: &str) -> Self {
        Self::Golden(format!("`{file}`, key `{key}`: {problem}"))
    }
}
