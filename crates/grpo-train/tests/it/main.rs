//! Integration tests, in a single binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod adapted;
mod broken;
mod choices;
mod config;
mod config_precision;
mod cuts;
mod extension;
mod family;
mod guards;
mod hygiene;
mod learning;
mod ledger;
mod metrics;
mod one_file;
mod optimizer;
mod oracle;
mod polychromic;
mod pretrain;
mod ranks;
mod recorder;
mod references;
mod same_bits;
mod sampler_check;
mod step;
mod supervised;
mod support;
mod threads;
mod token_trace;
mod two_turns;
