//! The `[reward]` section of external rewards.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, deserialize_settings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::carrier::Carrier;
use super::protocol::{Format, Shape};
use super::reward::ExternalReward;
use super::settings::{SHARED, Settings};
use crate::composite::reserved_for;
use crate::{FromRegistry, Reward, RewardRegistry, RewardSpec};

/// The settings that are specific to a type of external reward.
pub(crate) trait CarrierConfig: Clone + std::fmt::Debug + Send + Sync {
    /// Validates the settings without accessing files.
    fn check(&self) -> Result<(), ConfigFault>;

    /// Describes the program or server, e.g. "runs `python3 score.py`".
    fn describe(&self) -> String;

    /// Returns the files of the reward, each with the key that refers to it.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(Vec::new())
    }
}

/// Creates a carrier from its settings.
pub(super) trait BuildCarrier: CarrierConfig {
    fn format(&self) -> Format {
        Format::Json
    }

    fn shape(&self) -> Shape;

    fn carrier(&self) -> Result<Box<dyn Carrier>, ConfigFault>;

    /// Prepares a new reward before its first use.
    fn prepare(&self, _: &ExternalReward) -> Result<(), ConfigFault> {
        Ok(())
    }
}

/// The configuration of an external reward.
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
