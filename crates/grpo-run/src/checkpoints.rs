//! `checkpoints/`: states from which a run can resume, with one folder per step.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::atomic::entries;
use crate::folder::CHECKPOINTS;
use crate::{
    EventProof, Existing, RunError, RunFolder, VerifiedFolder, read_json_lines, sha256_of_manifest,
    verify, write_folder_atomically, write_manifest,
};

/// A checkpoint that has not been verified yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Checkpoint {
    /// Number of completed training steps.
    pub step: u64,
    /// Path of the checkpoint folder.
    pub path: PathBuf,
}

impl Checkpoint {
    /// Verifies all files against the manifest.
    ///
    /// # Errors
    /// Returns an error if the manifest is missing or a file does not match it. See [`verify`].
    pub fn verify(&self) -> Result<VerifiedFolder, RunError> {
        verify(&self.path)
    }
}

/// The newest intact checkpoint, together with the errors of newer damaged ones.
#[derive(Debug)]
pub struct Newest {
    /// Step and folder of the checkpoint, or `None` if all checkpoints are damaged.
    pub whole: Option<(u64, VerifiedFolder)>,
    /// Errors of newer checkpoints, starting with the newest.
    pub damaged: Vec<RunError>,
}

impl Newest {
    /// Returns the last intact checkpoint in `checkpoints`.
    pub fn of(mut checkpoints: Vec<Checkpoint>) -> Self {
        let mut newest = Self { whole: None, damaged: Vec::new() };
        while let (None, Some(found)) = (&newest.whole, checkpoints.pop()) {
            match found.verify() {
                Ok(verified) => newest.whole = Some((found.step, verified)),
                Err(fault) => newest.damaged.push(fault),
            }
        }
        newest
    }
}

impl RunFolder {
    /// Writes the checkpoint of a step. `fill` writes the files into an empty folder. The manifest
    /// is added, and the folder is moved to `checkpoints/` once all files are on disk. An existing
    /// checkpoint of the same step is replaced.
    ///
    /// `announce` receives the SHA-256 of the manifest before the folder is renamed. This ensures
    /// that every checkpoint with a final name has been announced.
    ///
    /// # Errors
    /// Returns an error if `fill` or a write fails. An existing checkpoint of the same step is then
    /// unchanged.
    pub fn write_checkpoint<E: From<RunError>>(
        &self,
        step: u64,
        fill: impl FnOnce(&Path) -> Result<(), E>,
        announce: impl FnOnce(String) -> Result<(), E>,
    ) -> Result<Checkpoint, E> {
        let path = self.path().join(CHECKPOINTS).join(format!("{STEP}{step}"));
        write_folder_atomically(&path, Existing::Replace, |folder| {
            fill(folder)?;
            write_manifest(folder)?;
            announce(sha256_of_manifest(folder)?)
        })?;
        Ok(Checkpoint { step, path })
    }

