//! What a supervised command knows of the model that it trains, and how its folder is written.

use std::path::Path;

use grpo_run::{Existing, RunFolder, VerifiedFolder, write_folder_atomically, write_manifest};
use grpo_train::{Objective, Validation};

/// What a command knows of the model that it trains.
pub trait ModelFiles<O: Objective> {
    /// The section of the configuration with `patience` and `min_gain`.
    const SECTION: &'static str;

    /// Writes the files of a model folder.
    fn write(&self, folder: &Path, model: &O::Model) -> anyhow::Result<()>;

    /// Reads what [`Self::write`] wrote, a model of the same kind as `like`.
    fn read(&self, folder: &VerifiedFolder, like: &O::Model) -> anyhow::Result<O::Model>;

    /// The name of the best model's folder in the run; `None` if only the last model counts.
    fn folder(&self) -> Option<&'static str> {
        Some("model")
    }

    /// When a validation was.
    fn when(&self, validation: &Validation<O::Measures>) -> String {
        format!("step {}", validation.train_step)
    }

    /// What it found, in words.
    fn words(&self, measures: &O::Measures) -> String;

    /// Called before the first step that is taken, after `done` steps.
    fn begin(&mut self, run: &RunFolder, done: u64) -> anyhow::Result<()> {
        let _nothing_else_is_written = (run, done);
        Ok(())
    }

    /// Writes what else there is of a validation.
    fn validated(&mut self, measures: &O::Measures) -> anyhow::Result<()> {
        let _nothing_else_is_written = measures;
        Ok(())
    }
}

/// Puts a model folder, with the hashes of its files, in the place of the one that may be there.
pub fn save_folder(
    target: &Path,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    write_folder_atomically(target, Existing::Replace, |folder| {
        write(folder)?;
        anyhow::Ok(write_manifest(folder)?)
    })
}
