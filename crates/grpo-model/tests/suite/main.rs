//! Tests through the public interface, in one binary.

mod adapters;
mod configs;
mod families;
mod gradients;
mod molgpt;
mod oracle;
mod padding;
mod support;
