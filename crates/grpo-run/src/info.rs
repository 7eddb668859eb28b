//! `run.json`: how a run was made.

use crate::RunError;
use crate::manifest::size_and_hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is needed to repeat a run, besides the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The command line.
    pub command: Vec<String>,
    /// Start of the run in UTC, as `2026-01-31T12:00:00Z`.
    pub started: String,
    /// Versions of the program and of the libraries that affect results, by name.
    pub versions: BTreeMap<String, String>,
    /// The git revision of the program, with `-dirty` if its sources were modified; `None` if it
    /// was not built in a checkout.
    pub git_revision: Option<String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The backend and device, as `flex` or `cuda:0`.
    pub device: String,
    /// Number of compute threads.
    pub threads: usize,
    /// SHA-256 of `config.toml`, in hexadecimal.
    #[serde(default)]
    pub config_sha256: String,
    /// Whether `ledger.jsonl` and `events.jsonl` have hash chains; older versions have none.
    #[serde(default)]
    pub chained: bool,
    /// Input files.
    pub data: Vec<DataFile>,
}

/// An input file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Its role, such as `molecules` or `prior`.
    pub role: String,
    /// Its path as given.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

impl DataFile {
    /// Measures a file.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn measure(role: &str, path: &Path) -> Result<Self, RunError> {
        let (bytes, sha256) = size_and_hash(path).map_err(RunError::read(path))?;
        Ok(Self { role: role.to_owned(), path: path.to_owned(), bytes, sha256 })
    }
}
