//! Group Relative Policy Optimization (Shao et al. 2024, "DeepSeekMath", §4), without text, files or models.
//!
//! - [`group_advantages`]: rewards of groups of completions → advantages, on the host in f64.
//! - [`grpo_loss`]: log-probabilities and advantages → a differentiable loss.
//! - [`TokenStatistics`]: what the loss was made of, in numbers.
//! - [`LossConfig`]: three independent choices (surrogate bounds, KL penalty, reduction); the familiar names
//!   are presets of it ([`Preset`]).
//! - [`clip_by_global_norm`]: one norm over all gradients, as reinforcement learning wants it.

mod advantage;
mod clip;
mod config;
mod loss;
mod reduction;
mod statistics;

pub use advantage::{AdvantageConfig, AdvantageError, Advantages, RewardScale, group_advantages};
pub use clip::{accumulate, clip_by_global_norm};
pub use config::{ConfigError, KlConfig, KlEstimator, LossConfig, Preset};
pub use loss::{LossInputs, grpo_loss};
pub use reduction::{BatchTotals, Reduction, token_weights};
pub use statistics::{HostTokens, TokenStatistics};
