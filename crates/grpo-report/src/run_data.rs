//! Reads the data of a report from a run folder.

use std::path::{Path, PathBuf};

use grpo_data::statistics::percentile_of_sorted;
use grpo_data::{in_plain_words, shell_word};
use grpo_metrics::MetricTable;
use grpo_run::{
    BestTable, Comparison, CompletionRecord, Event, EventKind, RunFolder, RunInfo, last_state,
};
use serde_json::{Map, Value};

use crate::drawing::Drawing;
use crate::series::is_drawable;
use crate::success::{judge_supervised, last_step};
use crate::transform_curve::TransformCurve;
use crate::{Judged, ReportError, SuccessCriteria, Verdict, judge};

/// The data of a training run, which may still be in progress.
#[derive(Clone, Debug)]
pub struct RunData {
    /// Run folder as given by the user.
    pub path: PathBuf,
    /// Name of the run in the report.
    pub name: String,
    pub(crate) info: RunInfo,
    pub(crate) config: toml::Table,
    /// Lines of `metrics.jsonl`, at least one.
    pub(crate) metrics: Vec<Map<String, Value>>,
    pub(crate) events: Vec<Event>,
    pub(crate) rewards: Vec<RewardsOfStep>,
    /// Completions of the first recorded step and, if different, of the last one.
    pub(crate) samples: Vec<(u64, Vec<CompletionRecord>)>,
    /// Lines of `samples.jsonl`, which contain completions of validation prompts in supervised
    /// runs.
    pub(crate) validation_samples: Vec<Map<String, Value>>,
    /// Evaluations before and after training. `None` if the run has not finished or has no
    /// evaluations.
    pub(crate) comparison: Option<Comparison>,
    /// The best completions of all steps, if the run collects them.
    pub(crate) best: Option<BestTable>,
    /// Success criteria of the run.
    pub criteria: SuccessCriteria,
    /// The functions that map properties to scores, if the reward has any.
    pub transforms: Vec<TransformCurve>,
    /// Draws the samples of the run, if they can be drawn.
    pub drawing: Option<Drawing>,
    /// What the metrics of the run are.
    pub(crate) table: MetricTable,
    /// Results of auditing the run's files, shown as additional criteria. Empty if the files were not
    /// audited or have no violations.
    pub audit: Vec<Judged>,
}

/// Distribution of the rewards in a recorded step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RewardsOfStep {
    pub(crate) step: u64,
    /// 5th, 25th, 50th, 75th and 95th percentile.
    pub(crate) quantiles: [f64; 5],
}

/// Returns the name of the command that uses this configuration, which is `train` without a key that
/// tells it.
pub fn command_of(config: &toml::Table) -> &'static str {
    known_command_of(config).unwrap_or("train")
}

/// Returns the name of the command that uses this configuration, or `None` if no key tells it.
pub fn known_command_of(config: &toml::Table) -> Option<&'static str> {
    let sections = [
        ("stages", "run"),
        ("pretrain", "pretrain"),
        ("judge", "train-judge"),
        ("masked_lm", "pretrain"),
        ("training", "train-engagement"),
        ("train", "train"),
        ("reward", "train"),
        ("loss", "train"),
        ("rollout", "train"),
        ("sampling", "train"),
    ];
    let found = sections.into_iter().find(|(key, _)| config.contains_key(*key));
    found.map(|(_, command)| command)
}

/// Types of rewards that start programs or send completions to servers. A run with one of them resumes
/// only if the user agrees.
const EXTERNAL_REWARDS: [&str; 3] = ["command", "http", "python"];

/// The option with which the user agrees to run an external reward.
pub const RUN_REWARD: &str = "--run-reward";

/// Returns the command that resumes a run with this recorded configuration, without the name of the
/// program.
pub fn resume_command(config: &toml::Table, run: &Path) -> String {
    resume_line(command_of(config), run, config.get("reward").is_some_and(is_external))
}

/// Returns the line that resumes a run of `command`, without the name of the program. It agrees to run the
/// reward if that `is_external`.
pub fn resume_line(command: &str, run: &Path, is_external: bool) -> String {
    let run = shell_word(&run.display().to_string());
    let option = if is_external { format!(" {RUN_REWARD}") } else { String::new() };
    format!("{command} --resume {run}{option}")
}

/// Returns whether a reward, or one of its components, is external.
fn is_external(reward: &toml::Value) -> bool {
    match reward {
        toml::Value::Table(table) => {
            let name = table.get("type").and_then(toml::Value::as_str);
            name.is_some_and(|name| EXTERNAL_REWARDS.contains(&name))
                || table.iter().any(|(_, value)| is_external(value))
        }
        toml::Value::Array(values) => values.iter().any(is_external),
        _ => false,
    }
}

/// Returns the error of a run without steps. If it failed, the error has the reason.
fn no_step(path: &Path, config: &toml::Table, events: Vec<Event>) -> ReportError {
    let resume = format!("grpo {}", resume_command(config, path));
    let path = path.to_owned();
    match last_state(events) {
        Some(EventKind::Stopped { reason }) => ReportError::Stopped { path, reason, resume },
        _ => ReportError::NoStep { path, resume },
    }
}

