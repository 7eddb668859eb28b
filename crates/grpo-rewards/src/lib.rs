#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod answer;
mod calls;
mod composite;
mod config;
mod desirability;
mod embedder;
pub mod external;
mod fields;
mod folder;
mod identified;
mod identity;
mod outcome;
mod registry;
mod runner;
pub mod schema;
mod sentence_transformers;
mod text;
mod votes;

pub use answer::AnswerReward;
pub use calls::{ExternalCalls, ItemTime};
pub use composite::{CompositeConfig, CompositePart, CompositeReward, Transform, check_part_names};
pub use desirability::{Desirability, Goal};
pub use embedder::EmbedderConfig;
pub use fields::text_field;
pub use folder::{check_folder, folder_files};
pub use grpo_data::{Outcome, PartName, Scored};
pub use identified::IdentifiedReward;
pub use identity::{Identify, Identity};
pub use outcome::{Reward, RewardInput};
pub use registry::{
    FromRegistry, Restriction, RewardConfig, RewardKind, RewardRegistry, RewardSpec,
    check_mean_weights, of_component,
};
pub use runner::RewardRunner;
pub use sentence_transformers::{FolderError, SentenceTransformers};
pub use text::PatternReward;
pub use votes::Votes;

impl Default for RewardRegistry {
    /// Returns the task-independent reward types.
    fn default() -> Self {
        Self::empty().with([
            RewardKind::from_settings::<config::AnswerConfig>("answer"),
            RewardKind::from_settings::<config::PatternConfig>("pattern"),
            RewardKind::composed::<CompositeConfig, composite::Composite>("composite"),
            RewardKind::external::<external::CommandConfig>("command"),
            RewardKind::external::<external::PythonConfig>("python"),
        ])
    }
}

/// Parses a JSON section with the task-independent reward types.
#[cfg(test)]
fn parsed(section: serde_json::Value) -> Result<RewardConfig, grpo_data::ConfigFault> {
    let section = serde_json::from_value(section).expect("JSON that TOML can hold");
    RewardRegistry::default().parse(section)
}
