#![doc = include_str!("../README.md")]

mod composite;
mod config;
mod embedder;
mod engagement;
mod fields;
mod folder;
mod heuristic;
mod hybrid;
mod infill;
mod outcome;
mod registry;
mod runner;
mod sentence_transformers;
mod text;

pub use composite::{CompositeConfig, CompositePart, CompositeReward, Transform};
pub use embedder::{EmbedderConfig, EmbedderConfigError};
pub use engagement::{
    EngagementDescription, EngagementError, EngagementGate, EngagementMeasures, EngagementModel,
    EngagementObjective, EngagementReport, LearnedReward, engagement_features,
};
pub use grpo_data::{Outcome, PartName, Scored};
pub use heuristic::{DEFAULT_GENERIC_WORDS, GenericWords, HeuristicReward, HeuristicWeights};
pub use infill::{InfillReward, Judge};
pub use outcome::{Reward, Sample};
pub use registry::{
    FromRegistry, Restriction, RewardConfig, RewardKind, RewardRegistry, RewardSpec,
    are_mean_weights, of_component,
};
pub use runner::RewardRunner;
pub use sentence_transformers::{FolderError, SentenceTransformers};
pub use text::{AnswerReward, PatternReward};

/// The kinds of rewards of filled blanks.
pub fn infill_kinds() -> Vec<RewardKind> {
    vec![RewardKind::from_settings::<infill::InfillConfig>("infill")]
}

/// The kinds of rewards of replies.
pub fn reply_kinds() -> Vec<RewardKind> {
    vec![
        RewardKind::from_settings::<engagement::LearnedConfig>("learned"),
        RewardKind::from_settings::<heuristic::HeuristicConfig>("heuristic"),
        RewardKind::composed::<hybrid::HybridConfig>("hybrid"),
    ]
}

/// The kinds of rewards of all tasks.
pub fn task_kinds() -> Vec<RewardKind> {
    [infill_kinds(), reply_kinds()].concat()
}

/// A section of JSON, read with every kind.
#[cfg(test)]
fn parsed(section: serde_json::Value) -> Result<RewardConfig, grpo_data::ConfigFault> {
    let section = serde_json::from_value(section).expect("JSON that TOML can hold");
    RewardRegistry::default().with(task_kinds()).parse(section)
}
