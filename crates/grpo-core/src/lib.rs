#![cfg_attr(feature = "burn", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "burn"), doc = "The mathematics of GRPO in plain f64.")]

#[cfg(feature = "burn")]
mod accumulate;
mod adaptive_kl;
mod advantage;
mod advantage_config;
mod config;
mod dual;
mod entropy;
mod error;
mod host_inputs;
mod kl;
mod loss;
mod mismatch;
mod moments;
mod outcome;
mod preset;
mod reduction;
mod statistics;
mod surrogate;
#[cfg(feature = "burn")]
mod tape;
mod terms;
mod token_loss;

#[cfg(feature = "burn")]
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
pub use host_inputs::HostInputs;
pub use kl::{KlConfig, KlEstimator, KlPlacement, sequence_kl};
pub use loss::loss_terms;
pub use mismatch::{MismatchCorrection, MismatchMode, RatioLevel};
pub use outcome::TokenOutcome;
pub use preset::Preset;
pub use reduction::{BatchTotals, Reduction};
pub use statistics::{CORRECTION, REFERENCE_METRICS, TokenStatistics};
pub use surrogate::Surrogate;
#[cfg(feature = "burn")]
pub use tape::{LossInputs, LossOutput, grpo_loss};
pub use terms::{Clipping, LossTerms, SamplingTerms, SequenceTerms, TokenColumn, TokenTerms};
