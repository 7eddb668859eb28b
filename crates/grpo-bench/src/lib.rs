//! What the benchmarks measure: models of several sizes, and work on them, a repetition at a time.
//!
//! The program `grpo-bench` runs the [`cases`] that Criterion cannot measure, a process each; the others are in
//! `benches/functions.rs`. docs/benchmarks.md describes both.

pub mod cases;
pub mod models;
pub mod work;
