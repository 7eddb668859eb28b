//! The keys that all rewards from outside share, next to those of each carrier.

use grpo_data::{ConfigFault, short_number};
use serde::{Deserialize, Serialize};

/// The keys that all carriers share.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    /// Completions of a request.
    pub(super) batch_size: usize,
    /// Programs, or connections, that work at the same time.
    pub(super) workers: usize,
    /// Seconds for each completion of a request.
    pub(super) time_limit: f64,
    /// What becomes of completions without a score.
    pub(super) on_failure: OnFailure,
    /// Whether equal completions of equal prompts have equal rewards.
    pub(super) deterministic: bool,
    /// Whether equal completions of equal prompts are scored once.
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

/// What becomes of completions without a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFailure {
    /// They fail; `train.max_failed_rewards` limits how many may.
    Fail,
    /// They are left out of their group.
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
