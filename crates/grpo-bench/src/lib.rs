//! Benchmarks: models of several sizes, and repeatable work on them.
//!
//! The program `grpo-bench` runs the [`cases`] that Criterion cannot measure, each in a separate
//! process; the others are in `benches/functions.rs`. docs/benchmarks.md describes both.

pub mod cases;
pub mod models;
pub mod work;
