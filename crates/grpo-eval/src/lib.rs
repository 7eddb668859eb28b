//! Measures of what a policy generates.

mod means;
mod rewards;

pub use means::{mean, standard_error};
pub use rewards::{Change, RewardChange, RewardSummary};
