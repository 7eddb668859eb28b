//! Decides for each stage whether to reuse, resume or run it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, ensure};
use grpo_data::regular_file;
use grpo_run::{EventKind, RunFolder};
use serde_json::Value;

use crate::output::command_line;

use super::difference::first_difference;
use super::file::{Pipeline, Stage, set_options, sets};

/// Options of `grpo run` that affect the plan.
pub(super) struct Request {
    pub(super) force: bool,
    pub(super) plain: bool,
}

/// What to do with a stage. Contains the arguments passed to `grpo`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Reuse,
    Resume(Vec<String>),
    Run(Vec<String>),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reuse => f.write_str("finished, reused"),
            Self::Resume(words) | Self::Run(words) => write!(f, "grpo {}", command_line(words)),
        }
    }
}

/// Progress of a stage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Missing,
    /// Results are missing, incomplete or outdated.
    Unusable,
    /// Interrupted, can be resumed.
    Interrupted,
    Finished,
}

/// Plans all stages. Once a stage has to run, all later ones run as well because they depend on its
/// results.
pub(super) fn plans(pipeline: &Pipeline, request: &Request) -> anyhow::Result<Vec<Plan>> {
    let mut again = request.force;
    // Results of independent stages that will change.
    let mut changed: Vec<&Path> = Vec::new();
    let mut plans = Vec::new();
    for stage in &pipeline.stages {
        ensure!(
            stage.set.is_empty() || stage.has("set"),
            "--set applies to the last stage, `{}`, but `grpo {}` does not support it; remove it",
            stage.name,
            stage.command
        );
        // An existing run that was started with the same values needs no new one.
        let set: &[String] = if stage.ran_with_set() { &[] } else { &stage.set };
        let progress = stage.progress()?;
        let is_changed = |input: &PathBuf| changed.iter().any(|place| input.starts_with(place));
        let again_here = again || stage.inputs.iter().any(is_changed);
        if !again_here && progress == Progress::Finished {
            ensure!(
                set.is_empty(),
                "--set {2} applies to the last stage, `{0}`, which is finished ({1}) and would not run again; add --force to run every stage from scratch, or run this stage alone: `grpo {3} {4} --run FOLDER --set {2}`",
                stage.name,
                stage.place().display(),
                set.join(" --set "),
                stage.command,
                stage
                    .config
                    .as_ref()
                    .map_or(String::new(), |config| config.path.display().to_string())
            );
            plans.push(Plan::Reuse);
            continue;
        }
        let resumes = !again_here && progress == Progress::Interrupted && set.is_empty();
        let mut words = vec![stage.command.clone()];
        if resumes {
            words.push(format!("--resume={}", stage.place().display()));
        } else {
            words.extend(stage.config.iter().map(|config| config.path.display().to_string()));
            words.extend(stage.arguments.iter().cloned());
            words.extend(set_options(&stage.set));
            if progress != Progress::Missing && stage.has("force") {
                words.push("--force".to_owned());
            }
        }
        if request.plain && stage.has("plain") {
            words.push("--plain".to_owned());
        }
        plans.push(if resumes { Plan::Resume(words) } else { Plan::Run(words) });
        match stage.independent {
            true => changed.push(stage.place()),
            false => again = true,
        }
    }
    Ok(plans)
}

/// Returns the configuration that a run recorded.
fn recorded(run: &RunFolder) -> anyhow::Result<toml::Table> {
    toml::from_str(&run.read_config()?)
        .with_context(|| format!("{} is not TOML", run.config_path().display()))
}

impl Stage {
    /// Returns whether the existing run was started with the `--set` options of this stage.
    fn ran_with_set(&self) -> bool {
        let Some(config) = &self.config else { return false };
        let info = RunFolder::open(&config.run).and_then(|run| run.read_info());
        info.is_ok_and(|info| sets(&info.command) == config.set)
    }

    /// Describes the first difference between the stage's configuration and that of the reused run.
    pub(super) fn edited_since(&self, plan: &Plan) -> anyhow::Result<Option<String>> {
        let (Plan::Reuse | Plan::Resume(_), Some(config)) = (plan, &self.config) else {
            return Ok(None);
        };
        let recorded = recorded(&RunFolder::open(&config.run)?)?;
        let difference = first_difference(&config.keys, &recorded, "");
        Ok(difference.map(|difference| {
            format!(
                "{} no longer matches {}/config.toml: {difference}",
                config.path.display(),
                config.run.display()
            )
        }))
    }

    /// Checks that a successful command has produced the expected results.
    pub(super) fn check_result(&self) -> anyhow::Result<()> {
        if let Some(missing) = self.outputs.iter().find(|path| !path.exists()) {
            anyhow::bail!(
                "`grpo {}` succeeded but did not write {}; correct outputs in the pipeline file",
                self.command,
                missing.display()
            );
        }
        ensure!(
            self.has_passed(),
            "{} does not record a passed gate",
            self.gate.as_deref().unwrap_or(Path::new("")).display()
        );
        Ok(())
    }

    fn progress(&self) -> anyhow::Result<Progress> {
        let is_complete = self.outputs.iter().all(|path| path.exists()) && self.has_passed();
        let Some(config) = &self.config else {
            let has_begun =
                |path: &PathBuf| path.exists() || path.parent().is_some_and(has_entries);
            return Ok(match is_complete && !self.is_outdated()? {
                true => Progress::Finished,
                false if self.outputs.iter().any(has_begun) => Progress::Unusable,
                false => Progress::Missing,
            });
        };
        if !has_entries(&config.run) {
            return Ok(Progress::Missing);
        }
        let Ok(run) = RunFolder::open(&config.run) else { return Ok(Progress::Unusable) };
        if self.is_outdated()? {
            return Ok(Progress::Unusable);
        }
        Ok(match is_finished(&run)? {
            true if is_complete => Progress::Finished,
            false if self.has("resume") => Progress::Interrupted,
            _ => Progress::Unusable,
        })
    }

    fn has_passed(&self) -> bool {
        let Some(gate) = &self.gate else { return true };
        let report = regular_file::read(gate).ok();
        let report = report.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        report.and_then(|report| report.get("passed")?.as_bool()) == Some(true)
    }

    /// Returns whether any input is newer than an output.
    fn is_outdated(&self) -> anyhow::Result<bool> {
        let times = |paths: &[PathBuf]| -> anyhow::Result<Vec<SystemTime>> {
            let existing = paths.iter().filter(|path| path.exists());
            let time = |path: &PathBuf| {
                let modified = path.metadata().and_then(|metadata| metadata.modified());
                modified.with_context(|| {
                    format!("cannot read the modification time of {}", path.display())
                })
            };
            existing.map(time).collect()
        };
        let newest = times(&self.inputs)?.into_iter().max();
        let oldest = times(&self.outputs)?.into_iter().min();
        Ok(newest.zip(oldest).is_some_and(|(input, output)| input > output))
    }
}

/// Returns whether a run has completed all steps.
fn is_finished(run: &RunFolder) -> anyhow::Result<bool> {
    if let Some(last) = run.read_events()?.last() {
        return Ok(matches!(last.what, EventKind::Finished { .. }));
    }
    // Masked-language models, judges and engagement models have no events in runs created by older
    // versions.
    let steps = recorded(run)?;
    let steps = steps.values().filter_map(|section| section.get("steps")?.as_integer());
    let metrics = if run.metrics_path().exists() { run.read_metrics()? } else { Vec::new() };
    let done = metrics.last().and_then(|line| line.get("train_step")?.as_i64());
    Ok(done.is_some_and(|done| steps.into_iter().any(|steps| steps == done)))
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}
