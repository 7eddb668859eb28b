#![doc = include_str!("../README.md")]

mod means;
mod rewards;

pub use means::{mean, standard_error};
pub use rewards::{Change, RewardChange, RewardSummary};
