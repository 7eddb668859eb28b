//! Compares gradients from Burn with difference quotients of the f64 loops.

use burn::tensor::Device;

use crate::report::{Suite, Tolerance};
use crate::suites::generated_losses::{Generated, cases};
use crate::tensors::{Precision, evaluate};
use grpo_oracle as oracle;

/// With a step of 1e-5 in log-probability, a ratio changes by at most 2e-5.
const MARGIN: f64 = 5e-5;

/// Creates an empty suite.
pub(super) fn start() -> Suite {
    Suite::new("gradients", "difference quotients of the f64 loops", Precision::F64)
}

/// Skips cases with a ratio close to a clipping bound, where the surrogate is not differentiable.
pub(super) fn fill(suite: &mut Suite, device: &Device) {
    let smooth =
        |generated: &Generated| !oracle::near_a_kink(&generated.case, &generated.config, MARGIN);
    for generated in cases(2).into_iter().filter(smooth) {
        check(suite, &generated, device);
    }
}

fn check(suite: &mut Suite, generated: &Generated, device: &Device) {
    let Generated { label, case, config, totals } = generated;
    let got = evaluate(case, config, totals, device, suite.precision);
    let expected = oracle::gradient(case, config, totals);
    let mut compared = suite.case(label);
    // With step h = 1e-5, the truncation error is h²/6 times the third derivative, or about 2e-11
    // of the gradient. Rounding errors are 2⁻⁵³/h = 1e-11 for terms of size 1.
    let tolerance = Tolerance::of_largest(1e-8).plus(1e-10 * got.loss.abs().max(1.0));
    for (what, got, expected) in [
        ("gradient of logprobs", Some(&got.gradient.logprobs), Some(&expected.logprobs)),
        ("gradient of entropies", Some(&got.gradient.entropies), Some(&expected.entropies)),
        ("gradient of exact_kl", got.gradient.exact_kl.as_ref(), expected.exact_kl.as_ref()),
    ] {
        if let (Some(got), Some(expected)) = (got, expected) {
            compared.rows(what, got, expected, tolerance);
        }
    }
}
