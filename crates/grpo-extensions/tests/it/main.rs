//! Integration tests, in a single binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod combined;
mod config;
mod metrics;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/oracle.rs"]
mod oracle;
mod staleness;
mod steps;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/support.rs"]
mod support;
