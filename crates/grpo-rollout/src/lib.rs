#![doc = include_str!("../README.md")]

mod autoregressive;
mod distributed;
mod engine;
mod error;
mod rollout;
mod row;
mod sampling;
mod stop;

pub use autoregressive::{Autoregressive, NextTokens, RolloutSettings, refuse_interrupt};
pub use distributed::Distributed;
pub use error::RolloutError;
pub use rollout::{Actions, Rollout, RolloutRequest, StepKey};
pub use stop::{Decode, StopRule, StopStrings};
