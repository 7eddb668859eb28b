//! What a report is made of, read from the folder of a run.

use std::path::{Path, PathBuf};

use grpo_data::statistics::percentile_of_sorted;
use grpo_run::{Comparison, CompletionRecord, Event, RunFolder, RunInfo, read_json_lines};
use serde_json::{Map, Value};

use crate::series::{LARGEST, step_of};
use crate::success::{diversity_is_kept, judge_supervised};
use crate::{Judged, ReportError, SuccessCriteria, Verdict, judge};

/// A training run, as far as it got.
#[derive(Clone, Debug)]
pub struct RunData {
    /// Its folder, as it was given.
    pub path: PathBuf,
    /// What it is called in the report.
    pub name: String,
    pub(crate) info: RunInfo,
    pub(crate) config: toml::Table,
    /// The lines of `metrics.jsonl`; at least one.
    pub(crate) metrics: Vec<Map<String, Value>>,
    pub(crate) events: Vec<Event>,
    pub(crate) rewards: Vec<RewardsOfStep>,
    /// The completions of the first recorded step, and of the last where that is another one.
    pub(crate) samples: Vec<(u64, Vec<CompletionRecord>)>,
    /// The lines of `samples.jsonl`: completions of the validation prompts of a supervised run.
    pub(crate) validation_samples: Vec<Map<String, Value>>,
    /// The evaluations before and after the training, if the run has finished with them.
    pub(crate) comparison: Option<Comparison>,
    /// What the run was judged by.
    pub criteria: SuccessCriteria,
    /// What an audit of its files found, as one more criterion; `None` where it has none.
    pub audit: Option<Judged>,
}

/// How the rewards of a recorded step lie.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RewardsOfStep {
    pub(crate) step: u64,
    /// At 5, 25, 50, 75 and 95 %.
    pub(crate) quantiles: [f64; 5],
}

/// Returns the command whose run has this configuration.
pub fn command_of(config: &toml::Table) -> &'static str {
    let sections = [
        ("pretrain", "pretrain"),
        ("judge", "train-judge"),
        ("masked_lm", "pretrain"),
        ("training", "train-engagement"),
    ];
    let found = sections.into_iter().find(|(key, _)| config.contains_key(*key));
    found.map_or("train", |(_, command)| command)
}

impl RunData {
    /// Reads all that a report shows. Nothing is written.
    ///
    /// # Errors
    /// The folder is not that of a run, has no finished step, or has a file that is damaged.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let folder = RunFolder::open(path)?;
        let info = folder.read_info()?;
        let config_path = folder.config_path();
        let config: toml::Table =
            folder.read_config()?.parse().map_err(|error: toml::de::Error| {
                ReportError::Config { path: config_path.clone(), reason: one_line(error.message()) }
            })?;
        let criteria = match config.get("success") {
            None => SuccessCriteria::default(),
            Some(section) => section.clone().try_into().map_err(|error: toml::de::Error| {
                ReportError::Success { path: config_path, reason: one_line(error.message()) }
            })?,
        };
        // A run that was killed before its first step has no such file.
        let metrics =
            if folder.metrics_path().exists() { folder.read_metrics()? } else { Vec::new() };
        if metrics.is_empty() {
            return Err(ReportError::NoStep { path: path.to_owned() });
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
            validation_samples: match folder.path().join("samples.jsonl") {
                path if path.exists() => read_json_lines(&path)?,
                _ => Vec::new(),
            },
            comparison: folder.read_comparison()?,
            criteria,
            audit: None,
        })
    }

    /// Reads several runs; where two have the same name, their paths are their names.
    ///
    /// # Errors
    /// As [`read`](Self::read), or a run is named twice.
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

    /// Whether the run reached its criteria.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = match self.is_supervised() {
            false => judge(&self.metrics, &self.events, &self.criteria),
            true => judge_supervised(&self.metrics, &self.events),
        };
        if !self.is_supervised() {
            verdict.criteria.push(diversity_is_kept(
                self.comparison.as_ref(),
                self.last_step(),
                self.criteria.max_diversity_drop,
            ));
        }
        verdict.criteria.extend(self.audit.clone());
        verdict
    }

    /// Whether it learned from given targets, not from rewards.
    pub(crate) fn is_supervised(&self) -> bool {
        command_of(&self.config) != "train"
    }

    /// The last step that is done.
    pub(crate) fn last_step(&self) -> u64 {
        self.metrics.last().map_or(0, |line| step_of(line, self.metrics.len() - 1))
    }

    /// The value of `section.key` of the configuration.
    pub(crate) fn setting(&self, section: &str, key: &str) -> Option<&toml::Value> {
        self.config.get(section)?.get(key)
    }
}

/// The last part of a path that has a name: of `.` that of the folder that it is.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}

/// None where no completion has a reward.
pub(crate) fn rewards_of(step: u64, completions: &[CompletionRecord]) -> Option<RewardsOfStep> {
    let rewards = completions.iter().filter_map(|record| record.reward);
    let mut rewards: Vec<f64> = rewards.filter(|reward| reward.abs() < LARGEST).collect();
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
