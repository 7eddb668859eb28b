//! Model-specific operations of supervised runs.

use std::path::Path;

use grpo_run::{RunFolder, VerifiedFolder, write_manifest};
use grpo_train::{Objective, Validation};

use crate::used_inputs::keep_used;

/// Reads and writes the model that a supervised command trains.
pub trait ModelFiles<O: Objective> {
    /// Configuration section that contains `patience` and `min_gain`.
    const SECTION: &'static str;

    /// Writes a model to the given folder.
    fn write(&self, folder: &Path, model: &O::Model) -> anyhow::Result<()>;

    /// Reads a model written by [`Self::write`]. `like` is a model of the same kind.
    fn read(&self, folder: &VerifiedFolder, like: &O::Model) -> anyhow::Result<O::Model>;

    /// Returns the name of the subfolder for the best model, or `None` if only the last model is
    /// saved.
    fn folder(&self) -> Option<&'static str> {
        Some("model")
    }

    /// Describes when a validation took place.
    fn when(&self, validation: &Validation<O::Measures>) -> String {
        format!("step {}", validation.train_step)
    }

    /// Formats the results of a validation.
    fn words(&self, measures: &O::Measures) -> String;

    /// Called before the first step of this process. `done` steps were completed earlier.
    fn begin(&mut self, run: &RunFolder, done: u64) -> anyhow::Result<()> {
        let _nothing_else_is_written = (run, done);
        Ok(())
    }

    /// Writes additional files after a validation.
    fn validated(&mut self, measures: &O::Measures) -> anyhow::Result<()> {
        let _nothing_else_is_written = measures;
        Ok(())
    }
}

/// Writes a model folder with a manifest to the subfolder `name` of a run and replaces an existing
/// one, which is kept if another run was started from it.
pub(super) fn save_folder(
    run: &RunFolder,
    name: &str,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    run.write_subfolder(name, |folder| -> anyhow::Result<()> {
        write(folder)?;
        write_manifest(folder)?;
        Ok(keep_used(&run.path().join(name), folder, || run.move_aside(name))?)
    })
}
