//! Determines how far a stage has come, from its run folder or its output files.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, ensure};
use grpo_data::regular_file;
use grpo_run::{DataFile, Event, EventKind, RunFolder, RunInfo, was_stopped_by_guard};
use grpo_task::run_files::config_of_run;
use serde_json::Value;

use super::file::{Stage, sets};
use super::process::Program;

/// Progress of a stage.
pub(super) enum Progress {
    Missing,
    /// An input has changed, for example `a.smi has changed`.
    Outdated(String),
    /// Results are missing or incomplete, for this reason.
    Unusable(String),
    /// Interrupted, can be resumed.
    Interrupted,
    Finished,
}

/// Sizes and hashes of files, which several stages may read.
#[derive(Default)]
pub(super) struct Files(HashMap<PathBuf, (u64, String)>);

impl Files {
    /// Returns whether the content of a file differs from the recorded one. A file that no longer
    /// exists has not changed.
    fn has_changed(&mut self, recorded: &DataFile) -> anyhow::Result<bool> {
        let DataFile { role, path, bytes, sha256 } = recorded;
        if !path.exists() {
            return Ok(false);
        }
        if !self.0.contains_key(path) {
            let DataFile { bytes, sha256, .. } = DataFile::measure(role, path)?;
            self.0.insert(path.clone(), (bytes, sha256));
        }
        let (bytes_now, sha256_now) = &self.0[path];
        Ok((bytes_now, sha256_now) != (bytes, sha256))
    }
}

impl Stage {
    pub(super) fn progress(
        &self,
        files: &mut Files,
        program: &Program,
    ) -> anyhow::Result<Progress> {
        if !self.has_begun() {
            return Ok(Progress::Missing);
        }
        let Some(config) = &self.config else {
            if let Some(reason) = self.incomplete() {
                return Ok(Progress::Unusable(reason));
            }
            if self.would_write_the_same(program)? {
                return Ok(Progress::Finished);
            }
            let outdated = self.changed_arguments().map(Ok);
            let outdated = outdated.or_else(|| self.changed_input(&[], files).transpose());
            return Ok(outdated.transpose()?.map_or(Progress::Finished, Progress::Outdated));
        };
        let run = RunFolder::open(&config.run).and_then(|run| Ok((run.read_info()?, run)));
        let Ok((info, run)) = run else {
            let reason = format!("{} is not a complete run folder", config.run.display());
            return Ok(Progress::Unusable(reason));
        };
        config_of_run(&run, &self.section.command).with_context(|| {
            format!(
                "stage `{}` cannot use an existing folder; change `run` in {}, or add --force to rename the folder and run every stage from scratch",
                self.section.name,
                config.path.display()
            )
        })?;
        if let Some(reason) = self.changed_input(&info.data, files)? {
            return Ok(Progress::Outdated(reason));
        }
        let events = run.read_events()?;
        Ok(match (is_finished(&events), self.incomplete()) {
            (true, None) => Progress::Finished,
            (true, Some(reason)) => Progress::Unusable(reason),
            // It would be stopped again.
            _ if was_stopped_by_guard(&events) => {
                Progress::Unusable("a guard stopped it".to_owned())
            }
            (false, _) if self.has("resume") => Progress::Interrupted,
            (false, _) => Progress::Unusable("it did not finish".to_owned()),
        })
    }

    /// Returns whether there are results, complete or not.
    pub(super) fn has_begun(&self) -> bool {
        match &self.config {
            Some(config) => has_entries(&config.run),
            None => self.section.outputs.iter().any(|path| path.exists()),
        }
    }

    /// Returns whether the existing run was started with the `--set` options of this stage.
    pub(super) fn ran_with_set(&self) -> bool {
        let Some(config) = &self.config else { return false };
        let info = RunFolder::open(&config.run).and_then(|run| run.read_info());
        info.is_ok_and(|RunInfo { command, .. }| sets(&command) == config.set)
    }

    /// Checks that a successful command has produced the expected results.
    pub(super) fn check_result(&self) -> anyhow::Result<()> {
        if let Some(missing) = self.missing_output() {
            anyhow::bail!(
                "`grpo {}` succeeded but did not write {}; correct outputs in the pipeline file",
                self.section.command,
                missing.display()
            );
        }
        let failed = self.failed_gate();
        ensure!(failed.is_none(), "{}", failed.unwrap_or_default());
        Ok(())
    }

    /// Describes what the results lack.
    fn incomplete(&self) -> Option<String> {
        let missing = |path: &PathBuf| format!("{} is missing", path.display());
        self.missing_output().map(missing).or_else(|| self.failed_gate())
    }

    fn missing_output(&self) -> Option<&PathBuf> {
        self.section.outputs.iter().find(|path| !path.exists())
    }

    fn failed_gate(&self) -> Option<String> {
        let gate = self.section.gate.as_ref()?;
        let report = regular_file::read(gate).ok();
        let report = report.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let has_passed = report.and_then(|report| report.get("passed")?.as_bool()) == Some(true);
        (!has_passed).then(|| format!("{} does not record a passed gate", gate.display()))
    }

    /// Describes the first input that has changed since the stage ran. Files that a run recorded
    /// are compared by their content, other inputs by their time.
    fn changed_input(
        &self,
        recorded: &[DataFile],
        files: &mut Files,
    ) -> anyhow::Result<Option<String>> {
        for file in recorded {
            if files.has_changed(file)? {
                return Ok(Some(format!("{} has changed", file.path.display())));
            }
        }
        let recorded: BTreeSet<PathBuf> =
            recorded.iter().map(|file| absolute(&file.path)).collect();
        let outputs = self.section.outputs.iter().filter(|path| path.exists());
        let times = outputs.map(|path| Ok((modified(path)?, path)));
        let times = times.collect::<anyhow::Result<Vec<_>>>()?;
        let Some((oldest, output)) = times.into_iter().min() else { return Ok(None) };
        let unrecorded = |path: &&PathBuf| path.exists() && !recorded.contains(&absolute(path));
        for input in self.section.inputs.iter().filter(unrecorded) {
            if modified(input)? > oldest {
                let (input, output) = (input.display(), output.display());
                return Ok(Some(format!("{input} is newer than {output}")));
            }
        }
        Ok(None)
    }
}

/// Returns an absolute path, so that different spellings are equal.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn modified(path: &Path) -> anyhow::Result<SystemTime> {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    modified.with_context(|| format!("cannot read the modification time of {}", path.display()))
}

/// Returns whether a run has completed all steps.
fn is_finished(events: &[Event]) -> bool {
    events.last().is_some_and(|last| matches!(last.what, EventKind::Finished { .. }))
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}
