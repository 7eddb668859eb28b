//! Tests of the log-probability path. The f64 loops are those of grpo-selftest.

mod draw;
mod gradients;
mod settings;
mod values;
