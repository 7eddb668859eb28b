//! Training runs that a command of a task starts.

use std::path::PathBuf;

/// Training runs of a configuration with several values and seeds.
#[derive(Debug)]
pub struct TrainingRuns {
    /// Configuration of `grpo train`.
    pub configuration: PathBuf,
    /// Number of seeds, counted from the configuration's seed, or seeds separated by commas.
    pub seeds: String,
    /// Names, which are also those of folders, with `KEY=VALUE` pairs that override the configuration.
    pub variants: Vec<(String, Vec<String>)>,
    /// Folder of the runs.
    pub output: PathBuf,
    /// Whether to only check the configurations and list the runs.
    pub check: bool,
    /// Number of threads per run.
    pub threads: Option<usize>,
    /// Whether to hide progress.
    pub quiet: bool,
    /// Command that the user ran, which messages name, e.g. `grpo bench-pmo`.
    pub command: &'static str,
}

/// A finished training run.
#[derive(Clone, Debug)]
pub struct TrainedRun {
    /// Name of the variant.
    pub variant: String,
    /// Seed of the run.
    pub seed: u64,
    /// Run folder.
    pub folder: PathBuf,
}
