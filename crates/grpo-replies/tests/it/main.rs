//! Tests of the public API, compiled to a single binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod cleaning;
mod engagement;
mod grpo;
mod pairs;
mod phases;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/recorder.rs"]
mod recorder;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/support.rs"]
mod support;
mod training;
