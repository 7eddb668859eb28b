//! Tests of the public interface, compiled into one binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod characters;
mod denoising;
mod grpo;
mod infilling;
mod judge;
mod masked_lm;
mod masked_stream;
mod masking;
mod masking_plan;
mod models;
mod neighbours;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/oracle.rs"]
mod oracle;
mod passages;
#[path = "../../../grpo-train/tests/it/recorder.rs"]
mod recorder;
mod support;
mod texts;
#[expect(dead_code, reason = "shared with the tests of grpo-train, which use all of it")]
#[path = "../../../grpo-train/tests/it/support.rs"]
mod training;
