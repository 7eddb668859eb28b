//! The settings of a reward of replies that is partly learned and partly heuristic.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, deserialize_settings};
use serde::{Deserialize, Serialize};
use toml::Table;

use grpo_rewards::{
    CompositeConfig, CompositePart, FromRegistry, Reward, RewardConfig, RewardRegistry, RewardSpec,
    Transform, are_mean_weights,
};

/// A learned and a heuristic reward, `Σ weight · reward`. See [`grpo_rewards::CompositeReward`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HybridConfig {
    /// Weight of the learned reward.
    learned_weight: f64,
    /// Weight of the heuristic reward.
    heuristic_weight: f64,
    /// A reward of type `learned`.
    learned: RewardConfig,
    /// A reward of type `heuristic`.
    heuristic: RewardConfig,
}

impl FromRegistry for HybridConfig {
    fn from_registry(registry: &RewardRegistry, table: Table) -> Result<Self, ConfigFault> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Hybrid {
            #[serde(default = "default_learned_weight")]
            learned_weight: f64,
            #[serde(default = "default_heuristic_weight")]
            heuristic_weight: f64,
            learned: Table,
            heuristic: Table,
        }
        fn default_learned_weight() -> f64 {
            0.6
        }
        fn default_heuristic_weight() -> f64 {
            0.4
        }
        let Hybrid { learned_weight, heuristic_weight, learned, heuristic } =
            deserialize_settings(table)?;
        let learned = registry.parse(learned).map_err(|fault| fault.below("learned"))?;
        let heuristic = registry.parse(heuristic).map_err(|fault| fault.below("heuristic"))?;
        Ok(Self { learned_weight, heuristic_weight, learned, heuristic })
    }
}

impl HybridConfig {
    /// The same as a composite reward.
    fn composite(&self) -> CompositeConfig {
        let part = |name: &str, weight, reward: &RewardConfig| CompositePart {
            name: name.to_owned(),
            weight,
            transform: Transform::Identity,
            reward: reward.clone(),
        };
        let parts = vec![
            part("learned", self.learned_weight, &self.learned),
            part("heuristic", self.heuristic_weight, &self.heuristic),
        ];
        CompositeConfig { parts, normalize: false }
    }
}

impl RewardSpec for HybridConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        let weights = [self.learned_weight, self.heuristic_weight];
        if !are_mean_weights(&weights) {
            return Err(ConfigFault::from_sentence(
                "",
                format!(
                    "reward.learned_weight and reward.heuristic_weight must each be at least 0 and sum to 1; they sum to {}",
                    weights.iter().sum::<f64>()
                ),
            ));
        }
        for (key, reward) in [("learned", &self.learned), ("heuristic", &self.heuristic)] {
            if reward.type_name() != key {
                return Err(ConfigFault::from_sentence(
                    "",
                    format!(
                        "reward.{key} must have type = \"{key}\"; other rewards are added up by type = \"composite\""
                    ),
                ));
            }
        }
        self.composite().check()
    }

    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        self.composite().build(device)
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        self.composite().files()
    }
}
