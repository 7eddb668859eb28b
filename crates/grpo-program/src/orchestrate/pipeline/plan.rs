//! Decides for each stage whether to reuse, resume or run it.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use grpo_report::RUN_REWARD;
use grpo_run::RunFolder;
use grpo_task::output::command_line;
use grpo_task::phase::Phase;
use grpo_task::run_files::config_of_run;

use super::difference::first_difference;
use super::file::{Pipeline, Stage, set_options};
use super::own_reward::has_same_reward;
use super::process::Program;
use super::progress::{Files, Progress};

/// Options of `grpo run` that affect the plan.
pub(super) struct Request<'a> {
    pub(super) force: bool,
    pub(super) plain: bool,
    /// Runs commands that compare results with those that a stage would write.
    pub(super) program: &'a Program,
}

/// What to do with a stage.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Reuse,
    /// Contains the arguments passed to `grpo`.
    Resume(Vec<String>),
    Run {
        /// The arguments passed to `grpo`.
        words: Vec<String>,
        /// Why existing results are not used, if there are any.
        instead: Option<String>,
        /// Whether an input has changed since these results.
        is_outdated: bool,
        /// Files and folders in its way, which are renamed first.
        aside: Vec<PathBuf>,
    },
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reuse => f.write_str("finished, reused"),
            Self::Resume(words) => write!(f, "grpo {}", command_line(words)),
            Self::Run { words, instead, aside, .. } => {
                write!(f, "grpo {}", command_line(words))?;
                instead.iter().try_for_each(|reason| write!(f, "  # again: {reason}"))?;
                aside.iter().try_for_each(|path| write!(f, "; renames {}", path.display()))
            }
        }
    }
}

/// Plans all stages. Once a stage has to run, all later ones run as well because they depend on its
/// results.
pub(super) fn plans(pipeline: &Pipeline, request: &Request<'_>) -> anyhow::Result<Vec<Plan>> {
    let _phase = Phase::begin("comparing the inputs of the stages");
    let mut files = Files::default();
    // Why all following stages have to run.
    let mut again = request.force.then(|| "--force".to_owned());
    // Independent stages whose results will change.
    let mut changed: Vec<&Stage> = Vec::new();
    let mut plans = Vec::new();
    for stage in &pipeline.stages {
        ensure!(
            stage.set.is_empty() || stage.has("set"),
            "--set applies to the last stage, `{}`, but `grpo {}` does not support it; remove it",
            stage.section.name,
            stage.section.command
        );
        let changes =
            |place: &Path| stage.section.inputs.iter().any(|input| input.starts_with(place));
        let before = changed.iter().find(|before| changes(before.place()));
        let again_here = again.clone().or(before.map(|stage| reason_of_earlier(stage)));
        let progress = match again_here {
            Some(_) if !stage.has_begun() => Progress::Missing,
            Some(reason) => Progress::Unusable(reason),
            None => stage.progress(&mut files, request.program)?,
        };
        let plan = stage.plan(progress, request, pipeline)?;
        if plan != Plan::Reuse {
            match stage.section.independent {
                true => changed.push(stage),
                false => again = again.or_else(|| Some(reason_of_earlier(stage))),
            }
        }
        plans.push(plan);
    }
    Ok(plans)
}

impl Pipeline {
    /// Returns the places in the way of `writer` if all of them can be renamed: files, and folders that
    /// contain only files. Inputs cannot be renamed, except for those that `writer` writes for another
    /// command.
    fn renamable(&self, writer: &Stage, places: Vec<PathBuf>) -> Vec<PathBuf> {
        let others = self.stages.iter().filter(|stage| stage.section.name != writer.section.name);
        let summary = self.summary.iter().flat_map(|command| &command.read);
        let by_others = others.flat_map(Stage::read).chain(summary);
        let by_others = by_others.filter(|path| !writer.written.contains(path));
        let read = writer.read().chain(by_others).filter_map(|path| path.canonicalize().ok());
        let read: Vec<PathBuf> = read.collect();
        let is_read = |place: &Path| read.iter().any(|path| path.starts_with(place));
        let is_plain = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten();
            entries.flatten().all(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()))
        };
        let can = |place: &PathBuf| {
            place.file_name().is_some()
                && place.canonicalize().is_ok_and(|place| !is_read(&place))
                && (!place.is_dir() || (!place.is_symlink() && is_plain(place)))
        };
        if places.iter().all(can) { places } else { Vec::new() }
    }
}

