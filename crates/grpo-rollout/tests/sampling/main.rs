//! Compares sampling with its definition and between batch layouts, and tests invalid inputs.

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
