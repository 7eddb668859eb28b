//! What the commands that train share: the folder of the run, and models in it.

use std::path::Path;

use grpo_data::Vocabulary;
use grpo_model::{ModelFolder, MolGpt, MolGptConfig};
use grpo_run::{
    Existing, RunError, RunFolder, RunInfo, atomic_write, write_folder_atomically, write_manifest,
};
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

/// Puts a model folder, with the hashes of its files, in the place of the one that may be there.
pub(crate) fn save_model(
    target: &Path,
    config: &MolGptConfig,
    vocabulary: &Vocabulary,
    model: &MolGpt,
) -> Result<(), RunError> {
    write_folder_atomically(target, Existing::Replace, |folder| {
        write_model(folder, config, vocabulary, model)?;
        write_manifest(folder)
    })
}

/// Writes the files of a model folder into `folder`.
pub(crate) fn write_model(
    folder: &Path,
    config: &MolGptConfig,
    vocabulary: &Vocabulary,
    model: &MolGpt,
) -> Result<(), RunError> {
    for (name, bytes) in ModelFolder::files(config, vocabulary, model) {
        atomic_write(&folder.join(name), &bytes)?;
    }
    Ok(())
}

/// A failure to write, as the training passes it on.
pub(crate) fn observer_error(error: RunError) -> TrainError {
    TrainError::Observer(Box::new(error))
}
