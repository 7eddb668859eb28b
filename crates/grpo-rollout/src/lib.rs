//! Rollouts: from prompts to groups of sampled completions.
//!
//! Each token is a function of (seed, purpose, step, prompt, sample, position) and the policy, so that the
//! layout of batches decides nothing but speed and, by way of rounding in another shape of matrix product, the
//! last bits of a logit.

mod rollout;

pub use rollout::{Rollout, RolloutError, RolloutSettings, StepKey};
