//! Settings that are common to all external rewards.

use grpo_data::{ConfigFault, LARGEST_REWARD, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings that are common to all external rewards.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Completions per request.
    #[schemars(range(min = 1, max = 1e6))]
    pub(super) batch_size: usize,
    /// Programs, or connections, that work at the same time.
    #[schemars(range(min = 1, max = 256))]
    pub(super) workers: usize,
    /// Seconds per completion of a request; a request of n completions has n times as long.
    /// [`train.reward_time_limit`](#train) also limits the whole step.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub(super) time_limit: f64,
    /// What happens to completions without a score: they fail, and
    /// [`train.max_failed_rewards`](#train) limits how many may; they abstain, and the first reason
    /// is printed; or the whole batch fails, which ends the run.
    pub(super) on_failure: OnFailure,
    /// Whether equal completions of equal prompts get equal rewards. If false, `grpo replay` does
    /// not check the reward.
    pub(super) deterministic: bool,
    /// Score equal completions of equal prompts once; keeps the last 200,000. Needs
    /// `deterministic`. By default, this applies to
    /// [molecules](#molecules-in-external-rewards) only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache: Option<bool>,
    /// For molecules: reward of an invalid SMILES, which is then not sent; or `"send"`, to send it
    /// like all others. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) invalid: Option<Invalid>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_size: 64,
            workers: 1,
            time_limit: 10.0,
            on_failure: OnFailure::Fail,
            deterministic: true,
            cache: None,
            invalid: None,
        }
    }
}

/// How to handle completions without a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFailure {
    /// The completion fails. `train.max_failed_rewards` limits the number of failures.
    Fail,
    /// The completion is excluded from its group.
    Abstain,
    /// All completions of the step fail, which ends the run.
    Stop,
}

/// What happens to invalid completions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "reward.invalid must be a number or \"send\"")]
pub(super) enum Invalid {
    /// They have this reward and are not sent.
    Reward(f64),
    /// They are sent like all other completions.
    Word(SendWord),
}

/// The word `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SendWord {
    /// They are sent like all other completions.
    Send,
}

impl Settings {
    /// Returns the reward of invalid completions, or `None` if they are sent.
    pub(super) fn invalid_reward(&self) -> Option<f64> {
        match self.invalid {
            None => Some(0.0),
            Some(Invalid::Reward(reward)) => Some(reward),
            Some(Invalid::Word(SendWord::Send)) => None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        // The key is relative to the section, the message names it in full.
        self.check_ranges("reward").map_err(|fault| ConfigFault {
            key: fault.key.trim_start_matches("reward.").to_owned(),
            ..fault
        })?;
        if let Some(reward) =
            self.invalid_reward().filter(|reward| reward.is_nan() || reward.abs() > LARGEST_REWARD)
        {
            return ConfigFault::refuse(format!(
                "reward.invalid = {reward:e} is out of range; expected a number up to {LARGEST_REWARD:e} in magnitude, or \"send\""
            ));
        }
        match self.cache == Some(true) && !self.deterministic {
            true => ConfigFault::refuse(
                "reward.cache = true requires a deterministic reward; remove it or deterministic = false",
            ),
            false => Ok(()),
        }
    }
}
