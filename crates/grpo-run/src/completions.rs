//! `completions/step-N.parquet`: what the policy wrote in a step, what it got for it, and what that did to each token.

mod read;
mod record;
mod table;

pub use record::{CompletionRecord, RecordedOutcome};
pub(crate) use table::{Values, write_rows, writer};

use crate::atomic::entries;
use crate::folder::COMPLETIONS;
use crate::{RunError, RunFolder, atomic_write};
use std::fs;
use std::path::PathBuf;

impl RunFolder {
    /// Where the completions of a step are, if they were recorded.
    pub fn completions_path(&self, step: u64) -> PathBuf {
        self.completions_folder().join(format!("{STEP}{step}{ENDING}"))
    }

    /// Writes the completions of a step, in the place of those that are there. The file is whole whenever the machine
    /// stops. `parts` are the names of all parts of the reward, each a column, whether a completion of the step has it
    /// or not: so the files of a run have the same columns.
    ///
    /// # Errors
    /// Writing failed; an older file of the step is then as it was.
    ///
    /// # Panics
    /// Where a record has a part that is not among `parts`.
    pub fn write_completions(
        &self,
        step: u64,
        records: &[CompletionRecord],
        parts: &[&str],
    ) -> Result<(), RunError> {
        self.write_completions_file(step, &Self::completions_file(records, parts))
    }

    /// The bytes of the file of these completions, for [`Self::write_completions_file`].
    ///
    /// # Panics
    /// Where a record has a part that is not among `parts`.
    pub fn completions_file(records: &[CompletionRecord], parts: &[&str]) -> Vec<u8> {
        table::file(records, parts)
    }

    /// Writes the file of the completions of a step, as [`Self::write_completions`].
    ///
    /// # Errors
    /// Writing failed; an older file of the step is then as it was.
    pub fn write_completions_file(&self, step: u64, file: &[u8]) -> Result<(), RunError> {
        atomic_write(&self.completions_path(step), file)
    }

    /// The steps whose completions were recorded, in their order. Files of other names are passed over.
    ///
    /// # Errors
    /// The folder of completions cannot be read.
    pub fn completion_steps(&self) -> Result<Vec<u64>, RunError> {
        let entries = entries(&self.completions_folder())?;
        let mut steps: Vec<u64> = entries.iter().filter_map(|(name, _)| step_of(name)).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The names in the folder of completions that begin as those of completions, and are not ones that a run writes.
    pub(crate) fn foreign_completions(&self) -> Result<Vec<String>, RunError> {
        let names = entries(&self.completions_folder())?.into_iter().map(|(name, _)| name);
        Ok(names.filter(|name| name.starts_with(STEP) && step_of(name).is_none()).collect())
    }

    /// The completions that were recorded of a step, group by group.
    ///
    /// # Errors
    /// They cannot be read, or are damaged.
    pub fn completions_of(&self, step: u64) -> Result<Vec<CompletionRecord>, RunError> {
        read::records(&self.completions_path(step), step)
    }

    /// Takes away the completions of the step `first_step` and of later ones, which a run that goes on from an earlier
    /// one writes again, or not.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_completions_from(&self, first_step: u64) -> Result<(), RunError> {
        for step in self.completion_steps()?.into_iter().filter(|&step| step >= first_step) {
            let path = self.completions_path(step);
            fs::remove_file(&path).map_err(RunError::write(&path))?;
        }
        Ok(())
    }

    fn completions_folder(&self) -> PathBuf {
        self.path().join(COMPLETIONS)
    }
}

const STEP: &str = "step-";
const ENDING: &str = ".parquet";

/// The step of a file, if its name is one that we write.
fn step_of(name: &str) -> Option<u64> {
    let step: u64 = name.strip_prefix(STEP)?.strip_suffix(ENDING)?.parse().ok()?;
    (name == format!("{STEP}{step}{ENDING}")).then_some(step)
}
