//! The `[reward]` section of a [`ComponentsReward`].

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, deserialize_settings};
use grpo_rewards::{
    Desirability, FromRegistry, Reward, RewardConfig, RewardRegistry, RewardSpec, check_part_names,
    of_component,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::aggregation::Aggregation;
use super::expression::Expression;
use super::fields::ComponentFields;
use super::property::Property;
use super::reward::{Component, ComponentsReward, Role, Source};

/// The configuration of a [`ComponentsReward`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ComponentsConfig {
    aggregation: Aggregation,
    components: Vec<ComponentFields>,
    /// The rewards of external components, each with its name.
    #[serde(skip)]
    external: Vec<(String, RewardConfig)>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Section {
    /// How the scores are combined.
    #[serde(default)]
    aggregation: Aggregation,
    /// The components.
    #[schemars(extend("x-basic" = true))]
    components: Vec<ComponentFields>,
}

impl FromRegistry for ComponentsConfig {
    /// Fills in names, weights, goals and transforms, so that the recorded configuration contains
    /// them.
    fn from_registry(registry: &RewardRegistry, table: Table) -> Result<Self, ConfigFault> {
        let Section { aggregation, components } = deserialize_settings(table)?;
        let mut external = Vec::new();
        let complete = |(index, mut fields): (usize, ComponentFields)| {
            let within = |fault: ConfigFault| fault.below(&format!("components[{index}]"));
            fields.complete().map_err(within)?;
            if let Some(table) = &fields.reward {
                let reward = registry.parse(table.clone());
                let reward = reward.map_err(|fault| within(fault.below("reward")))?;
                fields.reward = Some(reward.table().clone());
                external.push((fields.name().to_owned(), reward));
            }
            Ok(fields)
        };
        let components =
            components.into_iter().enumerate().map(complete).collect::<Result<_, ConfigFault>>()?;
        Ok(Self { aggregation, components, external })
    }
}

impl RewardSpec for ComponentsConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        if self.components.is_empty() {
            return ConfigFault::refuse(
                "reward.components is empty; add at least one, for example { property = \"qed\" }",
            );
        }
        check_part_names("reward.components", self.components.iter().map(ComponentFields::name))?;
        for (name, reward) in &self.external {
            let spec = reward.spec();
            if let Some(restriction) = spec.restriction() {
                let fault = ConfigFault::from_sentence("", restriction.in_composite);
                return Err(of_component(fault, name));
            }
            spec.check().map_err(|fault| of_component(fault, name))?;
        }
        if self.weight_sum() <= 0.0 {
            return ConfigFault::refuse(
                "all weights of reward.components are 0; give at least one component that is not a filter a positive weight",
            );
        }
        // Checks the parts that are created again by `build`.
        sources(&self.components, &mut std::iter::repeat_with(|| None)).map(drop)
    }

    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let external = self.external.iter().map(|(name, reward)| {
            reward.spec().build(device).map_err(|fault| of_component(fault, name))
        });
        let external: Vec<Arc<dyn Reward>> = external.collect::<Result<_, _>>()?;
        let mut components = self.components.clone();
        components.iter_mut().for_each(|fields| fields.reads_file = true);
        let sources = sources(&components, &mut external.into_iter().map(Some))?;
        let sum = self.weight_sum();
        let component = |(fields, source): (&ComponentFields, Option<Source>)| {
            let transform = fields.transform.clone();
            Some(Component {
                name: fields.name().to_owned(),
                source: source?,
                transform: transform?,
                role: match fields.filter {
                    true => Role::Filter,
                    false => Role::Score(fields.weight.unwrap_or(1.0) / sum),
                },
            })
        };
        let components = self.components.iter().zip(sources).filter_map(component).collect();
        Ok(Arc::new(ComponentsReward { components, aggregation: self.aggregation }))
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        let own = self.components.iter().filter_map(|fields| fields.file.clone());
        let mut files: Vec<(&'static str, PathBuf)> = own.map(|file| ("reward", file)).collect();
        for (name, reward) in &self.external {
            files.extend(reward.spec().files().map_err(|fault| of_component(fault, name))?);
        }
        Ok(files)
    }

    fn components(&self) -> Vec<&RewardConfig> {
        self.external.iter().map(|(_, reward)| reward).collect()
    }

    fn admit(&self) -> Result<Vec<String>, ConfigFault> {
        let mut warnings = Vec::new();
        for (name, reward) in &self.external {
            warnings.extend(reward.spec().admit().map_err(|fault| of_component(fault, name))?);
        }
        Ok(warnings)
    }

    fn desirabilities(&self) -> Vec<(String, Desirability)> {
        let named =
            |fields: &ComponentFields| Some((fields.name().to_owned(), fields.transform.clone()?));
        self.components.iter().filter_map(named).collect()
    }
}

impl ComponentsConfig {
    fn weight_sum(&self) -> f64 {
        let scores = self.components.iter().filter(|fields| !fields.filter);
        scores.map(|fields| fields.weight.unwrap_or(1.0)).sum()
    }
}

/// Creates the source of each component. `external` yields the rewards of external components, or
/// `None` to check the remaining ones only.
fn sources(
    components: &[ComponentFields],
    external: &mut dyn Iterator<Item = Option<Arc<dyn Reward>>>,
) -> Result<Vec<Option<Source>>, ConfigFault> {
    let source = |(index, fields): (usize, &ComponentFields)| {
        let within = |fault: ConfigFault| fault.below(&format!("reward.components[{index}]"));
        if let Some(text) = &fields.expression {
            let names = components[..index].iter().map(|fields| fields.name().to_owned()).collect();
            let expression = Expression::parse(text, names);
            let expression = expression
                .map_err(|fault| within(ConfigFault::from_sentence("expression", fault)))?;
            return Ok(Some(Source::Expression(expression)));
        }
        Ok(match Property::parse(fields).map_err(within)? {
            Some(property) => Some(Source::Property(property)),
            None => external.next().flatten().map(Source::External),
        })
    };
    components.iter().enumerate().map(source).collect()
}
