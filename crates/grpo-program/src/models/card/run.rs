//! What the files of a run say about the model that it trained.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_hub::RepoName;
use grpo_report::{Outcome, Verdict, command_of, judge, judge_supervised};
use grpo_run::{Comparison, DataFile, Event, EventKind, Measure, RunFolder, RunInfo, step_of_line};
use grpo_task::output::{four_decimals, say_aside};
use serde_json::{Map, Value};
use toml::Table;

use super::rows::Rows;
use crate::markdown::markdown_text;

/// The run that trained a model or adapter.
#[derive(Debug)]
pub(crate) struct TrainedBy {
    info: RunInfo,
    keys: Table,
    /// Steps after which the model was saved.
    step: u64,
    /// Whether the model is a checkpoint before the end of the run, which no judgement is about.
    is_checkpoint: bool,
    comparison: Option<Comparison>,
    verdict: Verdict,
    guards: Vec<String>,
}

/// Returns the run of a model or adapter folder, with the step of a checkpoint. Returns `None` for other
/// folders.
pub(crate) fn run_of(trained: &Path) -> Option<(PathBuf, Option<u64>)> {
    let place = trained.canonicalize().ok()?;
    let (name, parent) = (place.file_name()?.to_str()?, place.parent()?);
    let (run, step) = match name {
        "model" | "adapter" => (parent, None),
        _ => {
            let step = name.strip_prefix("step-")?.parse().ok()?;
            (parent.parent().filter(|_| parent.ends_with("checkpoints"))?, Some(step))
        }
    };
    run.join("run.json").is_file().then(|| (run.to_owned(), step))
}

impl TrainedBy {
    /// Reads the run to which a model or adapter folder belongs. If its files are damaged, a note is printed, and
    /// the card does not describe the run.
    pub(crate) fn of(trained: &Path) -> Option<Self> {
        Self::read(trained).unwrap_or_else(|error| {
            say_aside(format_args!(
                "note: the model card does not describe the run of {}: {error:#}",
                trained.display()
            ));
            None
        })
    }

    /// Reads a run. Returns `None` for folders that belong to none.
    ///
    /// # Errors
    /// Returns an error if a file of the run is missing or damaged.
    pub(super) fn read(trained: &Path) -> anyhow::Result<Option<Self>> {
        let Some((run, checkpoint)) = run_of(trained) else { return Ok(None) };
        let folder = RunFolder::open(&run)?;
        let keys: Table = folder.read_config()?.parse().context("config.toml is not valid")?;
        let metrics: Vec<Map<String, Value>> = folder.read_metrics()?;
        if metrics.is_empty() {
            return Ok(None);
        }
        let events: Vec<Event> = folder.read_events()?;
        let last = metrics.last().and_then(step_of_line).unwrap_or(0);
        let step = checkpoint.unwrap_or(last);
        let comparison = folder.read_comparison()?.filter(|comparison| comparison.step == step);
        let verdict = match command_of(&keys) {
            "train" => {
                let section = keys.get("success").cloned().unwrap_or(Table::new().into());
                let criteria =
                    section.try_into().context("[success] in config.toml is not valid")?;
                judge(&metrics, &events, comparison.as_ref(), &criteria)
            }
            _ => judge_supervised(&metrics, &events),
        };
        let guards = events.into_iter().filter_map(|event| match event.what {
            EventKind::Guard { message, .. } => Some(format!("step {}: {message}", event.step)),
            _ => None,
        });
        Ok(Some(Self {
            info: folder.read_info()?,
            step,
            is_checkpoint: step < last,
            comparison,
            verdict,
            guards: guards.collect(),
            keys,
        }))
    }

    /// Returns whether a reward trained the model.
    pub(super) fn is_grpo(&self) -> bool {
        command_of(&self.keys) == "train"
    }

    fn setting(&self, section: &str, key: &str) -> Option<&toml::Value> {
        self.keys.get(section)?.get(key)
    }