    /// Returns all checkpoints in step order. Other folders, e.g. temporary folders of killed runs,
    /// are skipped.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, RunError> {
        let folders = entries(&self.path().join(CHECKPOINTS))?.into_iter();
        let mut checkpoints: Vec<Checkpoint> = folders
            .filter_map(|(name, path)| Some(Checkpoint { step: step_of(&name)?, path }))
            .collect();
        checkpoints.sort_unstable();
        Ok(checkpoints)
    }

    /// Returns names that start like a checkpoint's but are invalid.
    pub(crate) fn foreign_checkpoints(&self) -> Result<Vec<String>, RunError> {
        let names = entries(&self.path().join(CHECKPOINTS))?.into_iter().map(|(name, _)| name);
        Ok(names.filter(|name| name.starts_with(STEP) && step_of(name).is_none()).collect())
    }

    /// Finds the newest intact checkpoint. If `last` is given, later steps are ignored.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn newest_checkpoint(&self, last: Option<u64>) -> Result<Newest, RunError> {
        let mut checkpoints = self.checkpoints()?;
        checkpoints.retain(|checkpoint| last.is_none_or(|last| checkpoint.step <= last));
        Ok(Newest::of(checkpoints))
    }

    /// Deletes all checkpoints except the `last` newest and those of the steps in `besides`.
    ///
    /// # Errors
    /// Returns an error if a checkpoint cannot be deleted.
    pub fn keep_checkpoints(&self, last: usize, besides: &[u64]) -> Result<(), RunError> {
        let kept = self.kept_checkpoints(last, besides, None)?;
        let checkpoints = self.checkpoints()?;
        checkpoints
            .iter()
            .filter(|checkpoint| !kept.contains(&checkpoint.step))
            .try_for_each(remove)
    }

    /// Returns the steps whose checkpoints [`Self::keep_checkpoints`] would keep. `new` is the step
    /// of a checkpoint that is about to be written.
    ///
    /// # Errors
    /// Returns an error if the checkpoints folder cannot be read.
    pub fn kept_checkpoints(
        &self,
        last: usize,
        besides: &[u64],
        new: Option<u64>,
    ) -> Result<Vec<u64>, RunError> {
        let found = self.checkpoints()?;
        let steps: BTreeSet<u64> =
            found.iter().map(|checkpoint| checkpoint.step).chain(new).collect();
        let old = steps.len().saturating_sub(last);
        let is_kept = |(place, step): &(usize, u64)| *place >= old || besides.contains(step);
        Ok(steps.into_iter().enumerate().filter(is_kept).map(|(_, step)| step).collect())
    }

    /// Deletes all checkpoints after `step` when a run is rolled back.
    ///
    /// # Errors
    /// Returns an error if a checkpoint cannot be deleted.
    pub fn remove_checkpoints_after(&self, step: u64) -> Result<(), RunError> {
        let checkpoints = self.checkpoints()?;
        checkpoints.iter().filter(|checkpoint| checkpoint.step > step).try_for_each(remove)
    }

    /// Cleans up after a killed run. Complete checkpoints under temporary names are renamed if an
    /// event announced them. All other temporary folders are deleted, and their steps will be
    /// repeated.
    ///
    /// # Errors
    /// Returns an error if the folder, `run.json` or `events.jsonl` cannot be read, or if a
    /// checkpoint cannot be renamed or deleted.
    pub fn recover_checkpoints(&self) -> Result<(), RunError> {
        let leftovers = entries(&self.path().join(CHECKPOINTS))?
            .into_iter()
            .filter_map(|(name, path)| Some((step_of_leftover(&name)?, path)));
        let leftovers: Vec<(u64, PathBuf)> = leftovers.collect();
        if leftovers.is_empty() {
            return Ok(());
        }
        // Events written by older versions contain no hashes.
        let announced = match self.read_info()?.chained && self.events_path().exists() {
            true => Some(read_json_lines::<EventProof>(&self.events_path())?),
            false => None,
        };
        let is_announced = |manifest: &String| match &announced {
            Some(events) => events.iter().any(|event| event.manifest.as_ref() == Some(manifest)),
            None => true,
        };
        for (step, path) in leftovers {
            let place = self.path().join(CHECKPOINTS).join(format!("{STEP}{step}"));
            let is_whole = || {
                verify(&path).is_ok() && sha256_of_manifest(&path).is_ok_and(|it| is_announced(&it))
            };
            if !place.exists() && is_whole() {
                fs::rename(&path, &place).map_err(RunError::write(&place))?;
            } else {
                fs::remove_dir_all(&path).map_err(RunError::write(&path))?;
            }
        }
        Ok(())
    }
}

const STEP: &str = "step-";

/// Parses the name of a checkpoint folder.
fn step_of(name: &str) -> Option<u64> {
    let step: u64 = name.strip_prefix(STEP)?.parse().ok()?;
    (name == format!("{STEP}{step}")).then_some(step)
}

/// Parses the name of a temporary checkpoint folder.
fn step_of_leftover(name: &str) -> Option<u64> {
    let (name, number) = name.strip_prefix('.')?.rsplit_once(".tmp-")?;
    number.parse::<u32>().ok()?;
    step_of(name)
}

/// Deletes a checkpoint. The folder is renamed first, so that a crash never leaves an incomplete
/// checkpoint under a valid name.
fn remove(checkpoint: &Checkpoint) -> Result<(), RunError> {
    let Checkpoint { path, step } = checkpoint;
    let names = (0u32..).map(|number| path.with_file_name(format!(".{STEP}{step}.tmp-{number}")));
    let hidden = names.into_iter().find(|hidden| !hidden.exists()).expect("some number is free");
    fs::rename(path, &hidden).map_err(RunError::write(path))?;
    // Without a manifest, the folder cannot be mistaken for a complete checkpoint. The manifest of
    // a damaged checkpoint may already be missing.
    match fs::remove_file(hidden.join("manifest.json")) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(RunError::write(path)(error));
        }
        _ => {}
    }
    fs::remove_dir_all(&hidden).map_err(RunError::write(path))
}
