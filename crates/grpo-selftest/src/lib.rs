#![doc = include_str!("../README.md")]
//!
//! - [`oracle`]: advantages, loss, gradient and metrics once more, written from the formulas.
//! - [`tensors`]: a case in plain numbers through the public tensor functions, and back.
//! - [`scores`]: the same for log-probabilities.
//! - [`golden`]: what TRL computed.
//! - [`run`]: every suite, and a [`Report`].

mod error;
mod generate;
pub mod golden;
pub mod oracle;
mod report;
pub mod scores;
mod suites;
pub mod tensors;

pub use error::SelftestError;
pub use report::{Miss, Report, Suite};
pub use suites::{Options, run};
