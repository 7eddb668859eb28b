//! Configuration of a reward that combines a learned and a heuristic reward.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, deserialize_settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use grpo_rewards::{
    CompositeConfig, CompositePart, FromRegistry, Reward, RewardConfig, RewardRegistry, RewardSpec,
    Transform, check_mean_weights,
};

/// A weighted sum of a learned and a heuristic reward. See [`grpo_rewards::CompositeReward`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HybridConfig {
    /// Weight of the learned reward.
    learned_weight: f64,
    /// Weight of the heuristic reward.
    heuristic_weight: f64,
    /// The learned reward. Its type must be `learned`.
    learned: RewardConfig,
    /// The heuristic reward. Its type must be `heuristic`.
    heuristic: RewardConfig,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hybrid {
    /// Weight of the learned reward; both weights are at least 0 and sum to 1.
    #[serde(default = "default_learned_weight")]
    learned_weight: f64,
    /// Weight of the heuristic reward.
    #[serde(default = "default_heuristic_weight")]
    heuristic_weight: f64,
    /// Reward of type `learned`.
    #[schemars(schema_with = "grpo_rewards::schema::any_reward")]
    learned: Table,
    /// Reward of type `heuristic`.
    #[schemars(schema_with = "grpo_rewards::schema::any_reward")]
    heuristic: Table,
}

fn default_learned_weight() -> f64 {
    0.6
}

fn default_heuristic_weight() -> f64 {
    0.4
}

impl FromRegistry for HybridConfig {
    fn from_registry(registry: &RewardRegistry, table: Table) -> Result<Self, ConfigFault> {
        let Hybrid { learned_weight, heuristic_weight, learned, heuristic } =
            deserialize_settings(table)?;
        let learned = registry.parse(learned).map_err(|fault| fault.below("learned"))?;
        let heuristic = registry.parse(heuristic).map_err(|fault| fault.below("heuristic"))?;
        Ok(Self { learned_weight, heuristic_weight, learned, heuristic })
    }
}

impl HybridConfig {
    /// Converts the configuration to an equivalent composite reward.
    fn composite(&self) -> CompositeConfig {
        let part = |name: &str, weight, reward: &RewardConfig| CompositePart {
            name: name.to_owned(),
            weight,
            transform: Transform::Identity {},
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
        check_mean_weights(&[
            ("learned_weight", self.learned_weight),
            ("heuristic_weight", self.heuristic_weight),
        ])?;
        for (key, reward) in [("learned", &self.learned), ("heuristic", &self.heuristic)] {
            if reward.type_name() != key {
                return ConfigFault::refuse(format!(
                    "reward.{key} must have type = \"{key}\"; use type = \"composite\" to combine other rewards"
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rewards::parsed;

    fn config(settings: serde_json::Value) -> RewardConfig {
        parsed(settings).unwrap()
    }

    fn fault(settings: serde_json::Value) -> String {
        config(settings).spec().check().unwrap_err().to_string()
    }

    /// Regression test: an unknown reward type was treated as heuristic.
    #[test]
    fn a_hybrid_is_of_one_learned_and_one_heuristic_reward() {
        let heuristic = json!({"type": "heuristic", "embedder": {"type": "hashed_ngrams"}});
        let learned = json!({"type": "learned", "model": "nowhere"});
        let hybrid = |learned: &serde_json::Value, heuristic: &serde_json::Value| json!({"type": "hybrid", "learned": learned, "heuristic": heuristic});
        assert_eq!(config(hybrid(&learned, &heuristic)).spec().check(), Ok(()));
        assert!(fault(hybrid(&heuristic, &heuristic)).starts_with("reward.learned must have type"));
        assert!(fault(hybrid(&learned, &learned)).starts_with("reward.heuristic must have type"));
        let mut weights = hybrid(&learned, &heuristic);
        weights["learned_weight"] = json!(0.5);
        assert!(fault(weights).contains("they sum to 0.9"));
        let missing = config(hybrid(&learned, &heuristic)).build(&Device::flex());
        let missing = missing.map(drop).unwrap_err().to_string();
        assert!(missing.starts_with("reward part 'learned':"), "{missing}");
    }
}
