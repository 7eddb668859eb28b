//! Prompt sources defined by tasks. They replace the `[data]` section.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_data::schema::Keys;
use grpo_data::{Codec, ConfigFault, Prompt};
use grpo_model::{Families, Policy};
use grpo_rewards::Reward;
use grpo_train::{EngineFactory, GrpoConfig, NextTokens, TrainError};
use toml::Table;

use crate::models::Loaded;

/// A kind of prompt source, selected by sections of the configuration.
#[derive(Clone, Copy)]
pub struct SourceKind {
    /// Section names. The presence of any of them selects this source.
    pub sections: &'static [&'static str],
    /// What these sections are.
    pub schema: Keys,
    /// Parses the sections. Keys in errors start with the section name.
    pub parse: fn(Table) -> Result<Arc<dyn Source>, ConfigFault>,
}

/// Configuration of a prompt source.
pub trait Source: fmt::Debug + Send + Sync {
    /// Returns the sections with all defaults.
    fn settings(&self) -> Table;

    /// Returns the files that the source reads, with their roles.
    fn files(&self) -> Vec<(&'static str, PathBuf)>;

    /// Checks the settings together with those of the trainer. `has_data` is true if the
    /// configuration has a `[data]` section.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or two settings contradict each other.
    fn check(&self, trainer: &GrpoConfig, has_data: bool) -> Result<(), ConfigFault>;

    /// Checks the model folder before the model is loaded.
    ///
    /// # Errors
    /// Returns an error if the model is not suitable.
    fn check_model(&self, folder: &Path, families: &Families) -> anyhow::Result<()>;

    /// Returns the maximum number of actions per prompt, or `None` if `sampling.max_new_tokens` sets
    /// it.
    fn max_new_tokens(&self) -> Option<usize>;

    /// Returns the local engine of a policy that uses `codec`. By default, it continues the prompt.
    fn local_engine(&self, codec: &Codec) -> Arc<dyn EngineFactory<Policy>> {
        Arc::new(NextTokens { end_ids: codec.end_ids().to_vec() })
    }

    /// Returns whether the policy fills positions of the prompt instead of continuing it.
    fn fills_prompt(&self) -> bool {
        false
    }

    /// Returns whether the stream repeats a list of prompts, so that settings can count epochs.
    fn has_epochs(&self) -> bool {
        false
    }

    /// Returns the display name of the tokens chosen by actions.
    fn tokens_name(&self) -> &'static str {
        "tokens"
    }

    /// Returns the arguments of a command that shows what the trained model does with `prompt`.
    /// `model` contains the options that select the model: `--model` and, for an adapter,
    /// `--adapter`.
    fn try_out(&self, _model: &[String], _prompt: &Prompt) -> Option<Vec<String>> {
        None
    }

    /// Reads the prompt data and checks that `reward` can score every completion.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is incompatible with the model or reward.
    fn open(&self, loaded: &Loaded, reward: &dyn Reward, seed: u64) -> anyhow::Result<Opened>;
}

/// A prompt source with its data loaded.
pub struct Opened {
    /// The prompts.
    pub stream: Box<dyn PromptStream>,
    /// Summary for the user.
    pub report: String,
}

/// An endless stream of prompts.
pub trait PromptStream: Send + Sync {
    /// Returns `count` prompts for a step. Both steps and prompt indices start at 0.
    ///
    /// # Errors
    /// Returns an error if a prompt cannot be created.
    fn of_step(&self, step: u64, count: u32) -> Result<Vec<Prompt>, TrainError>;

    /// Returns prompts that are not used in any step.
    ///
    /// # Errors
    /// Returns an error if a prompt cannot be created.
    fn of_no_step(&self, count: u32) -> Result<Vec<Prompt>, TrainError>;

    /// Returns held-out prompts.
    ///
    /// # Errors
    /// Returns an error if a prompt cannot be created.
    fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, TrainError>;

    /// Returns the maximum prompt length in tokens.
    fn longest(&self) -> usize;

    /// Returns the number of prompts per epoch, or `None` if the stream has no epochs.
    fn epoch(&self) -> Option<usize> {
        None
    }
}
