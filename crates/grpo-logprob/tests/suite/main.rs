//! Tests log-probabilities. The reference implementation in f64 loops is part of grpo-selftest.

mod draw;
mod gradients;
mod settings;
mod values;
