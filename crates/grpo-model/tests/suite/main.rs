//! Tests through the public interface, in one binary.

mod adapters;
mod config_files;
mod configs;
mod damage;
mod families;
mod files;
mod gradients;
mod molgpt;
mod oracle;
mod padding;
mod peft;
mod precision;
mod support;
