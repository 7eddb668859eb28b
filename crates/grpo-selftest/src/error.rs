//! What a self-test stumbles over before it can judge.

use std::path::{Path, PathBuf};

use grpo_model::ModelError;

/// A golden folder or file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelftestError {
    /// The file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file or folder that is not as it must be, in one sentence.
    #[error("{0}")]
    Golden(String),
    /// A model folder that cannot be used.
    #[error(transparent)]
    Folder(#[from] ModelError),
    /// A folder of sentence-transformers that cannot be used.
    #[error(transparent)]
    Embedder(#[from] Box<grpo_data::ConfigFault>),
}

impl SelftestError {
    pub(crate) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self {
        |source| Self::Read { path: path.to_owned(), source }
    }

    /// The file is not JSON, or not as a whole.
    pub(crate) fn json(file: &str, error: &serde_json::Error) -> Self {
        Self::Golden(format!("`{file}` is not JSON: {}", grpo_data::json_reason(error)))
    }

    /// A key, with those around it, of which something else was expected.
    pub(crate) fn key(file: &str, key: &str, problem: &str) -> Self {
        Self::Golden(format!("`{file}`, key `{key}`: {problem}"))
    }
}
