//! What can be wrong with a model on disk or with its description.

use std::path::PathBuf;

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
    /// `config.json` is not the description of a model that we know.
    #[error("{}: {message}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong and what was expected.
        message: String,
    },
    /// Sizes that do not fit together.
    #[error("{0}")]
    Sizes(String),
    /// The file is not safetensors, or is cut off.
    #[error("{} is not a whole safetensors file: {source}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// Why.
        source: safetensors::SafeTensorError,
    },
    /// A tensor that the model needs is not in the file.
    #[error("{} has no tensor '{name}'; is it a checkpoint of this model family?", path.display())]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor of another size than the configuration says.
    #[error(
        "{}: tensor '{name}' has shape {found:?}, but config.json asks for {expected:?}",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// From the configuration.
        expected: Vec<usize>,
        /// In the file.
        found: Vec<usize>,
    },
    /// A tensor of numbers that we do not read.
    #[error("{}: tensor '{name}' holds {found}; F32 is read", path.display())]
    DType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// In the file.
        found: String,
    },
    /// A tensor that holds NaN or infinity.
    #[error("{}: tensor '{name}' holds a number that is not finite", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor that the model has no place for.
    #[error("{}: tensor '{name}' has no place in this model family", path.display())]
    UnknownTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
}
