//! `completions/step-N.parquet`: what the policy wrote in a step, what it got for it, and what that did to each token.

mod read;
mod table;

use crate::folder::COMPLETIONS;
use crate::{RunError, RunFolder, atomic_write};
use grpo_data::Finish;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// One sampled completion: a row of the file of its step. Lists are of its actions, one entry each.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRecord {
    /// The training step, from 1 as in `metrics.jsonl`.
    pub step: u64,
    /// The prompt's place in the step.
    pub prompt: u32,
    /// The decoded prompt, without marks, where there was more than a beginning mark.
    pub prompt_text: Option<String>,
    /// The completion's place in its group.
    pub sample: u32,
    /// The decoded actions, without marks.
    pub text: String,
    /// The total reward; there exactly where the outcome is [`RecordedOutcome::Scored`].
    pub reward: Option<f64>,
    /// What was added to the reward before advantages were computed, if anything was. Files of older versions have it in
    /// `reward` instead.
    pub bonus: Option<f64>,
    /// Whether the reward had an answer.
    pub outcome: RecordedOutcome,
    /// Why the reward failed; there exactly where it did.
    pub reason: Option<String>,
    /// The parts of the reward that this completion has, by name: the columns `rewards/NAME`.
    pub parts: BTreeMap<String, f64>,
    /// The advantage, in units of the configured normalisation.
    pub advantage: f64,
    /// How many tokens the policy chose.
    pub actions: u32,
    /// Why it stopped.
    pub finish: Finish,
    /// Optimizer steps that the policy had behind it.
    pub policy_version: u64,
    /// The tokens that the policy chose.
    pub completion_ids: Vec<u32>,
    /// The log-probability that each was sampled with, in nats.
    pub sampling_logprobs: Vec<f32>,
    /// The trainer's own in the first update (`log π_old`), in nats.
    pub logprobs: Vec<f32>,
    /// Those of the reference, in nats.
    pub ref_logprobs: Vec<f32>,
    /// Entropies of the policy's distributions in the first update, in nats.
    pub entropies: Vec<f32>,
    /// ∂loss/∂log π_θ of each token, summed over the updates of the step: below 0 where the step makes it likelier.
    pub gradients: Vec<f32>,
    /// The same of the surrogate alone, without the KL penalty.
    pub surrogate_gradients: Vec<f32>,
    /// What became of each token: `moved`, or why not. One word where it is the same in all updates of the step, else
    /// one word an update with `+` between them.
    pub fates: Vec<String>,
}

/// Whether a reward had an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// A number.
    Scored,
    /// It had nothing to say.
    Abstained,
    /// It could not be computed.
    Failed,
}

impl RecordedOutcome {
    const ALL: [Self; 3] = [Self::Scored, Self::Abstained, Self::Failed];

    /// As it stands in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scored => "scored",
            Self::Abstained => "abstained",
            Self::Failed => "failed",
        }
    }
}

impl RunFolder {
    /// Where the completions of a step are, if they were recorded.
    pub fn completions_path(&self, step: u64) -> PathBuf {
        self.completions_folder().join(format!("{STEP}{step}{ENDING}"))
    }

    /// Writes the completions of a step, in the place of those that are there. The file is whole whenever the machine
    /// stops. `parts` are the names of all parts of the reward, each a column, whether a completion of the step has it
    /// or not: so the files of a run have the same columns.
    ///
    /// # Errors
    /// Writing failed; an older file of the step is then as it was.
    ///
    /// # Panics
    /// Where a record has a part that is not among `parts`.
    pub fn write_completions(
        &self,
        step: u64,
        records: &[CompletionRecord],
        parts: &[&str],
    ) -> Result<(), RunError> {
        atomic_write(&self.completions_path(step), &table::file(records, parts))
    }

    /// The steps whose completions were recorded, in their order. Files of other names are passed over.
    ///
    /// # Errors
    /// The folder of completions cannot be read.
    pub fn completion_steps(&self) -> Result<Vec<u64>, RunError> {
        let folder = self.completions_folder();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(RunError::read(&folder))?,
        };
        let mut steps = Vec::new();
        for entry in entries {
            let name = entry.map_err(RunError::read(&folder))?.file_name();
            steps.extend(name.to_str().and_then(step_of));
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// The completions that were recorded of a step, group by group.
    ///
    /// # Errors
    /// They cannot be read, or are damaged.
    pub fn completions_of(&self, step: u64) -> Result<Vec<CompletionRecord>, RunError> {
        read::records(&self.completions_path(step), step)
    }

    /// Takes away the completions of the step `first_step` and of later ones, which a run that goes on from an earlier
    /// one writes again, or not.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_completions_from(&self, first_step: u64) -> Result<(), RunError> {
        for step in self.completion_steps()?.into_iter().filter(|&step| step >= first_step) {
            let path = self.completions_path(step);
            fs::remove_file(&path).map_err(RunError::write(&path))?;
        }
        Ok(())
    }

    fn completions_folder(&self) -> PathBuf {
        self.path().join(COMPLETIONS)
    }
}

const STEP: &str = "step-";
const ENDING: &str = ".parquet";

/// The step of a file, if its name is one that we write.
fn step_of(name: &str) -> Option<u64> {
    let step: u64 = name.strip_prefix(STEP)?.strip_suffix(ENDING)?.parse().ok()?;
    (name == format!("{STEP}{step}{ENDING}")).then_some(step)
}

/// A file of completions that is not what we write.
fn damaged(path: &Path, reason: impl Into<String>) -> RunError {
    RunError::BadCompletions { path: path.to_owned(), reason: reason.into() }
}
