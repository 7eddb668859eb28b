#![doc = include_str!("../README.md")]

mod molecules;
mod rewards;

pub use molecules::{MoleculeSummary, canonical_forms};
pub use rewards::{Change, RewardChange, RewardSummary};
