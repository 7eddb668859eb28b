//! Errors of reading and writing GGUF files.

use std::io;

/// The reason why a GGUF file cannot be read or written, in one sentence without the file's path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is damaged or not a GGUF file.
    #[error("{0}")]
    Damaged(String),
    /// The file is valid, but something in it is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// A tensor or metadata to be written does not fit the format.
    #[error("{0}")]
    Unfit(String),
}

pub(crate) type Result<T> = std::result::Result<T, GgufError>;

pub(crate) fn damaged<T>(message: impl Into<String>) -> Result<T> {
    Err(GgufError::Damaged(message.into()))
}

pub(crate) fn unsupported<T>(message: impl Into<String>) -> Result<T> {
    Err(GgufError::Unsupported(message.into()))
}

pub(crate) fn unfit<T>(message: impl Into<String>) -> Result<T> {
    Err(GgufError::Unfit(message.into()))
}
