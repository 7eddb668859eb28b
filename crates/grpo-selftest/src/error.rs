//! What a self-test stumbles over before it can judge.

use std::path::PathBuf;

/// A golden folder or file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelftestError {
    /// The folder is not there.
    #[error("`{}` is no folder; give one that holds advantages.json, losses.json or model folders with an expected.json", path.display())]
    NoFolder {
        /// As it was given.
        path: PathBuf,
    },
    /// Neither of the files that are known.
    #[error("`{}` holds neither advantages.json nor losses.json nor a model folder with an expected.json", path.display())]
    NothingGolden {
        /// The folder.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no JSON, or not as a whole.
    #[error("`{file}` is not JSON: {problem}")]
    Json {
        /// The file.
        file: String,
        /// What the parser says, with line and column.
        problem: String,
    },
    /// The file has no list of cases.
    #[error("`{file}` has {found} under the key `cases`; expected a list of at least one case")]
    Cases {
        /// The file.
        file: String,
        /// In words.
        found: &'static str,
    },
    /// A case is not as it must be.
    #[error("`{file}`, case {case}, key `{key}`: {problem}")]
    Case {
        /// The file.
        file: String,
        /// Its place in the list, from 0.
        case: usize,
        /// The key, with those around it.
        key: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// An `expected.json` of nothing that is known.
    #[error("`{file}` has neither steps nor base nor sequences of a kind that is known")]
    UnknownModel {
        /// The file.
        file: String,
    },
    /// An `expected.json` that is not as it must be.
    #[error("`{file}`, key `{key}`: {problem}")]
    Model {
        /// The file.
        file: String,
        /// The key, with those around it.
        key: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A model folder that cannot be used.
    #[error(transparent)]
    Folder {
        /// Why.
        source: Box<grpo_model::ModelFolderError>,
    },
    /// A folder of sentence-transformers that cannot be used.
    #[error(transparent)]
    Embedder(#[from] Box<grpo_data::ConfigFault>),
}
