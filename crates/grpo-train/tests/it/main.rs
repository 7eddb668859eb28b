//! Tests through the public interface, in one binary.

mod adapted;
mod choices;
mod combined;
mod config;
mod cuts;
mod engagement;
mod guards;
mod hygiene;
mod infilling;
mod judge;
mod learning;
mod ledger;
mod masked_lm;
mod metrics;
mod optimizer;
mod oracle;
mod passages;
mod polychromic;
mod pretrain;
mod references;
mod sampler_check;
mod step;
mod supervised;
mod support;
mod threads;
mod token_record;
