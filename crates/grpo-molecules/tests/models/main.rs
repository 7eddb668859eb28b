//! Tests of MolGPT, compared with plain f64 loops and with what torch computes.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod conditions;
mod molgpt;
#[expect(dead_code, reason = "shared with the tests of grpo-model, which use all of it")]
#[path = "../../../grpo-model/tests/suite/support.rs"]
mod support;
mod torch_files;
