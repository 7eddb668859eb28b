//! Rollouts: from prompts to groups of sampled completions.
//!
//! Each token is a function of (seed, purpose, step, prompt, sample, position) and the policy, so that the
//! layout of batches decides nothing but speed.

mod rollout;

pub use rollout::{Rollout, RolloutError, RolloutSettings, StepKey};
