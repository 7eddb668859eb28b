//! Rewards: a batch of completions, as text, becomes a batch of [`Outcome`]s.
//!
//! A reward may be slow, hang or panic; the training must not. So it runs on a thread of its own under a
//! time limit ([`RewardRunner`]), and each completion has its own verdict: scored, abstained or failed. A
//! failure is never a score of 0.

mod composite;
mod config;
mod embedder;
mod fields;
mod folder;
mod molecule;
mod outcome;
mod registry;
mod runner;
mod sentence_transformers;
mod text;

pub use composite::{CompositeConfig, CompositePart, CompositeReward, Transform};
pub use embedder::{EmbedderConfig, EmbedderConfigError};
pub use fields::text_field;
pub use folder::{check_folder, folder_files};
pub use molecule::{LogpWindow, MoleculeReward};
pub use outcome::{Outcome, PartName, Reward, Sample, Scored};
pub use registry::{
    FromRegistry, Restriction, RewardConfig, RewardKind, RewardRegistry, RewardSpec,
    are_mean_weights, of_component,
};
pub use runner::RewardRunner;
pub use sentence_transformers::{FolderError, SentenceTransformers};
pub use text::{AnswerReward, PatternReward};

/// The kinds of rewards of molecules.
pub fn molecule_kinds() -> Vec<RewardKind> {
    vec![RewardKind::from_settings::<molecule::MoleculeConfig>("molecule")]
}

/// A section of JSON, read with every kind.
#[cfg(test)]
fn parsed(section: serde_json::Value) -> Result<RewardConfig, grpo_data::ConfigFault> {
    let section = serde_json::from_value(section).expect("JSON that TOML can hold");
    RewardRegistry::default().with(molecule_kinds()).parse(section)
}
