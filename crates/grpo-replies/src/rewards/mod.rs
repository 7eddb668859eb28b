//! Rewards for replies: heuristic, learned, and a combination of both.

mod engagement;
mod heuristic;
mod hybrid;

pub use engagement::{
    EngagementDescription, EngagementGate, EngagementMeasures, EngagementModel,
    EngagementObjective, EngagementReport, LearnedReward, engagement_features,
};
pub use heuristic::{DEFAULT_GENERIC_WORDS, GenericWords, HeuristicReward};

use grpo_rewards::RewardKind;

/// Returns the reward types for replies.
pub fn reward_kinds() -> Vec<RewardKind> {
    vec![
        RewardKind::from_settings::<engagement::LearnedConfig>("learned"),
        RewardKind::from_settings::<heuristic::HeuristicConfig>("heuristic"),
        RewardKind::composed::<hybrid::HybridConfig, hybrid::Hybrid>("hybrid"),
    ]
}

/// Parses a JSON section with the reward types for replies.
#[cfg(test)]
fn parsed(
    section: serde_json::Value,
) -> Result<grpo_rewards::RewardConfig, grpo_data::ConfigFault> {
    let section = serde_json::from_value(section).expect("JSON that TOML can hold");
    grpo_rewards::RewardRegistry::default().with(reward_kinds()).parse(section)
}
