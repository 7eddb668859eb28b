//! Prompt sources of tasks, in place of the section `[data]`.

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

/// Sections of `grpo train` that define prompts.
#[derive(Clone, Copy)]
pub struct SourceKind {
    /// Their names; any one of them selects the source.
    pub sections: &'static [&'static str],
    /// Parses the sections; keys of errors include the section.
    pub parse: fn(Table) -> Result<Arc<dyn Source>, ConfigFault>,
}

/// The settings of a source of prompts.
pub trait Source: fmt::Debug + Send + Sync {
    /// Returns its sections with all defaults.
    fn settings(&self) -> Table;

    /// Checks its settings together with those of the run, which may have a section `[data]`.
    ///
    /// # Errors
    /// Returns an error if settings are out of range or contradict each other.
    fn check(&self, settings: &TrainSettings, has_data: bool) -> Result<(), ConfigFault>;

    /// Checks a model folder before it is loaded.
    ///
    /// # Errors
    /// Returns a message about an unsuitable model.
    fn check_model(&self, folder: &Path) -> anyhow::Result<()>;

    /// Returns the largest number of actions for a prompt.
    fn max_new_tokens(&self) -> usize;

    /// Returns the actions of a policy with this codec.
    fn actions(&self, codec: &Codec) -> Arc<dyn Actions<Policy>>;

    /// Returns whether the policy fills positions of the prompt instead of continuing it.
    fn fills_prompt(&self) -> bool {
        false
    }

    /// Returns the name of the actions' tokens.
    fn tokens_name(&self) -> &'static str;

    /// Reads the data of the prompts and checks that `reward` can score all completions.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or does not fit model or reward.
    fn open(&self, loaded: &Loaded, reward: &dyn Reward, seed: u64) -> anyhow::Result<Opened>;
}

/// An opened source.
pub struct Opened {
    /// The prompts.
    pub stream: Box<dyn PromptStream>,
    /// Report on the data.
    pub report: String,
    /// The files that were read, with their roles.
    pub files: Vec<(&'static str, PathBuf)>,
}

/// Endless prompts.
pub trait PromptStream: Send + Sync {
    /// Returns the prompts of a step, counted from 0, with indices from 0.
    ///
    /// # Errors
    /// Returns an error if no prompt can be made.
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

    /// Returns the length of the longest prompt in tokens.
    fn longest(&self) -> usize;
}
