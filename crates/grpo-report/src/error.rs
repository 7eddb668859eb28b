//! Error type for reports.

use std::path::PathBuf;

use grpo_run::RunError;

/// Error for a run or a comparison that cannot be displayed. Messages state what is wrong, where, and how to fix
/// it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file of the run is missing or damaged.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The configuration is not valid TOML.
    #[error("`{path}` is damaged: {reason}; restore it from a copy")]
    Config {
        /// Path of the configuration.
        path: PathBuf,
        /// Message of the TOML parser on one line.
        reason: String,
    },
    /// The `[success]` section contains unknown or invalid criteria.
    #[error("`{path}` has an invalid section [success]: {reason}")]
    Success {
        /// Path of the configuration.
        path: PathBuf,
        /// Description of the problem on one line.
        reason: String,
    },
    /// The run has not completed a single step.
    #[error(
        "`{path}` has no finished steps yet; wait for the first line of its metrics.jsonl, or resume it with `{resume}` if it has ended"
    )]
    NoStep {
        /// Path of the run folder.
        path: PathBuf,
        /// The command that resumes the run.
        resume: String,
    },
    /// The run ended before its first step.
    #[error("`{path}` stopped before its first step: {reason}; resume it with `{resume}`")]
    Stopped {
        /// Path of the run folder.
        path: PathBuf,
        /// Reason in the events of the run.
        reason: String,
        /// The command that resumes the run.
        resume: String,
    },
    /// The same run was given twice.
    #[error("`{path}` was specified more than once; specify each run once")]
    Twice {
        /// Path of the run folder.
        path: PathBuf,
    },
    /// A comparison of methods cannot be drawn.
    #[error("cannot draw the comparison: {reason}")]
    Comparison {
        /// Description of the problem on one line.
        reason: String,
    },
}
