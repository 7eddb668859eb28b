//! Compares sampling with its definition and between batch layouts, and tests invalid inputs.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod activations;
mod conditions;
mod definition;
mod engine;
mod episodes;
mod invariance;
mod layouts;
#[path = "../../../grpo-model/tests/suite/other_family.rs"]
mod other_family;
mod refusals;
mod stops;
mod support;
