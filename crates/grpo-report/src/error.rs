//! Why there is no report.

use std::path::PathBuf;

use grpo_run::RunError;

/// A run that cannot be shown. The message says what is wrong, where, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file of the run is missing or damaged.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The configuration is no TOML.
    #[error("`{path}` is damaged: {reason}; restore it from a copy")]
    Config {
        /// The file.
        path: PathBuf,
        /// What the reader said, on one line.
        reason: String,
    },
    /// The criteria are not those of this program.
    #[error("`{path}` has an invalid section [success]: {reason}")]
    Success {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, on one line.
        reason: String,
    },
    /// The run did not get as far as one step.
    #[error("`{path}` has no finished steps yet; wait for the first line of its metrics.jsonl")]
    NoStep {
        /// The folder.
        path: PathBuf,
    },
    /// The same run twice.
    #[error("`{path}` was specified more than once; specify each run once")]
    Twice {
        /// The folder.
        path: PathBuf,
    },
}
