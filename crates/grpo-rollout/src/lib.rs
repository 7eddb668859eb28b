//! Rollouts: from prompts to groups of sampled completions, by a policy that continues them or fills their blanks.
//!
//! Each token is a function of (seed, purpose, step, prompt, sample, position) and the policy, to the last bit: what is
//! sampled beside it, how many at a time, and by how many threads, decides nothing but speed.

mod denoising;
mod engine;
mod error;
mod infilling;
mod rollout;
mod row;
mod sampler;
mod stop;

pub use denoising::{
    Critic, Denoising, DenoisingSettings, Filled, Quality, RemaskRule, RemaskSchedule, Trust,
    Wrongness,
};
pub use error::RolloutError;
pub use infilling::{Infilling, InfillingSettings};
pub use rollout::{Rollout, RolloutSettings, StepKey};
pub use sampler::Sampler;
pub use stop::{Decode, StopRule, StopStrings};
