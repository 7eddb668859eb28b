//! Sampling against the definition, against itself in other layouts, and against what it refuses.

mod definition;
mod engine;
mod invariance;
mod layouts;
mod refusals;
mod stops;
mod support;
