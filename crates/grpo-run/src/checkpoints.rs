//! `checkpoints/`: saved states from which a run can resume, one folder per step.

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

/// An unverified checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Checkpoint {
    /// Training steps done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
}

impl Checkpoint {
    /// Checks every file against the manifest.
    ///
    /// # Errors
    /// As [`verify`].
    pub fn verify(&self) -> Result<VerifiedFolder, RunError> {
        verify(&self.path)
    }
}

/// The newest intact checkpoint, and the errors of newer ones.
#[derive(Debug)]
pub struct Newest {
    /// Steps done and folder; `None` if no checkpoint is intact.
    pub whole: Option<(u64, VerifiedFolder)>,
    /// Errors of newer checkpoints, newest first.
    pub damaged: Vec<RunError>,
}

impl Newest {
    /// Finds the last intact one of `checkpoints`.
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
    /// Writes the checkpoint of a step: `fill` writes files into an empty folder, which gets a
    /// manifest and is moved to `checkpoints/` once everything is on disk. An existing checkpoint
    /// of the step is replaced.
    ///
    /// `announce` gets the SHA-256 of the manifest before the folder has its name, so that every checkpoint under its
    /// name was announced.
    ///
    /// # Errors
    /// Returns an error if `fill` or writing failed. An older checkpoint of the step is then
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

    /// Returns the checkpoints in step order. Folders with other names are skipped, such as those
    /// of killed runs.
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

    /// The names in the folder of checkpoints that begin as those of checkpoints, and are not ones that a run writes.
    pub(crate) fn foreign_checkpoints(&self) -> Result<Vec<String>, RunError> {
        let names = entries(&self.path().join(CHECKPOINTS))?.into_iter().map(|(name, _)| name);
        Ok(names.filter(|name| name.starts_with(STEP) && step_of(name).is_none()).collect())
    }

    /// Looks for a checkpoint to go on from, of the steps up to `last` alone where that is given.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn newest_checkpoint(&self, last: Option<u64>) -> Result<Newest, RunError> {
        let mut checkpoints = self.checkpoints()?;
        checkpoints.retain(|checkpoint| last.is_none_or(|last| checkpoint.step <= last));
        Ok(Newest::of(checkpoints))
    }

    /// Removes all checkpoints except the newest `last` ones and those of the steps in `besides`.
    ///
    /// # Errors
    /// Returns an error if one cannot be removed.
    pub fn keep_checkpoints(&self, last: usize, besides: &[u64]) -> Result<(), RunError> {
        let kept = self.kept_checkpoints(last, besides, None)?;
        let checkpoints = self.checkpoints()?;
        checkpoints
            .iter()
            .filter(|checkpoint| !kept.contains(&checkpoint.step))
            .try_for_each(remove)
    }

    /// The steps of the checkpoints that [`Self::keep_checkpoints`] leaves once the checkpoint of the step `new` is there,
    /// if one is about to be.
    ///
    /// # Errors
    /// The folder of checkpoints cannot be read.
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

    /// Removes the checkpoints after a step, for a roll-back.
    ///
    /// # Errors
    /// Returns an error if one cannot be removed.
    pub fn remove_checkpoints_after(&self, step: u64) -> Result<(), RunError> {
        let checkpoints = self.checkpoints()?;
        checkpoints.iter().filter(|checkpoint| checkpoint.step > step).try_for_each(remove)
    }

    /// Removes temporary folders of a killed run. A complete checkpoint that was not renamed yet,
    /// or that was moved aside, is renamed if its event was written; without the event, its step is
    /// repeated.
    ///
    /// # Errors
    /// Returns an error if the folder, `run.json` or `events.jsonl` cannot be read, or if a
    /// checkpoint cannot be renamed or removed.
    pub fn recover_checkpoints(&self) -> Result<(), RunError> {
        let leftovers = entries(&self.path().join(CHECKPOINTS))?
            .into_iter()
            .filter_map(|(name, path)| Some((step_of_leftover(&name)?, path)));
        let leftovers: Vec<(u64, PathBuf)> = leftovers.collect();
        if leftovers.is_empty() {
            return Ok(());
        }
        // The events of older versions have no hashes.
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

/// Returns the step of a checkpoint's folder, if the name is valid.
fn step_of(name: &str) -> Option<u64> {
    let step: u64 = name.strip_prefix(STEP)?.parse().ok()?;
    (name == format!("{STEP}{step}")).then_some(step)
}

/// Returns the step of a temporary folder.
fn step_of_leftover(name: &str) -> Option<u64> {
    let (name, number) = name.strip_prefix('.')?.rsplit_once(".tmp-")?;
    number.parse::<u32>().ok()?;
    step_of(name)
}

/// Renames the folder first, so that a crash leaves no incomplete checkpoint under its name.
fn remove(checkpoint: &Checkpoint) -> Result<(), RunError> {
    let Checkpoint { path, step } = checkpoint;
    let names = (0u32..).map(|number| path.with_file_name(format!(".{STEP}{step}.tmp-{number}")));
    let hidden = names.into_iter().find(|hidden| !hidden.exists()).expect("some number is free");
    fs::rename(path, &hidden).map_err(RunError::write(path))?;
    // Without a manifest it cannot be mistaken for a complete checkpoint. A damaged one may have
    // none.
    match fs::remove_file(hidden.join("manifest.json")) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(RunError::write(path)(error));
        }
        _ => {}
    }
    fs::remove_dir_all(&hidden).map_err(RunError::write(path))
}
