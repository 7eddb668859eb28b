//! What proves the other crates: oracles in plain f64 loops, and readers of values that other programs
//! computed. A dev-dependency of the crates that it proves, shipped as `grpo selftest`.
//!
//! - [`oracle`]: advantages, loss, gradient and metrics once more, written from the formulas.

pub mod oracle;
