#![doc = include_str!("../README.md")]

mod accumulate;
mod adaptive_kl;
mod advantage;
mod advantage_config;
mod config;
mod dual;
mod entropy;
mod error;
mod kl;
mod loss;
mod loss_inputs;
mod mismatch;
mod moments;
mod outcome;
mod preset;
mod reduction;
mod statistics;
mod surrogate;
mod terms;
mod token_loss;

pub use accumulate::accumulate;
pub use adaptive_kl::{AdaptiveKl, KlController};
pub use advantage::{
    AdvantageError, Advantages, MeanAndStd, advantages_against, group_advantages,
    weighted_group_advantages,
};
pub use advantage_config::{AdvantageConfig, Aggregation, Baseline, Deviation, RewardScale};
pub use config::LossConfig;
pub use entropy::{EntropyBonus, EntropyController, HighEntropy};
pub use error::ConfigError;
pub use kl::{KlConfig, KlEstimator, KlPlacement, sequence_kl};
pub use loss::{LossOutput, grpo_loss};
pub use loss_inputs::LossInputs;
pub use mismatch::{MismatchCorrection, MismatchMode, RatioLevel};
pub use outcome::TokenOutcome;
pub use preset::Preset;
pub use reduction::{BatchTotals, Reduction};
pub use statistics::TokenStatistics;
pub use surrogate::Surrogate;
pub use terms::{Clipping, LossTerms, SamplingTerms, SequenceTerms, TokenTerms};