impl RunData {
    /// Reads all data that a report needs. Nothing is written.
    ///
    /// # Errors
    /// Returns an error if the folder is not a run, has no completed step, or contains a damaged
    /// file.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let folder = RunFolder::open(path)?;
        let info = folder.read_info()?;
        let config_path = folder.config_path();
        let config: toml::Table =
            folder.read_config()?.parse().map_err(|error: toml::de::Error| {
                ReportError::Config {
                    path: config_path.clone(),
                    reason: one_line(&in_plain_words(error.message(), "table")),
                }
            })?;
        let criteria = match config.get("success") {
            None => SuccessCriteria::default(),
            Some(section) => section.clone().try_into().map_err(|error: toml::de::Error| {
                ReportError::Success {
                    path: config_path,
                    reason: one_line(&in_plain_words(error.message(), "table")),
                }
            })?,
        };
        // The file does not exist if the run was killed before its first step.
        let metrics: Vec<Map<String, Value>> = folder.lines_of("metrics.jsonl")?;
        if metrics.is_empty() {
            folder.check_metrics(&folder.read_events()?)?;
            return Err(no_step(path, &config, folder.read_events()?));
        }
        let mut rewards = Vec::new();
        let mut samples = Vec::new();
        let steps = folder.completion_steps()?;
        for (i, &step) in steps.iter().enumerate() {
            let completions = folder.completions_of(step)?;
            rewards.extend(rewards_of(step, &completions));
            if i == 0 || i + 1 == steps.len() {
                samples.push((step, completions));
            }
        }
        Ok(Self {
            name: name_of(path),
            path: path.to_owned(),
            info,
            config,
            metrics,
            events: folder.read_events()?,
            rewards,
            samples,
            validation_samples: folder.lines_of("samples.jsonl")?,
            comparison: folder.read_comparison()?,
            best: folder.read_best()?,
            criteria,
            transforms: Vec::new(),
            drawing: None,
            table: MetricTable::default(),
            audit: Vec::new(),
        })
    }

    /// Groups and explains the metrics by a table of all that the program knows. Metrics without an entry have
    /// charts of their own.
    pub fn describe(&mut self, table: &MetricTable) {
        self.table = table.of_run(|section| self.config.contains_key(section));
    }

    /// Reads several runs. Runs with the same name are displayed with their paths instead.
    ///
    /// # Errors
    /// Returns an error if [`read`](Self::read) fails or if a run is listed twice.
    pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Self>, ReportError> {
        let mut places = Vec::new();
        for path in paths {
            let place = path.canonicalize().unwrap_or_else(|_| path.clone());
            if places.contains(&place) {
                return Err(ReportError::Twice { path: path.clone() });
            }
            places.push(place);
        }
        let mut runs = paths.iter().map(|path| Self::read(path)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
        for run in &mut runs {
            if names.iter().filter(|name| **name == run.name).count() > 1 {
                run.name = run.path.display().to_string();
            }
        }
        Ok(runs)
    }

    /// Compares the run with its success criteria.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = match self.is_supervised() {
            false => judge(&self.metrics, &self.events, self.comparison.as_ref(), &self.criteria),
            true => judge_supervised(&self.metrics, &self.events),
        };
        verdict.criteria.extend(self.audit.iter().cloned());
        verdict
    }

    /// Returns whether the run was trained on given targets instead of rewards.
    pub(crate) fn is_supervised(&self) -> bool {
        command_of(&self.config) != "train"
    }

    /// Returns the last completed step.
    pub(crate) fn last_step(&self) -> u64 {
        last_step(&self.metrics)
    }

    /// Returns the configuration value `section.key`.
    pub(crate) fn setting(&self, section: &str, key: &str) -> Option<&toml::Value> {
        self.config.get(section)?.get(key)
    }
}

/// Returns the name of the folder at `path`. Paths such as `.` are resolved first.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}

/// Returns `None` if no completion has a reward.
pub(crate) fn rewards_of(step: u64, completions: &[CompletionRecord]) -> Option<RewardsOfStep> {
    let rewards = completions.iter().filter_map(|record| record.reward);
    let mut rewards: Vec<f64> = rewards.filter(|reward| is_drawable(*reward)).collect();
    rewards.sort_by(f64::total_cmp);
    let quantiles = [0.05, 0.25, 0.5, 0.75, 0.95];
    (!rewards.is_empty()).then(|| RewardsOfStep {
        step,
        quantiles: quantiles.map(|q| percentile_of_sorted(&rewards, q)),
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resume_command_agrees_to_an_external_reward() {
        for (config, expected) in [
            ("[reward]\ntype = \"molecule\"", "train --resume 'my run'"),
            ("[reward]\ntype = \"python\"", "train --resume 'my run' --run-reward"),
            (
                "[reward]\ntype = \"molecule\"\n[[reward.components]]\nexternal = { type = \"http\" }",
                "train --resume 'my run' --run-reward",
            ),
            ("[pretrain]\nsteps = 1", "pretrain --resume 'my run'"),
        ] {
            let config: toml::Table = config.parse().unwrap();
            assert_eq!(resume_command(&config, Path::new("my run")), expected);
        }
    }
}
