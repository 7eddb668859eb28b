//! Measures of what a policy generates.

mod molecules;

pub use molecules::{MoleculeSummary, canonical_forms};
