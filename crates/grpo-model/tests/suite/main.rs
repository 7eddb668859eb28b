//! Tests of the public interface, compiled into one binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod adapters;
mod cache;
mod config_files;
mod configs;
mod damage;
mod digest;
mod families;
mod files;
mod gguf;
mod gradients;
mod hub_families;
mod layouts;
mod options;
mod oracle;
mod other_family;
mod peft;
mod peft_kinds;
mod peft_refusals;
mod precision;
mod scoring;
mod stored_head;
mod support;
mod torch_weights;

/// The families of this crate and one from outside.
fn known_families() -> grpo_model::Families {
    grpo_model::Families::default().with([&other_family::OTHER])
}
