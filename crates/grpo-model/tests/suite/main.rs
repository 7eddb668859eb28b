//! Tests of the public interface, compiled into one binary.

mod adapters;
mod cache;
mod conditions;
mod config_files;
mod configs;
mod damage;
mod digest;
mod families;
mod files;
mod gradients;
mod infiller;
mod layouts;
mod molgpt;
mod oracle;
mod peft;
mod peft_refusals;
mod precision;
mod scoring;
mod sequence_scorer;
mod stored_head;
mod support;
mod token_classifier;
mod torch_files;
