#![doc = include_str!("../README.md")]

mod rewards;

pub use rewards::{Change, RewardChange, RewardSummary};
