//! `run.json`: how a run was started.

use crate::RunError;
use crate::manifest::size_and_hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Information needed to reproduce a run, apart from its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Command-line arguments, including the program name.
    pub command: Vec<String>,
    /// UTC start time, e.g. `2026-01-31T12:00:00Z`.
    pub started: String,
    /// Versions of the program and of all libraries that affect results, by name.
    pub versions: BTreeMap<String, String>,
    /// Git revision of the program, with the suffix `-dirty` if there were uncommitted changes.
    /// `None` if the program was not built from a git checkout.
    pub git_revision: Option<String>,
    /// Seed for all random numbers.
    pub seed: u64,
    /// Device, e.g. `cpu` or `cuda:0`.
    pub device: String,
    /// Name of the GPU. `None` on the CPU, and in runs created by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Number of compute threads.
    pub threads: usize,
    /// SHA-256 of `config.toml` in hexadecimal.
    #[serde(default)]
    pub config_sha256: String,
    /// Whether `ledger.jsonl` and `events.jsonl` are hash chains. False in runs created by older
    /// versions.
    #[serde(default)]
    pub chained: bool,
    /// All input files.
    pub data: Vec<DataFile>,
}

/// An input file and its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Purpose of the file, e.g. `molecules` or `prior`.
    pub role: String,
    /// Path as given by the user.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

impl DataFile {
    /// Determines the size and hash of a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn measure(role: &str, path: &Path) -> Result<Self, RunError> {
        let (bytes, sha256) = size_and_hash(path).map_err(RunError::read(path))?;
        Ok(Self { role: role.to_owned(), path: path.to_owned(), bytes, sha256 })
    }
}