    /// Adds rows about the training. The hashes of the base model's weights are left out if a commit identifies
    /// them.
    pub(super) fn add_to(&self, rows: &mut Rows, with_weights: bool) {
        let command = command_of(&self.keys);
        let method = if self.is_grpo() { "GRPO" } else { "supervised training" };
        let lora = match (self.setting("lora", "rank"), self.keys.get("adapter")) {
            (Some(rank), _) => format!(", LoRA of rank {rank}"),
            (None, Some(adapter)) => {
                format!(", from the adapter {}", adapter.as_str().unwrap_or_default())
            }
            (None, None) => String::new(),
        };
        rows.add(&["Training", &format!("{method} (grpo {command}){lora}")]);
        if let Some(kind) = self.setting("reward", "type").and_then(toml::Value::as_str) {
            let parts = self.comparison.iter().flat_map(|comparison| &comparison.parts);
            let parts: Vec<&str> = parts.map(|part| part.name.as_str()).collect();
            match parts.as_slice() {
                [] => rows.add(&["Reward", kind]),
                parts => rows.add(&["Reward", &format!("{kind}: {}", parts.join(", "))]),
            }
        }
        let steps = match self.setting("train", "steps").and_then(toml::Value::as_integer) {
            Some(planned) => format!("{} of {planned}", self.step),
            None => self.step.to_string(),
        };
        rows.add(&["Steps", &steps]);
        for file in self.info.data.iter().filter(|file| !is_weights_role(file)) {
            rows.add(&[&format!("Input: {}", file.role), &described(file)]);
        }
        for file in self.info.data.iter().filter(|file| with_weights && is_weights(file)) {
            rows.add(&[&format!("Weights of the {} before", file.role), &described(file)]);
        }
        rows.add(&["Seed", &self.info.seed.to_string()]);
        if let Some(version) = self.info.versions.get("grpo") {
            let revision = self.info.git_revision.as_ref();
            let revision = revision.map(|revision| format!(", revision {revision}"));
            rows.add(&["Trained with", &format!("grpo {version}{}", revision.unwrap_or_default())]);
        }
    }

    /// Returns the section with the evaluations before and after training.
    pub(super) fn evaluation(&self) -> String {
        let Some(comparison) = &self.comparison else { return String::new() };
        let mut rows = Rows::default();
        let all = comparison.reward.iter().chain(&comparison.parts).chain(&comparison.measures);
        for Measure { name, before, after, error, .. } in all {
            let number = |value: Option<f64>| value.map_or("–".to_owned(), four_decimals);
            let change = before.zip(*after).map(|(before, after)| after - before);
            let change = match (change, error) {
                (Some(change), Some(error)) => {
                    format!("{} ± {}", four_decimals(change), four_decimals(*error))
                }
                (change, _) => number(change),
            };
            rows.add(&[name, &number(*before), &number(*after), &change]);
        }
        let Comparison { step, samples, count, .. } = comparison;
        let samples = markdown_text(samples);
        format!(
            "## Evaluation\n\n{count} {samples} before the first step and after step {step}, with the same prompts and random numbers. ± is the standard error of the change.\n\n{}",
            rows.table(&["", "before", "after", "change"])
        )
    }

    /// Returns the section with the verdict on the run and the guards that tripped.
    pub(super) fn checks(&self) -> String {
        if self.is_checkpoint {
            return String::new();
        }
        let word = |outcome: Outcome| match outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::NotJudged => "not judged",
            Outcome::Warning => "warning",
        };
        let mut rows = Rows::default();
        for judged in &self.verdict.criteria {
            rows.add(&[&judged.name, word(judged.outcome), &judged.sentence]);
        }
        for guard in &self.guards {
            rows.add(&["Guard", "tripped", guard]);
        }
        format!(
            "## Checks of the run\n\nVerdict: {}.\n\n{}",
            word(self.verdict.outcome()),
            rows.table(&["", "", ""])
        )
    }
}

fn is_weights_role(file: &DataFile) -> bool {
    matches!(file.role.as_str(), "model" | "adapter")
}

/// Returns whether a file contains the weights of the model or adapter at the start.
fn is_weights(file: &DataFile) -> bool {
    let ends = ["safetensors", "gguf", "bin"];
    let has_ending = |end: &std::ffi::OsStr| ends.iter().any(|known| end == *known);
    // The blobs of Ollama are named after their hash.
    let is_blob =
        file.path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"sha256-"));
    is_weights_role(file) && (is_blob || file.path.extension().is_some_and(has_ending))
}

/// Returns the path of a file, or its name on the hub, with its hash.
fn described(file: &DataFile) -> String {
    let place = match RepoName::of_snapshot(&file.path) {
        Some((repo, path)) => format!("{repo}/{path}"),
        None => file.path.display().to_string(),
    };
    format!("{place}, SHA-256 {}", file.sha256)
}
