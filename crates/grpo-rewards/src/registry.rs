//! Kinds of rewards, and the parser of a section `[reward]`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, deserialize_settings};
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use toml::Table;

use crate::Reward;

/// Settings of a reward.
pub trait RewardSpec: fmt::Debug + Send + Sync {
    /// Checks the settings without reading files.
    ///
    /// # Errors
    /// Returns an error if settings are out of range or contradict each other.
    fn check(&self) -> Result<(), ConfigFault>;

    /// Builds the reward from checked settings. Its models are loaded on `device`.
    ///
    /// # Errors
    /// Returns an error if a model folder is missing or invalid.
    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault>;

    /// Returns the files that the reward reads, each with the key that names its folder.
    ///
    /// # Errors
    /// Returns an error if a folder does not exist or cannot be read.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(Vec::new())
    }

    /// Returns the rewards that a composite consists of.
    fn components(&self) -> Vec<&RewardConfig> {
        Vec::new()
    }

    /// Checks before a training run whether the models of the reward may be used, and returns
    /// warnings.
    ///
    /// # Errors
    /// Returns an error if a model must not be used as a reward.
    fn admit(&self) -> Result<Vec<String>, ConfigFault> {
        Ok(Vec::new())
    }

    /// Returns the restriction of a reward that scores only the prompts of its task and cannot be a
    /// component, if any.
    fn restriction(&self) -> Option<Restriction> {
        None
    }
}

/// Messages of a reward that is restricted to the prompts of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// The section of the configuration whose prompts it scores.
    pub section: &'static str,
    /// Why it scores no other prompts, and how to fix that.
    pub without_section: &'static str,
    /// Why it cannot be a component of another reward.
    pub in_composite: &'static str,
}

/// A kind of reward: the `type` that selects it, and the parser of its other keys.
#[derive(Clone, Copy)]
pub struct RewardKind {
    type_name: &'static str,
    parse: fn(&RewardRegistry, Table) -> Result<Parsed, ConfigFault>,
}

/// Settings, and the table with all defaults filled in.
type Parsed = (Arc<dyn RewardSpec>, Table);

impl RewardKind {
    /// A kind whose settings are the keys of its section.
    pub fn from_settings<T>(type_name: &'static str) -> Self
    where
        T: RewardSpec + Serialize + DeserializeOwned + 'static,
    {
        Self { type_name, parse: |_, table| parsed(deserialize_settings::<T>(table)?) }
    }

    /// A kind whose section contains other rewards.
    pub fn composed<T>(type_name: &'static str) -> Self
    where
        T: RewardSpec + Serialize + FromRegistry + 'static,
    {
        Self { type_name, parse: |registry, table| parsed(T::from_registry(registry, table)?) }
    }
}

impl fmt::Debug for RewardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RewardKind").field(&self.type_name).finish()
    }
}

/// Settings that contain sections of other rewards.
pub trait FromRegistry: Sized {
    /// Parses a section without its `type`.
    ///
    /// # Errors
    /// As [`RewardRegistry::parse`].
    fn from_registry(registry: &RewardRegistry, table: Table) -> Result<Self, ConfigFault>;
}

fn parsed<T: RewardSpec + Serialize + 'static>(settings: T) -> Result<Parsed, ConfigFault> {
    let table = Table::try_from(&settings)
        .map_err(|error| ConfigFault::from_sentence("", error.to_string()))?;
    Ok((Arc::new(settings), table))
}

/// The kinds of rewards of a program.
#[derive(Clone, Debug)]
pub struct RewardRegistry(Vec<RewardKind>);

impl RewardRegistry {
    /// Creates an empty registry.
    pub(crate) fn empty() -> Self {
        Self(Vec::new())
    }

    /// Adds kinds.
    ///
    /// # Panics
    /// Panics if two kinds have the same type.
    #[must_use]
    pub fn with(mut self, kinds: impl IntoIterator<Item = RewardKind>) -> Self {
        for kind in kinds {
            let name = kind.type_name;
            assert!(self.kind(name).is_none(), "two reward kinds have type {name:?}");
            self.0.push(kind);
        }
        self
    }

