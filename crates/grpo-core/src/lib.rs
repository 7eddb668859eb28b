#![doc = include_str!("../README.md")]

mod accumulate;
mod adaptive_kl;
mod advantage;
mod advantage_config;
mod config;
mod entropy;
mod fate;
mod kl;
mod loss;
mod loss_inputs;
mod mismatch;
mod moments;
mod preset;
mod range;
mod reduction;
mod statistics;
mod surrogate;

pub use accumulate::accumulate;
pub use adaptive_kl::{AdaptiveKl, KlController};
pub use advantage::{
    AdvantageError, Advantages, MeanAndStd, group_advantages, weighted_group_advantages,
};
pub use advantage_config::{AdvantageConfig, Aggregation, Baseline, Deviation, RewardScale};
pub use config::{ConfigError, EntropyBonus, LossConfig, RatioLevel};
pub use entropy::{EntropyController, HighEntropy};
pub use fate::{TokenFate, token_fates};
pub use kl::{KlConfig, KlEstimator, KlPlacement, sequence_kl};
pub use loss::grpo_loss;
pub use loss_inputs::LossInputs;
pub use mismatch::{MismatchCorrection, MismatchMode};
pub use preset::Preset;
pub use reduction::{BatchTotals, Reduction};
pub use statistics::{HostTokens, TokenStatistics};
pub use surrogate::Surrogate;
