//! `completions/step-N.parquet`: the completions of a step with their rewards and token statistics.

mod read;
mod record;
mod table;

pub use record::{CompletionRecord, RecordedOutcome};
pub(crate) use table::{Values, write_rows, writer};

use crate::atomic::write_file;
use crate::folder::COMPLETIONS;
use crate::{RunError, RunFolder};
use std::path::{Path, PathBuf};

impl RunFolder {
    /// Returns the path of the completions file for a step.
    pub fn completions_path(&self, step: u64) -> PathBuf {
        self.path().join(name_of(step))
    }

    /// Writes the completions of a step atomically and replaces an existing file. `parts` lists all
    /// reward components. Each of them is written as a column even if no completion has it, so that
    /// all files of a run have the same columns.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. An existing file is then unchanged.
    ///
    /// # Panics
    /// Panics if a record has a reward component that is not listed in `parts`.
    pub fn write_completions(
        &self,
        step: u64,
        records: &[CompletionRecord],
        parts: &[&str],
    ) -> Result<(), RunError> {
        self.write_completions_file(step, &Self::completions_file(records, parts))
    }

    /// Encodes completions as a Parquet file for [`Self::write_completions_file`].
    ///
    /// # Panics
    /// Panics if a record has a reward component that is not listed in `parts`.
    pub fn completions_file(records: &[CompletionRecord], parts: &[&str]) -> Vec<u8> {
        table::file(records, parts)
    }

    /// Writes an encoded completions file. See [`Self::write_completions`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. An existing file is then unchanged.
    pub fn write_completions_file(&self, step: u64, file: &[u8]) -> Result<(), RunError> {
        write_file(&self.folder, &name_of(step), file)
    }

    /// Returns all steps with recorded completions in ascending order. Other files are skipped.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn completion_steps(&self) -> Result<Vec<u64>, RunError> {
        let names = self.completion_names()?;
        let mut steps: Vec<u64> = names.iter().filter_map(|name| step_of(name)).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Returns names that start like a completions file's but are invalid.
    pub(crate) fn foreign_completions(&self) -> Result<Vec<String>, RunError> {
        let names = self.completion_names()?.into_iter();
        Ok(names.filter(|name| name.starts_with(STEP) && step_of(name).is_none()).collect())
    }

    /// Reads the completions of a step, ordered by group.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub fn completions_of(&self, step: u64) -> Result<Vec<CompletionRecord>, RunError> {
        let path = self.completions_path(step);
        let file = self.folder.open_file(name_of(step)).map_err(RunError::read(&path))?;
        read::records(&path, file, step)
    }

    /// Checks a file of recorded completions before another reader uses its columns. Other files, and
    /// those outside of a run, are not checked.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is damaged or belongs to another step.
    pub fn check_completions(path: &Path) -> Result<(), RunError> {
        let absolute = std::path::absolute(path).map_err(RunError::read(path))?;
        let step = absolute.file_name().and_then(|name| step_of(name.to_str()?));
        let folder = absolute.parent().filter(|folder| folder.ends_with(COMPLETIONS));
        let run = folder.and_then(Path::parent).and_then(|run| Self::open(run).ok());
        match (run, step) {
            (Some(run), Some(step)) => {
                let file = run.folder.open_file(name_of(step)).map_err(RunError::read(path))?;
                read::records(path, file, step).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Deletes the completions of `first_step` and all later steps when a run is resumed from an
    /// earlier step.
    ///
    /// # Errors
    /// Returns an error if a file cannot be deleted.
    pub fn remove_completions_from(&self, first_step: u64) -> Result<(), RunError> {
        for step in self.completion_steps()?.into_iter().filter(|&step| step >= first_step) {
            let removed = self.folder.remove_file(name_of(step));
            removed.map_err(RunError::write(&self.completions_path(step)))?;
        }
        Ok(())
    }

    fn completion_names(&self) -> Result<Vec<String>, RunError> {
        let entries = self.folder.entries(COMPLETIONS);
        let entries = entries.map_err(RunError::read(&self.file(COMPLETIONS)))?;
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }
}

const STEP: &str = "step-";
const ENDING: &str = ".parquet";

/// Returns the name of a completions file in its run.
pub(crate) fn name_of(step: u64) -> PathBuf {
    Path::new(COMPLETIONS).join(format!("{STEP}{step}{ENDING}"))
}

/// Parses the name of a completions file.
fn step_of(name: &str) -> Option<u64> {
    let step: u64 = name.strip_prefix(STEP)?.strip_suffix(ENDING)?.parse().ok()?;
    (name == format!("{STEP}{step}{ENDING}")).then_some(step)
}
