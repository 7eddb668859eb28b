//! Rewards that are registered from outside of the crate.

mod relative;
