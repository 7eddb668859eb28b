//! `run.json`: what a run was made with.

use crate::RunError;
use crate::manifest::size_and_hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What one must know besides the configuration to repeat a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The command line, as it was given.
    pub command: Vec<String>,
    /// When the run began, in UTC, as `2026-01-31T12:00:00Z`.
    pub started: String,
    /// Versions of the program and of the libraries that decide results, by name.
    pub versions: BTreeMap<String, String>,
    /// The git revision that the program was built from, with `-dirty` if its sources were edited since; `None` if it was not
    /// built in a checkout.
    pub git_revision: Option<String>,
    /// The run's seed, from which all its random numbers follow.
    pub seed: u64,
    /// The backend and device, as `flex` or `cuda:0`.
    pub device: String,
    /// Threads that the program computes with.
    pub threads: usize,
    /// SHA-256 of `config.toml`, in hexadecimal.
    #[serde(default)]
    pub config_sha256: String,
    /// Whether the lines of `ledger.jsonl` and `events.jsonl` have the hash of the line before; older versions wrote none.
    #[serde(default)]
    pub chained: bool,
    /// The files that the run reads.
    pub data: Vec<DataFile>,
}

/// A file that a run reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// What it is for, as `molecules` or `prior`.
    pub role: String,
    /// Its path, as it was given.
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
    /// It cannot be read.
    pub fn measure(role: &str, path: &Path) -> Result<Self, RunError> {
        let (bytes, sha256) = size_and_hash(path).map_err(RunError::read(path))?;
        Ok(Self { role: role.to_owned(), path: path.to_owned(), bytes, sha256 })
    }
}
