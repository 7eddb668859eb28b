//! What can be wrong with a model on disk or with its description.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A model that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {message}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A file or folder that is damaged, or of another model.
    #[error("{}{problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The rest of the sentence that begins with it.
        problem: String,
    },
    /// A vocabulary, tokenizer or chat template.
    #[error(transparent)]
    Codec(#[from] grpo_data::DataError),
    /// Settings that are out of range or do not fit together, or a model that is none of the kind that is needed; in one
    /// sentence.
    #[error("{0}")]
    Unfit(String),
}

impl ModelError {
    /// A [`Self::Write`] of this file.
    pub(crate) fn write(path: &Path, error: &impl Display) -> Self {
        Self::Write { path: path.to_owned(), message: error.to_string() }
    }

    /// A [`Self::File`] in a sentence that begins with its path.
    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), problem: problem.into() }
    }

    /// Something that is wrong in a file.
    pub(crate) fn in_file(path: &Path, problem: impl Display) -> Self {
        Self::file(path, format!(": {problem}"))
    }

    /// A tensor that the model needs is not in the file.
    pub(crate) fn missing_tensor(path: &Path, name: &str) -> Self {
        Self::file(
            path,
            format!(" has no tensor '{name}'; is it a checkpoint of this model family?"),
        )
    }

    /// A tensor that the model has no place for.
    pub(crate) fn unknown_tensor(path: &Path, name: &str) -> Self {
        Self::in_file(path, format!("tensor '{name}' has no place in this model family"))
    }

    /// A tensor of another size than the configuration says.
    pub(crate) fn shape(path: &Path, name: &str, found: &[usize], expected: &[usize]) -> Self {
        let problem =
            format!("tensor '{name}' has shape {found:?}, but config.json asks for {expected:?}");
        Self::in_file(path, problem)
    }

    /// A setting of a new adapter that is out of its range.
    pub(crate) fn lora(key: &str, message: impl Display) -> Self {
        Self::Unfit(format!("lora.{key} = {message}"))
    }
}
