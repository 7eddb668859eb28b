#![doc = include_str!("../README.md")]

mod composite;
mod config;
mod embedder;
mod engagement;
mod fields;
mod heuristic;
mod infill;
mod molecule;
mod outcome;
mod runner;
mod sentence_transformers;
mod text;

pub use composite::{CompositePart, CompositeReward, Transform};
pub use config::{RewardConfig, RewardConfigError};
pub use embedder::{EmbedderConfig, EmbedderConfigError};
pub use engagement::{
    EngagementDescription, EngagementError, EngagementGate, EngagementMeasures, EngagementModel,
    EngagementObjective, EngagementReport, LearnedReward, engagement_features,
};
pub use heuristic::{DEFAULT_GENERIC_WORDS, GenericWords, HeuristicReward, HeuristicWeights};
pub use infill::{InfillReward, Judge};
pub use molecule::{LogpWindow, MoleculeReward};
pub use grpo_data::{Outcome, PartName, Scored};
pub use outcome::{Reward, Sample};
pub use runner::RewardRunner;
pub use sentence_transformers::{FolderError, SentenceTransformers};
pub use text::{AnswerReward, PatternReward};
