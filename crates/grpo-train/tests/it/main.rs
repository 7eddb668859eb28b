//! Tests through the public interface, in one binary.

mod choices;
mod config;
mod hygiene;
mod learning;
mod metrics;
mod oracle;
mod pretrain;
mod step;
mod support;
mod threads;
