#![doc = include_str!("../README.md")]

mod denoising;
mod engine;
mod error;
mod infilling;
mod rollout;
mod row;
mod sampler;
mod sampling;
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
