//! Integration tests, in a single binary.

mod combined;
mod config;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/oracle.rs"]
mod oracle;
mod staleness;
mod steps;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/support.rs"]
mod support;
