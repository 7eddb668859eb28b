//! Sampling against the definition, against itself in other layouts, and against what it refuses.

mod definition;
mod denoising;
mod engine;
mod infilling;
mod invariance;
mod layouts;
mod neighbours;
mod refusals;
mod stops;
mod support;
