//! The `[reward]` section of external rewards.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::schema::Both;
use grpo_data::{ConfigFault, deserialize_settings, keys_of};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::carrier::Carrier;
use super::protocol::{Format, Shape};
use super::reward::ExternalReward;
use super::settings::Settings;
use crate::composite::reserved_for;
use crate::{FromRegistry, Reward, RewardKind, RewardRegistry, RewardSpec};

/// The settings that are specific to a type of external reward.
pub trait CarrierConfig: Clone + std::fmt::Debug + Send + Sync {
    /// Validates the settings without accessing files.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or if settings contradict each other.
    fn check(&self) -> Result<(), ConfigFault>;

    /// Describes the program or server, e.g. "runs `python3 score.py`".
    fn describe(&self) -> String;

    /// Returns what a reply contains for each completion.
    fn shape(&self) -> Shape;

    /// Creates the carrier.
    ///
    /// # Errors
    /// Returns an error if a file or program does not exist.
    fn carrier(&self) -> Result<Box<dyn Carrier>, ConfigFault>;

    /// Returns the files of the reward, each with the key that refers to it.
    ///
    /// # Errors
    /// Returns an error if a file does not exist.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(Vec::new())
    }

    /// Returns the encoding of requests and replies.
    fn format(&self) -> Format {
        Format::Json
    }

    /// Prepares a new reward before its first use.
    ///
    /// # Errors
    /// Returns an error if the program does not start.
    fn prepare(&self, _: &ExternalReward) -> Result<(), ConfigFault> {
        Ok(())
    }
}

/// The section of an external reward: the settings of its carrier, and those that all of them share.
#[derive(Clone, Debug, Serialize)]
pub struct External<C> {
    #[serde(flatten)]
    carrier: C,
    #[serde(flatten)]
    settings: Settings,
}

impl RewardKind {
    /// Creates a reward type that a program or a server computes. Its section has the keys of `C`, and those
    /// that all of them have.
    pub const fn external<C>(type_name: &'static str) -> Self
    where
        C: CarrierConfig + JsonSchema + 'static,
        External<C>: RewardSpec + Serialize + FromRegistry,
    {
        Self::composed::<External<C>, Both<C, Settings>>(type_name)
    }
}

impl<C: DeserializeOwned> FromRegistry for External<C> {
    fn from_registry(_: &RewardRegistry, mut table: Table) -> Result<Self, ConfigFault> {
        let shared = keys_of::<Settings>().iter().filter_map(|key| table.remove_entry(*key));
        let settings = deserialize_settings(shared.collect::<Table>())?;
        Ok(Self { carrier: deserialize_settings(table)?, settings })
    }
}

impl<C: CarrierConfig> RewardSpec for External<C> {
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

    fn external(&self) -> Vec<String> {
        vec![self.carrier.describe()]
    }
}

/// Checks that component names can be used in metrics and as column names.
fn check_components(shape: &Shape) -> Result<(), ConfigFault> {
    let is_usable = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    for (index, name) in shape.components.iter().enumerate() {
        if name.is_empty() || !name.chars().all(is_usable) {
            return ConfigFault::refuse(format!(
                "invalid reward component name '{name}'; use letters, digits, `_` and `-`"
            ));
        }
        if let Some(whose) = reserved_for(name) {
            return ConfigFault::refuse(format!(
                "the reward component name '{name}' is reserved for {whose}; choose another name"
            ));
        }
        if shape.components[..index].contains(name) {
            return ConfigFault::refuse(format!(
                "the reward has two components named '{name}'; remove one"
            ));
        }
    }
    Ok(())
}
