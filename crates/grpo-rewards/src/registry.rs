//! Reward types and the parser for the `[reward]` section.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::schema::Keys;
use grpo_data::{ConfigFault, deserialize_settings, short_number, short_text};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use toml::Table;

use crate::{Desirability, Reward};

/// The configuration of a reward.
pub trait RewardSpec: fmt::Debug + Send + Sync {
    /// Validates the settings without accessing files.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or if settings contradict each other.
    fn check(&self) -> Result<(), ConfigFault>;

    /// Creates the reward from validated settings, loading models onto `device`.
    ///
    /// # Errors
    /// Returns an error if a model folder is missing or invalid.
    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault>;

    /// Returns the files that the reward reads, each with the key that refers to it.
    ///
    /// # Errors
    /// Returns an error if a folder does not exist or cannot be read.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(Vec::new())
    }

    /// Returns the components of a composite reward.
    fn components(&self) -> Vec<&RewardConfig> {
        Vec::new()
    }

    /// Describes the programs that the reward starts and the servers that it sends completions to.
    fn external(&self) -> Vec<String> {
        self.components().into_iter().flat_map(|component| component.spec().external()).collect()
    }

    /// Returns the functions that map properties to scores, each with the name of its component.
    fn desirabilities(&self) -> Vec<(String, Desirability)> {
        Vec::new()
    }

    /// Checks whether the reward's models can be used for training, and returns warnings.
    ///
    /// # Errors
    /// Returns an error if a model is not suitable as a reward.
    fn admit(&self) -> Result<Vec<String>, ConfigFault> {
        Ok(Vec::new())
    }

    /// Returns the restriction of a reward that only supports the prompts of its task. Restricted
    /// rewards cannot be components of a composite reward.
    fn restriction(&self) -> Option<Restriction> {
        None
    }
}

/// Error messages for a reward that only supports the prompts of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// The configuration section that provides the supported prompts.
    pub section: &'static str,
    /// Explains why other prompts cannot be scored and how to fix this.
    pub without_section: &'static str,
    /// Explains why the reward cannot be a component of another reward.
    pub in_composite: &'static str,
}

/// A reward type: the value of the `type` key and the parser for the remaining keys.
#[derive(Clone, Copy)]
pub struct RewardKind {
    type_name: &'static str,
    keys: Keys,
    parse: fn(&RewardRegistry, Table) -> Result<Parsed, ConfigFault>,
}

/// The parsed settings and the table with all defaults filled in.
type Parsed = (Arc<dyn RewardSpec>, Table);

impl RewardKind {
    /// Returns the name that selects the type.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Returns the keys of its section, without `type`.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    /// Creates a reward type whose settings are the keys of its section.
    pub const fn from_settings<T>(type_name: &'static str) -> Self
    where
        T: RewardSpec + Serialize + DeserializeOwned + JsonSchema + 'static,
    {
        let keys = Keys::of::<T>();
        Self { type_name, keys, parse: |_, table| parsed(deserialize_settings::<T>(table)?) }
    }

    /// Creates a reward type whose section contains other rewards. `K` has the keys of the section as they
    /// are written.
    pub const fn composed<T, K>(type_name: &'static str) -> Self
    where
        T: RewardSpec + Serialize + FromRegistry + 'static,
        K: JsonSchema,
    {
        let keys = Keys::of::<K>();
        Self {
            type_name,
            keys,
            parse: |registry, table| parsed(T::from_registry(registry, table)?),
        }
    }
}

impl fmt::Debug for RewardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RewardKind").field(&self.type_name).finish()
    }
}

/// Settings with nested sections for other rewards.
pub trait FromRegistry: Sized {
    /// Parses a section after its `type` key has been removed.
    ///
    /// # Errors
    /// See [`RewardRegistry::parse`].
    fn from_registry(registry: &RewardRegistry, table: Table) -> Result<Self, ConfigFault>;
}

fn parsed<T: RewardSpec + Serialize + 'static>(settings: T) -> Result<Parsed, ConfigFault> {
    let table = Table::try_from(&settings)
        .map_err(|error| ConfigFault::from_sentence("", error.to_string()))?;
    Ok((Arc::new(settings), table))
}

/// The available reward types.
#[derive(Clone, Debug)]
pub struct RewardRegistry(Vec<RewardKind>);

impl RewardRegistry {
    /// Creates a registry without any types.
    pub(crate) fn empty() -> Self {
        Self(Vec::new())
    }

