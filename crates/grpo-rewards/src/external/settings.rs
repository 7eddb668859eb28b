//! Settings that are common to all external rewards.

use grpo_data::{ConfigFault, short_number};
use serde::{Deserialize, Serialize};

/// Settings that are common to all external rewards.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    /// Maximum number of completions per request.
    pub(super) batch_size: usize,
    /// Number of concurrent programs or connections.
    pub(super) workers: usize,
    /// Time limit per completion in a request, in seconds.
    pub(super) time_limit: f64,
    /// How to handle completions without a score.
    pub(super) on_failure: OnFailure,
    /// Whether identical completions of identical prompts always have the same reward.
    pub(super) deterministic: bool,
    /// Whether identical completions of identical prompts are scored only once.
    pub(super) cache: bool,
}

pub(super) const SHARED: [&str; 6] =
    ["batch_size", "workers", "time_limit", "on_failure", "deterministic", "cache"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_size: 64,
            workers: 1,
            time_limit: 10.0,
            on_failure: OnFailure::Fail,
            deterministic: true,
            cache: false,
        }
    }
}

/// How to handle completions without a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFailure {
    /// The completion fails. `train.max_failed_rewards` limits the number of failures.
    Fail,
    /// The completion is excluded from its group.
    Abstain,
    /// All completions of the step fail, which ends the run.
    Stop,
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        let counts = [("batch_size", self.batch_size, 1_000_000), ("workers", self.workers, 256)];
        for (key, value, most) in counts {
            if !(1..=most).contains(&value) {
                return ConfigFault::refuse(format!(
                    "reward.{key} = {value} is out of range; expected 1 to {most}"
                ));
            }
        }
        if !(1e-3..=1e6).contains(&self.time_limit) {
            return ConfigFault::refuse(format!(
                "reward.time_limit = {} is out of range; expected 0.001 to 1e6 seconds",
                short_number(self.time_limit)
            ));
        }
        match self.cache && !self.deterministic {
            true => ConfigFault::refuse(
                "reward.cache = true requires a deterministic reward; remove it or deterministic = false",
            ),
            false => Ok(()),
        }
    }
}
