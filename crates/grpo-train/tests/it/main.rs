//! Integration tests, in a single binary.

mod adapted;
mod choices;
mod combined;
mod config;
mod config_precision;
mod cuts;
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
mod sampler_check;
mod staleness;
mod step;
mod supervised;
mod support;
mod threads;
mod token_trace;