    /// Returns all types, in the order of their registration.
    pub fn kinds(&self) -> &[RewardKind] {
        &self.0
    }

    /// Registers additional types.
    ///
    /// # Panics
    /// Panics if two types have the same name.
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

    /// Returns the sorted names of all types.
    pub fn type_names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.0.iter().map(|kind| kind.type_name).collect();
        names.sort_unstable();
        names
    }

    /// Parses a section. The `type` key selects the type, which parses the remaining keys. Values
    /// are only checked for their data type.
    ///
    /// # Errors
    /// Returns an error if `type` is missing or unknown, if a key is unknown, or if a value has the
    /// wrong data type.
    pub fn parse(&self, mut section: Table) -> Result<RewardConfig, ConfigFault> {
        let name = match section.remove("type") {
            Some(toml::Value::String(name)) => name,
            Some(other) => {
                let found = other.to_string();
                let message = format!("found {}; expected a string", short_text(&found));
                return Err(ConfigFault::from_sentence("type", message));
            }
            None => {
                let known = self.type_names().join(", ");
                let message = format!("missing key `type`; expected one of {known}");
                return Err(ConfigFault::from_sentence("", message));
            }
        };
        let Some(&RewardKind { type_name, parse, .. }) = self.kind(&name) else {
            let known = self.type_names().join(", ");
            let message =
                format!("unknown reward type `{}`; expected one of {known}", short_text(&name));
            return Err(ConfigFault::from_sentence("type", message));
        };
        let (spec, settings) = parse(self, section)?;
        let mut table = Table::from_iter([("type".to_owned(), type_name.into())]);
        table.extend(settings);
        Ok(RewardConfig { type_name, table, spec })
    }
}

/// A parsed `[reward]` section.
#[derive(Clone, Debug)]
pub struct RewardConfig {
    type_name: &'static str,
    table: Table,
    spec: Arc<dyn RewardSpec>,
}

impl RewardConfig {
    /// Returns the `type` of the reward.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Returns the `type` of the reward and of all nested rewards.
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

    /// Creates the reward, loading models onto `device`.
    ///
    /// # Errors
    /// Returns an error if [`RewardSpec::check`] or [`RewardSpec::build`] fails.
    pub fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        self.spec.check()?;
        self.spec.build(device)
    }
}

/// Configurations are equal if all settings, including defaults, are equal.
impl PartialEq for RewardConfig {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
    }
}

/// Serializes the section with all defaults filled in.
impl Serialize for RewardConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.table.serialize(serializer)
    }
}

/// Adds the name of a component to an error.
#[must_use]
pub fn of_component(fault: ConfigFault, name: &str) -> ConfigFault {
    ConfigFault::from_sentence("", format!("reward part '{name}': {fault}"))
}

/// Returns whether no weight is negative and the weights sum to 1.
pub(crate) fn are_mean_weights(weights: &[f64]) -> bool {
    let sum: f64 = weights.iter().sum();
    // This comparison also rejects NaN.
    weights.iter().all(|weight| *weight >= 0.0) && (sum - 1.0).abs() <= 1e-6
}

/// Checks that the weight `name` is finite and not negative.
pub(crate) fn check_weight(name: &str, weight: f64) -> Result<(), ConfigFault> {
    match weight.is_finite() && weight >= 0.0 {
        true => Ok(()),
        false => Err(ConfigFault::out_of_range(name, weight, "0 or more")),
    }
}

/// Checks that no weight is negative and that the weights sum to 1. Each weight is passed with its
/// key.
///
/// # Errors
/// Returns an error if a weight is negative or the sum differs from 1.
pub fn check_mean_weights(weights: &[(&str, f64)]) -> Result<(), ConfigFault> {
    for (key, weight) in weights {
        let fault = check_weight(&format!("reward.{key}"), *weight);
        fault.map_err(|fault| ConfigFault { key: (*key).to_owned(), ..fault })?;
    }
    let (keys, weights): (Vec<String>, Vec<f64>) =
        weights.iter().map(|(key, weight)| (format!("reward.{key}"), *weight)).unzip();
    if are_mean_weights(&weights) {
        return Ok(());
    }
    let (last, others) = keys.split_last().expect("there is at least one weight");
    let (others, sum) = (others.join(", "), weights.iter().sum::<f64>());
    ConfigFault::refuse(format!(
        "{others} and {last} must be at least 0 and sum to 1, but they sum to {}",
        short_number(sum)
    ))
}
