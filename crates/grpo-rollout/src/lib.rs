//! Rollouts: from prompts to groups of sampled completions.
//!
//! [`Rollout`] is an engine. [`Autoregressive`] is the one of causal policies; other engines implement the same trait.

mod autoregressive;
mod engine;
mod error;
mod rollout;
mod row;
mod stop;

pub use autoregressive::{Autoregressive, NextTokens, RolloutSettings, refuse_interrupt};
pub use error::RolloutError;
pub use rollout::{Actions, Rollout, RolloutRequest, StepKey};
pub use stop::{Decode, StopRule, StopStrings};
