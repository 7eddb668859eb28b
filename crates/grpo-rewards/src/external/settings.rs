//! The keys that all rewards from outside share, next to those of each carrier.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, deserialize_settings, short_number};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::protocol::{Format, Shape};
use super::{Carrier, ExternalReward};
use crate::{FromRegistry, Reward, RewardRegistry, RewardSpec};

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

const SHARED: [&str; 6] =
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
    fn check(&self) -> Result<(), ConfigFault> {
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
                "reward.cache = true needs a deterministic reward; remove it, or deterministic = false",
            ),
            false => Ok(()),
        }
    }
}

/// What a carrier adds to the shared keys.
pub(crate) trait CarrierConfig: Clone + std::fmt::Debug + Send + Sync {
    /// Checks its keys, and reads no file.
    fn check(&self) -> Result<(), ConfigFault>;

    /// Returns the files of the reward, each with the key that names it.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(Vec::new())
    }
}

/// What makes a reward of a carrier's keys.
pub(super) trait BuildCarrier: CarrierConfig {
    fn format(&self) -> Format {
        Format::Json
    }

    fn shape(&self) -> Shape;

    fn carrier(&self) -> Result<Box<dyn Carrier>, ConfigFault>;

    /// Looks at a new reward before it is used.
    fn prepare(&self, _: &ExternalReward) -> Result<(), ConfigFault> {
        Ok(())
    }
}

/// The settings of a reward that something outside of this program computes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct External<C> {
    #[serde(flatten)]
    carrier: C,
    #[serde(flatten)]
    settings: Settings,
}

impl<C: DeserializeOwned> FromRegistry for External<C> {
    fn from_registry(_: &RewardRegistry, mut table: Table) -> Result<Self, ConfigFault> {
        let shared = SHARED.iter().filter_map(|key| Some(((*key).to_owned(), table.remove(*key)?)));
        let settings = deserialize_settings(shared.collect::<Table>())?;
        Ok(Self { carrier: deserialize_settings(table)?, settings })
    }
}

impl<C: BuildCarrier> RewardSpec for External<C> {
    fn check(&self) -> Result<(), ConfigFault> {
        self.settings.check()?;
        check_components(&self.carrier.shape())?;
        self.carrier.check()
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let (carrier, settings) = (self.carrier.carrier()?, self.settings.clone());
        let (format, shape) = (self.carrier.format(), self.carrier.shape());
        let reward = ExternalReward::new(carrier, format, shape, settings);
        self.carrier.prepare(&reward)?;
        Ok(Arc::new(reward))
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        self.carrier.files()
    }
}

/// Components name metrics and columns.
fn check_components(shape: &Shape) -> Result<(), ConfigFault> {
    let is_usable = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    for (index, name) in shape.components.iter().enumerate() {
        if name.is_empty() || !name.chars().all(is_usable) || name == "diversity_bonus" {
            return ConfigFault::refuse(format!(
                "'{name}' cannot name a component of the reward; use letters, digits, `_` and `-`, and not diversity_bonus"
            ));
        }
        if shape.components[..index].contains(name) {
            return ConfigFault::refuse(format!(
                "the reward has the component '{name}' twice; metrics could not tell them apart"
            ));
        }
    }
    Ok(())
}
