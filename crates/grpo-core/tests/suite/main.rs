//! All tests of grpo-core, in a single binary to reduce link time.

mod acceptance;
mod acceptance_runs;
mod adaptive_kl;
mod advantages;
mod advantages_by_hand;
mod against_oracle;
mod bandit;
mod config;
mod entropy;
mod extremes;
mod gradients;
mod invariance;
mod kl;
mod log_variance;
mod masks;
mod missing;
mod outcomes;
mod reductions;
mod statistics;
mod strategies;
mod support;
mod surrogates;
mod toy;
