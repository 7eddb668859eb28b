//! Compares sampling with its definition and between batch layouts, and tests invalid inputs.

mod activations;
mod conditions;
mod definition;
mod engine;
mod episodes;
mod invariance;
mod layouts;
mod refusals;
mod stops;
mod support;
