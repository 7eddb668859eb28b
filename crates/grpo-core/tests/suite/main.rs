//! The whole of grpo-core's tests, in one binary so that it is linked once.

mod advantages;
mod against_oracle;
mod invariance;
mod reductions;
mod strategies;
mod support;
mod surrogates;
mod toy;
