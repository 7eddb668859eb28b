//! Measures of what a policy generates.

mod means;
mod molecules;
mod rewards;

pub use molecules::{MoleculeSummary, canonical_forms};
pub use rewards::{Change, RewardChange, RewardSummary};
