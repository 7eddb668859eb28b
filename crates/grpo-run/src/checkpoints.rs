//! `checkpoints/`: states from which a run can resume, with one folder per step.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use grpo_data::{FileKind, OwnFolder};

use crate::atomic::write_folder;
use crate::folder::{CHECKPOINTS, EVENTS};
use crate::{
    EventProof, Existing, RunError, RunFolder, VerifiedFolder, sha256_of_manifest, verify,
    write_manifest,
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
        let name = name_of(step);
        self.folder
            .create_folders(CHECKPOINTS)
            .map_err(RunError::write(&self.file(CHECKPOINTS)))?;
        write_folder(&self.folder, &name, Existing::Replace, |folder| {
            fill(folder)?;
            write_manifest(folder)?;
            announce(sha256_of_manifest(folder)?)
        })?;
        Ok(Checkpoint { step, path: self.path().join(name) })
    }

    /// Returns all checkpoints in step order. Other folders, e.g. temporary folders of killed runs,
    /// are skipped.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read, or if a checkpoint is a link or a file.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, RunError> {
        let steps = self.checkpoint_names()?.into_iter().filter_map(|name| step_of(&name));
        let checkpoint = |step| {
            let (name, path) = (name_of(step), self.path().join(name_of(step)));
            self.folder.is_kind(name, FileKind::Folder).map_err(RunError::read(&path))?;
            Ok(Checkpoint { step, path })
        };
        let mut checkpoints = steps.map(checkpoint).collect::<Result<Vec<Checkpoint>, _>>()?;
        checkpoints.sort_unstable();
        Ok(checkpoints)
    }

    fn checkpoint_names(&self) -> Result<Vec<String>, RunError> {
        let entries = self.folder.entries(CHECKPOINTS);
        let entries = entries.map_err(RunError::read(&self.file(CHECKPOINTS)))?;
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns names that start like a checkpoint's but are invalid.
    pub(crate) fn foreign_checkpoints(&self) -> Result<Vec<String>, RunError> {
        let names = self.checkpoint_names()?.into_iter();
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
            .try_for_each(|checkpoint| remove(&self.folder, checkpoint.step))
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
        checkpoints
            .iter()
            .filter(|checkpoint| checkpoint.step > step)
            .try_for_each(|checkpoint| remove(&self.folder, checkpoint.step))
    }

    /// Cleans up after a killed run. Complete checkpoints under temporary names are renamed if an
    /// event announced them. All other temporary folders are deleted, and their steps will be
    /// repeated.
    ///
    /// # Errors
    /// Returns an error if the folder, `run.json` or `events.jsonl` cannot be read, or if a
    /// checkpoint cannot be renamed or deleted.
    pub fn recover_checkpoints(&self) -> Result<(), RunError> {
        let leftovers = self
            .checkpoint_names()?
            .into_iter()
            .filter_map(|name| Some((step_of_leftover(&name)?, Path::new(CHECKPOINTS).join(name))));
        let leftovers: Vec<(u64, PathBuf)> = leftovers.collect();
        if leftovers.is_empty() {
            return Ok(());
        }
        // Events written by older versions contain no hashes.
        let announced = match self.read_info()?.chained && self.has(EVENTS)? {
            true => Some(self.lines_of::<EventProof>(EVENTS)?),
            false => None,
        };
        let is_announced = |manifest: &String| match &announced {
            Some(events) => events.iter().any(|event| event.manifest.as_ref() == Some(manifest)),
            None => true,
        };
        for (step, leftover) in leftovers {
            let (path, name) = (self.path().join(&leftover), name_of(step));
            let kind = |name: &Path| self.folder.kind(name).map_err(RunError::read(&path));
            let is_whole = || {
                verify(&path).is_ok() && sha256_of_manifest(&path).is_ok_and(|it| is_announced(&it))
            };
            let is_folder = kind(&leftover)? == Some(FileKind::Folder);
            let recovered = if is_folder && kind(&name)?.is_none() && is_whole() {
                self.folder.rename(&leftover, &name)
            } else {
                self.folder.remove_all(&leftover)
            };
            recovered.map_err(RunError::write(&path))?;
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

/// Returns the name of a checkpoint in its run.
fn name_of(step: u64) -> PathBuf {
    Path::new(CHECKPOINTS).join(format!("{STEP}{step}"))
}

/// Deletes a checkpoint. The folder is renamed first, so that a crash never leaves an incomplete
/// checkpoint under a valid name.
fn remove(run: &OwnFolder, step: u64) -> Result<(), RunError> {
    let name = name_of(step);
    let path = run.path_of(&name);
    let names = (0u32..).map(|number| name.with_file_name(format!(".{STEP}{step}.tmp-{number}")));
    let hidden = names.into_iter().find(|hidden| !matches!(run.kind(hidden), Ok(Some(_))));
    let hidden = hidden.expect("some number is free");
    run.rename(&name, &hidden).map_err(RunError::write(&path))?;
    // Without a manifest, the folder cannot be mistaken for a complete checkpoint. The manifest of
    // a damaged checkpoint may already be missing.
    match run.remove_file(hidden.join("manifest.json")) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(RunError::write(&path)(error));
        }
        _ => {}
    }
    run.remove_all(&hidden).map_err(RunError::write(&path))
}
