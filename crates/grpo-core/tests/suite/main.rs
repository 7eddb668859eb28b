//! The whole of grpo-core's tests, in one binary so that it is linked once.

mod acceptance;
mod advantages;
mod config;
mod gradients;
mod loss;
mod oracle;
mod support;