fn reason_of_earlier(stage: &Stage) -> String {
    format!("stage `{}` runs before it", stage.section.name)
}

impl Stage {
    fn plan(
        &self,
        progress: Progress,
        request: &Request<'_>,
        pipeline: &Pipeline,
    ) -> anyhow::Result<Plan> {
        // An existing run that was started with the same values needs no new one.
        let is_same = self.set.is_empty() || self.ran_with_set();
        let mut words = vec![self.section.command.clone()];
        let is_outdated = matches!(progress, Progress::Outdated(_));
        let instead = match progress {
            Progress::Finished => {
                ensure!(is_same, "{}", self.refusal_of_set());
                return Ok(Plan::Reuse);
            }
            Progress::Interrupted if is_same => {
                words.push(format!("--resume={}", self.place().display()));
                words.extend(self.run_reward()?);
                words.extend(self.plain(request));
                return Ok(Plan::Resume(words));
            }
            Progress::Interrupted => Some("the interrupted run had other values of --set".into()),
            Progress::Outdated(reason) | Progress::Unusable(reason) => Some(reason),
            Progress::Missing => None,
        };
        words.extend(self.config.iter().map(|config| config.path.display().to_string()));
        words.extend(self.section.arguments.iter().cloned());
        words.extend(set_options(&self.set));
        let writer = format!("stage `{}`", self.section.name);
        let foreign = match &self.config {
            Some(_) => Vec::new(),
            None => {
                self.written.refuse_unnamed(&writer)?;
                pipeline.renamable(self, self.written.foreign())
            }
        };
        let replaces = match &self.config {
            Some(_) => instead.is_some() && self.has("force"),
            None if request.force && !foreign.is_empty() => true,
            None => {
                let renames = !request.force && !foreign.is_empty();
                self.written.replaces(&writer, renames)?
            }
        };
        let aside = if request.force { foreign } else { Vec::new() };
        if replaces {
            words.push("--force".to_owned());
        }
        words.extend(self.plain(request));
        Ok(Plan::Run { words, instead, is_outdated, aside })
    }

    fn plain(&self, request: &Request<'_>) -> Option<String> {
        (request.plain && self.has("plain")).then(|| "--plain".to_owned())
    }

    /// Returns the option to run the reward of an interrupted run. The pipeline only agrees to what the
    /// stage's own configuration names.
    fn run_reward(&self) -> anyhow::Result<Option<String>> {
        let Some(config) = self.config.as_ref().filter(|_| self.has("run_reward")) else {
            return Ok(None);
        };
        let recorded = config_of_run(&RunFolder::open(&config.run)?, &self.section.command)?.value;
        let is_same = has_same_reward(&config.keys, &recorded);
        Ok(is_same.then(|| RUN_REWARD.to_owned()))
    }

    fn refusal_of_set(&self) -> String {
        format!(
            "--set {2} applies to the last stage, `{0}`, which is finished ({1}) and would not run again; add --force to run every stage from scratch, or run this stage alone: `grpo {3} {4} --run FOLDER --set {2}`",
            self.section.name,
            self.place().display(),
            self.set.join(" --set "),
            self.section.command,
            self.config.as_ref().map_or(String::new(), |config| config.path.display().to_string())
        )
    }

    /// Describes the first difference between the stage's configuration and that of the reused run.
    pub(super) fn edited_since(&self, plan: &Plan) -> anyhow::Result<Option<String>> {
        let (Plan::Reuse | Plan::Resume(_), Some(config)) = (plan, &self.config) else {
            return Ok(None);
        };
        let recorded = config_of_run(&RunFolder::open(&config.run)?, &self.section.command)?.value;
        let difference = first_difference(&config.keys, &recorded, "");
        Ok(difference.map(|difference| {
            format!(
                "{} no longer matches {}/config.toml: {difference}",
                config.path.display(),
                config.run.display()
            )
        }))
    }
}
