//! Tests of infillers, judges and token classifiers, compared with plain f64 loops.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

#[expect(dead_code, reason = "shared with the tests of grpo-model, which use all of it")]
#[path = "../../../grpo-model/tests/suite/configs.rs"]
mod configs;
mod infiller;
#[expect(dead_code, reason = "shared with the tests of grpo-model, which use all of it")]
#[path = "../../../grpo-model/tests/suite/oracle.rs"]
mod oracle;
mod sequence_scorer;
mod sizes;
#[expect(dead_code, reason = "shared with the tests of grpo-model, which use all of it")]
#[path = "../../../grpo-model/tests/suite/support.rs"]
mod support;
mod token_classifier;

/// The families of this crate and of those below it.
fn known_families() -> grpo_model::Families {
    grpo_infill::formats().families
}
