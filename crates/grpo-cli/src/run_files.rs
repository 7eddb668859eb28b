//! What the commands that train share: the folder of the run.

use std::path::Path;

use grpo_run::{Existing, RunError, RunFolder, RunInfo};
use grpo_train::TrainError;

use crate::output::say;

/// Makes the folder of a run. With `force`, one that exists steps aside.
pub(crate) fn create_run(
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
pub(crate) fn observer_error(error: impl Into<anyhow::Error>) -> TrainError {
    TrainError::Observer(error.into().into_boxed_dyn_error())
}
