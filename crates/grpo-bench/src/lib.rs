//! Benchmarks that require models.
//!
//! The command `grpo bench` runs the [`cases`] that cannot be measured with Criterion, each in a
//! separate process. The Criterion benchmarks are in `benches/functions.rs`. Both are described in
//! docs/benchmarks.md. `grpo gpu-check` compares a device with the CPU, see docs/gpu.md.

pub mod cases;
mod command;
mod gpu_check;
pub mod models;
pub mod scaling;
pub mod work;

pub use command::Bench;
