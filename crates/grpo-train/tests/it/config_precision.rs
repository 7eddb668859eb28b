//! Tests which settings of precision are refused.

use grpo_core::{MismatchCorrection, MismatchMode, RatioLevel};
use grpo_model::{ProductPrecision, WeightPrecision};
use grpo_train::{AboveTolerance, GrpoConfig};

use crate::config::check;
use crate::support::config;

#[test]
fn weights_that_are_rounded_twice() {
    for (precision, name) in [(ProductPrecision::Bf16, "bf16"), (ProductPrecision::F16, "f16")] {
        let twice = |c: &mut GrpoConfig| {
            c.train.precision = precision;
            c.sampling.weights = WeightPrecision::Q8;
        };
        let expected = format!(
            "sampling.weights cannot be combined with train.precision = \"{name}\", which already rounds the weights for sampling; remove sampling.weights"
        );
        check(twice, &expected);
    }
}

#[test]
fn rounded_weights_without_a_correction() {
    let refused = |c: &mut GrpoConfig| c.sampling.weights = WeightPrecision::Bf16;
    let expected = "sampling: weights = \"bf16\" samples from a different policy than the trained one, which stops a run with sampler_check.above = \"stop\"; set loss.mismatch, or sampler_check.above = \"correct\"";
    check(refused, expected);
    let mismatch = MismatchCorrection {
        level: RatioLevel::Token,
        mode: MismatchMode::Truncate,
        min: 0.0,
        max: 2.0,
    };
    // Also if both are set.
    let both = |c: &mut GrpoConfig| {
        refused(c);
        c.loss.mismatch = Some(mismatch);
        c.sampler_check.above = Some(AboveTolerance::Stop);
    };
    check(both, expected);
    let mut corrected = config();
    refused(&mut corrected);
    corrected.loss.mismatch = Some(mismatch);
    corrected.check().unwrap();
    let mut corrected = config();
    refused(&mut corrected);
    corrected.sampler_check.above = Some(AboveTolerance::Correct);
    corrected.check().unwrap();
}