    fn kind(&self, name: &str) -> Option<&RewardKind> {
        self.0.iter().find(|kind| kind.type_name == name)
    }

    /// Returns the names of all types, sorted.
    pub fn type_names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.0.iter().map(|kind| kind.type_name).collect();
        names.sort_unstable();
        names
    }

    /// Parses a section: `type` selects the kind, which parses the other keys. Only types are
    /// checked.
    ///
    /// # Errors
    /// Returns an error if `type` is missing or unknown, or if a key is unknown or has a value of
    /// another type.
    pub fn parse(&self, mut section: Table) -> Result<RewardConfig, ConfigFault> {
        let name = match section.remove("type") {
            Some(toml::Value::String(name)) => name,
            Some(other) => {
                let message = format!("invalid type: {}, expected a string", other.type_str());
                return Err(ConfigFault::from_sentence("type", message));
            }
            None => {
                let known = self.type_names().join(", ");
                let message = format!("missing key `type`; expected one of {known}");
                return Err(ConfigFault::from_sentence("", message));
            }
        };
        let Some(&RewardKind { type_name, parse }) = self.kind(&name) else {
            let known = self.type_names().join(", ");
            let message = format!("unknown reward type `{name}`; expected one of {known}");
            return Err(ConfigFault::from_sentence("type", message));
        };
        let (spec, settings) = parse(self, section)?;
        let mut table = Table::from_iter([("type".to_owned(), type_name.into())]);
        table.extend(settings);
        Ok(RewardConfig { type_name, table, spec })
    }
}

/// A parsed section `[reward]`.
#[derive(Clone, Debug)]
pub struct RewardConfig {
    type_name: &'static str,
    table: Table,
    spec: Arc<dyn RewardSpec>,
}

impl RewardConfig {
    /// Returns the `type` of the section.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Returns the `type` of the section and of all rewards inside it.
    pub fn type_names(&self) -> Vec<&'static str> {
        let inner = self.spec.components().into_iter().flat_map(Self::type_names);
        [self.type_name].into_iter().chain(inner).collect()
    }

    /// Returns the section with all defaults filled in.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the settings.
    pub fn spec(&self) -> &dyn RewardSpec {
        &*self.spec
    }

    /// Builds the reward. Its models are loaded on `device`.
    ///
    /// # Errors
    /// As [`RewardSpec::check`] and [`RewardSpec::build`].
    pub fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        self.spec.check()?;
        self.spec.build(device)
    }
}

/// Compares all settings, including defaults.
impl PartialEq for RewardConfig {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
    }
}

/// Writes the section with all defaults filled in.
impl Serialize for RewardConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.table.serialize(serializer)
    }
}

/// Adds the name of a component to its error.
#[must_use]
pub fn of_component(fault: ConfigFault, name: &str) -> ConfigFault {
    ConfigFault::from_sentence("", format!("reward part '{name}': {fault}"))
}

/// Returns whether weights are at least 0 and sum to 1.
pub(crate) fn are_mean_weights(weights: &[f64]) -> bool {
    let sum: f64 = weights.iter().sum();
    // Written so that NaN is rejected.
    weights.iter().all(|weight| *weight >= 0.0) && (sum - 1.0).abs() <= 1e-6
}

/// Checks that weights, given with their keys, are at least 0 and sum to 1.
///
/// # Errors
/// Returns an error for a weight below 0 or another sum than 1.
pub fn check_mean_weights(weights: &[(&str, f64)]) -> Result<(), ConfigFault> {
    let (keys, weights): (Vec<String>, Vec<f64>) =
        weights.iter().map(|(key, weight)| (format!("reward.{key}"), *weight)).unzip();
    if are_mean_weights(&weights) {
        return Ok(());
    }
    let (last, others) = keys.split_last().expect("there is at least one weight");
    let (others, sum) = (others.join(", "), weights.iter().sum::<f64>());
    ConfigFault::refuse(format!(
        "{others} and {last} must be at least 0 and sum to 1, but they sum to {sum}"
    ))
}
