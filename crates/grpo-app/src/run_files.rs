//! What the commands that train share, and the one that goes back: the folder of the run, and the files that it was made
//! from.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_run::{DataFile, Existing, RunError, RunFolder, RunInfo};
use grpo_train::TrainError;

use crate::output::say;

/// Makes the folder of a run. With `force`, one that exists steps aside.
pub fn create_run(
    path: &Path,
    force: bool,
    config: &str,
    info: &RunInfo,
) -> Result<RunFolder, RunError> {
    let existing = if force { Existing::Replace } else { Existing::Refuse };
    let (folder, aside) = RunFolder::create(path, existing, config, info)?;
    if let Some(aside) = aside {
        say(format_args!("the older run is now {}", aside.display()));
    }
    Ok(folder)
}

/// A failure to write, as the training passes it on.
pub fn observer_error(error: impl Into<anyhow::Error>) -> TrainError {
    TrainError::Observer(error.into().into_boxed_dyn_error())
}

/// Refuses files that are no longer what a run was made from.
pub fn unchanged(files: &[DataFile]) -> anyhow::Result<()> {
    for file in files {
        let DataFile { role, path, bytes, sha256 } = file;
        let now = DataFile::measure(role, path).with_context(|| {
            format!(
                "`{}`, which the run was made from, is not here; put it back, or go to the folder that the training ran in",
                path.display()
            )
        })?;
        anyhow::ensure!(
            (now.bytes, &now.sha256) == (*bytes, sha256),
            "`{}` is not what the run was made from: it has {} bytes and the SHA-256 {}, and run.json says {bytes} and {sha256}; put that file back",
            path.display(),
            now.bytes,
            now.sha256
        );
    }
    Ok(())
}

/// Refuses files that a run was not made from.
pub fn unlisted(read: &[(&'static str, PathBuf)], of_run: &[DataFile]) -> anyhow::Result<()> {
    let is_listed = |path: &Path| of_run.iter().any(|file| file.path == path);
    let other = read.iter().find(|(_, path)| !is_listed(path));
    let Some((_, path)) = other else { return Ok(()) };
    anyhow::bail!(
        "`{}` is not among the files that the run was made from (run.json); take it away, or put config.toml back as it was",
        path.display()
    )
}
