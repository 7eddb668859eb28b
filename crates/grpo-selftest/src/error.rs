//! Errors of a self-test.

use std::path::{Path, PathBuf};

use grpo_model::ModelError;

/// Errors of golden folders and files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelftestError {
    /// The file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// An invalid file or folder.
    #[error("{0}")]
    Golden(String),
    /// An invalid model folder.
    #[error(transparent)]
    Folder(#[from] ModelError),
    /// An invalid sentence-transformers folder.
    #[error(transparent)]
    Embedder(#[from] Box<grpo_data::ConfigFault>),
}

impl SelftestError {
    pub(crate) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self {
        |source| Self::Read { path: path.to_owned(), source }
    }

    /// Returns the error of invalid JSON.
    pub(crate) fn json(file: &str, error: &serde_json::Error) -> Self {
        Self::Golden(format!("`{file}` is not JSON: {}", grpo_data::json_reason(error)))
    }

    /// Returns the error of a key with an unexpected value.
    pub(crate) fn key(file: &str, key: &str, problem: &str) -> Self {
        Self::Golden(format!("`{file}`, key `{key}`: {problem}"))
    }
}
