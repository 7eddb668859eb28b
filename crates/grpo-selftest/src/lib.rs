#![doc = include_str!("../README.md")]
//!
//! - [`tensors`]: evaluates a case with the public tensor functions.
//! - [`scores`]: evaluates log-probabilities in the same way.
//! - [`golden`]: reference values from TRL and other libraries.
//! - [`run`]: runs all suites and returns a [`Report`].

mod error;
pub mod golden;
mod options;
mod report;
pub mod scores;
mod suites;
pub mod tensors;

pub use error::SelftestError;
pub use options::Options;
pub use report::{Miss, Report, Suite};
pub use suites::run;
