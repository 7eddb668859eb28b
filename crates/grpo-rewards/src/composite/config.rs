//! Configuration of a composite reward.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, deserialize_settings, short_number};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::{CompositeReward, Part, Transform};
use crate::identity::VALID;
use crate::registry::{are_mean_weights, check_weight};
use crate::{FromRegistry, Reward, RewardConfig, RewardRegistry, RewardSpec, of_component};

/// Configuration of a [`CompositeReward`].
#[derive(Clone, Debug, Serialize)]
pub struct CompositeConfig {
    /// The components of the sum.
    pub parts: Vec<CompositePart>,
    /// Whether to divide the weights by their sum. If this is not set, the weights must sum to 1.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub normalize: bool,
}

/// A component of a [`CompositeConfig`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompositePart {
    /// Name in metrics and recorded completions, consisting of lower-case letters, digits and `_`.
    pub name: String,
    /// Weight in the sum.
    pub weight: f64,
    /// Transform that is applied to the score before it is multiplied by the weight.
    #[serde(skip_serializing_if = "Transform::is_identity")]
    pub transform: Transform,
    /// The reward that computes the score.
    pub reward: RewardConfig,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Composite {
    /// The terms, as `[[reward.parts]]`.
    parts: Vec<Component>,
    /// Divide weights by their sum; otherwise weights that do not sum to 1 are an error.
    #[serde(default)]
    normalize: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Component {
    /// Name in metrics and recorded completions: lower-case letters, digits, `_`.
    name: String,
    /// Weight in the sum, at least 0.
    weight: f64,
    /// Transform of the score x.
    #[serde(default)]
    transform: Transform,
    /// A reward, like the `[reward]` section.
    #[schemars(schema_with = "crate::schema::any_reward")]
    reward: Table,
}

impl FromRegistry for CompositeConfig {
    fn from_registry(registry: &RewardRegistry, table: Table) -> Result<Self, ConfigFault> {
        let Composite { parts, normalize } = deserialize_settings(table)?;
        let part = |(index, part): (usize, Component)| {
            let Component { name, weight, transform, reward } = part;
            let reward = registry.parse(reward);
            let reward = reward.map_err(|fault| fault.below(&format!("parts[{index}].reward")))?;
            Ok::<_, ConfigFault>(CompositePart { name, weight, transform, reward })
        };
        let parts = parts.into_iter().enumerate().map(part).collect::<Result<_, _>>()?;
        Ok(Self { parts, normalize })
    }
}

/// Reserved names. They are used for other metrics, which can be at any nesting level.
const TAKEN: [(&str, &str); 4] = [
    ("raw", "the value of a part before its transform"),
    ("diversity_bonus", "the value of [diversity_bonus]"),
    ("diversity_filter", "the value of [diversity_filter]"),
    (VALID, "the validity of completions"),
];

/// Returns what a name is reserved for, or `None` if a user may choose it for a component.
pub(crate) fn reserved_for(name: &str) -> Option<&'static str> {
    TAKEN.into_iter().find(|(taken, _)| *taken == name).map(|(_, whose)| whose)
}

impl RewardSpec for CompositeConfig {
    /// Checks that the names are valid and unique, that the weights sum to 1 or can be normalized,
    /// and that the configuration of each component is valid.
    fn check(&self) -> Result<(), ConfigFault> {
        if self.parts.is_empty() {
            return ConfigFault::refuse(
                "reward.parts is empty; a composite reward requires at least one part",
            );
        }
        check_part_names("reward.parts", self.parts.iter().map(|part| part.name.as_str()))?;
        for part in &self.parts {
            let of_part = |fault| of_component(fault, &part.name);
            part.transform
                .check()
                .map_err(|fault| of_part(ConfigFault::from_sentence("", fault)))?;
            let spec = part.reward.spec();
            if let Some(restriction) = spec.restriction() {
                return Err(of_part(ConfigFault::from_sentence("", restriction.in_composite)));
            }
            spec.check().map_err(of_part)?;
        }
        for part in &self.parts {
            check_weight("weight", part.weight).map_err(|fault| of_component(fault, &part.name))?;
        }
        let weights: Vec<f64> = self.parts.iter().map(|part| part.weight).collect();
        let sum: f64 = weights.iter().sum();
        let can_be_mean = sum.is_finite() && sum > 0.0;
        match are_mean_weights(&weights) || (self.normalize && can_be_mean) {
            true => Ok(()),
            false => ConfigFault::refuse(format!(
                "the weights of reward.parts must be at least 0 and sum to 1, but they sum to {}; change them, or set reward.normalize = true with at least one weight above 0",
                short_number(sum)
            )),
        }
    }

    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let sum: f64 = self.parts.iter().map(|part| part.weight).sum();
        let build = |part: &CompositePart| -> Result<Part, ConfigFault> {
            let reward = part.reward.spec().build(device);
            Ok(Part {
                name: part.name.clone(),
                // Without normalization, the sum is 1 up to rounding errors.
                weight: part.weight / sum,
                transform: part.transform,
                reward: reward.map_err(|fault| of_component(fault, &part.name))?,
            })
        };
        Ok(Arc::new(CompositeReward::new(self.parts.iter().map(build).collect::<Result<_, _>>()?)))
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        self.of_each(|spec| spec.files())
    }

    fn components(&self) -> Vec<&RewardConfig> {
        self.parts.iter().map(|part| &part.reward).collect()
    }

    fn admit(&self) -> Result<Vec<String>, ConfigFault> {
        self.of_each(|spec| spec.admit())
    }
}

impl CompositeConfig {
    /// Collects the values that `ask` returns for each component.
    fn of_each<T>(
        &self,
        ask: impl Fn(&dyn RewardSpec) -> Result<Vec<T>, ConfigFault>,
    ) -> Result<Vec<T>, ConfigFault> {
        let mut all = Vec::new();
        for part in &self.parts {
            all.extend(ask(part.reward.spec()).map_err(|fault| of_component(fault, &part.name))?);
        }
        Ok(all)
    }
}

/// Checks that the names of the parts in `list` can be used in metrics and are unique.
///
/// # Errors
/// Returns an error if a name is empty, contains other characters than lower-case letters, digits
/// and `_`, is reserved, or is used twice.
pub fn check_part_names<'a>(
    list: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), ConfigFault> {
    let mut seen = BTreeSet::new();
    names.into_iter().try_for_each(|name| {
        check_name(list, name)?;
        match seen.insert(name) {
            true => Ok(()),
            false => {
                ConfigFault::refuse(format!("{list} has two parts named '{name}'; rename one"))
            }
        }
    })
}

fn check_name(list: &str, name: &str) -> Result<(), ConfigFault> {
    let is_usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || !name.chars().all(is_usable) {
        return ConfigFault::refuse(format!(
            "invalid part name '{name}' in {list}; use lowercase letters, digits and `_`"
        ));
    }
    match reserved_for(name) {
        Some(whose) => ConfigFault::refuse(format!(
            "part name '{name}' in {list} is reserved for {whose}; choose another name"
        )),
        None => Ok(()),
    }
}
