//! Tests through the public interface, in one binary.

mod configs;
mod families;
mod molgpt;
mod oracle;
mod padding;
mod support;
