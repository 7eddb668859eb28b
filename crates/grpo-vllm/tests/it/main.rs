//! Samples on servers that run in this process.

mod fake;
mod refusals;
mod sampling;
#[path = "../../../grpo-endpoint/tests/it/server.rs"]
#[expect(dead_code, reason = "shared with the tests of grpo-endpoint, which use all of it")]
mod server;
mod several;
mod support;
