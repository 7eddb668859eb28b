//! Prompts that a task gives in place of the section `[data]`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_data::{Codec, ConfigFault, Prompt};
use grpo_model::Policy;
use grpo_rewards::Reward;
use grpo_train::{Actions, TrainError};
use toml::Table;

use crate::models::Loaded;
use crate::train_settings::TrainSettings;

/// Sections of `grpo train` that give prompts.
#[derive(Clone, Copy)]
pub struct SourceKind {
    /// Their names; one of them is enough to select the source.
    pub sections: &'static [&'static str],
    /// Reads the sections that are there; the keys of faults have the section in front.
    pub parse: fn(Table) -> Result<Arc<dyn Source>, ConfigFault>,
}

/// The settings of a source of prompts.
pub trait Source: fmt::Debug + Send + Sync {
    /// Returns its sections, with every default written out.
    fn settings(&self) -> Table;

    /// Checks its settings next to the others of the run, which may have a section `[data]`.
    ///
    /// # Errors
    /// Settings that are out of range or contradict each other.
    fn check(&self, settings: &TrainSettings, has_data: bool) -> Result<(), ConfigFault>;

    /// Refuses a model folder that cannot act on its prompts, before it is loaded.
    ///
    /// # Errors
    /// A sentence that says what the model is.
    fn check_model(&self, folder: &Path) -> anyhow::Result<()>;

    /// Returns the most tokens that a policy chooses for a prompt.
    fn max_new_tokens(&self) -> usize;

    /// Returns what a policy with this codec chooses.
    fn actions(&self, codec: &Codec) -> Arc<dyn Actions<Policy>>;

    /// Whether the policy fills positions of the prompt, instead of continuing it.
    fn fills_prompt(&self) -> bool {
        false
    }

    /// Returns what the chosen tokens are called.
    fn tokens_name(&self) -> &'static str;

    /// Reads what the prompts are made of; `reward` must be able to score completions of all of them.
    ///
    /// # Errors
    /// A file that cannot be read, or does not fit the model or the reward.
    fn open(&self, loaded: &Loaded, reward: &dyn Reward, seed: u64) -> anyhow::Result<Opened>;
}

/// A source whose files were read.
pub struct Opened {
    /// The prompts.
    pub stream: Box<dyn PromptStream>,
    /// What was read and left out.
    pub report: String,
    /// The files that were read, and what each is.
    pub files: Vec<(&'static str, PathBuf)>,
}

/// Prompts without end.
pub trait PromptStream: Send + Sync {
    /// Returns the prompts of a step, counted from 0; their indices count from 0 within the step.
    ///
    /// # Errors
    /// No prompt can be made.
    fn of_step(&self, step: u64, count: u32) -> Result<Vec<Prompt>, TrainError>;

    /// Returns prompts that are in no step.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    fn of_no_step(&self, count: u32) -> Result<Vec<Prompt>, TrainError>;

    /// Returns held-out prompts.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, TrainError>;

    /// Returns the tokens of the longest prompt.
    fn longest(&self) -> usize;
}
