//! Compares losses and metrics with plain f64 loops.

use std::collections::BTreeSet;

use burn::tensor::Device;
use grpo_core::{HighEntropy, sequence_kl};

use crate::report::{Comparison, Suite, Tolerance};
use crate::suites::generated_losses::{Generated, cases};
use crate::tensors::{Precision, evaluate};
use grpo_oracle as oracle;

/// Upper bound for the error from summing about twenty numbers in a different order.
const ROUNDING: f64 = 1e-12;

/// Creates an empty suite.
pub(super) fn start() -> Suite {
    Suite::new("losses, metrics", "f64 loops", Precision::F64)
}

pub(super) fn fill(suite: &mut Suite, device: &Device) {
    for generated in cases(1) {
        check(suite, &generated, device);
    }
}

fn check(suite: &mut Suite, generated: &Generated, device: &Device) {
    let Generated { label, case, config, totals } = generated;
    let got = evaluate(case, config, totals, device, suite.precision);
    let mut compared = suite.case(label);
    close(&mut compared, "loss", got.loss, oracle::loss(case, config, totals));

    let expected = oracle::metrics(case, config, totals);
    let statistics = got.statistics();
    let names: BTreeSet<&str> = expected
        .keys()
        .copied()
        .chain(statistics.metrics().into_iter().map(|(name, _)| name))
        .collect();
    for name in names {
        let got = statistics.metric(name).unwrap_or(f64::NAN);
        close(&mut compared, name, got, expected.get(name).copied().unwrap_or(f64::NAN));
    }
    if let Some(share) = config.high_entropy_share {
        let entropies = case.active_entropies();
        let expected = oracle::high_entropy(&entropies, share);
        let got = HighEntropy::of(entropies, share);
        compared.number(
            "high_entropy.threshold",
            got.threshold,
            expected.threshold,
            Tolerance::EXACT,
        );
        compared.number(
            "high_entropy.tokens",
            got.tokens as f64,
            expected.tokens as f64,
            Tolerance::EXACT,
        );
    }
    if let Some(reference) = &case.reference {
        for b in 0..case.rows() {
            let of = |rows: &[Vec<f64>]| -> Vec<f64> {
                case.active(b).into_iter().map(|t| rows[b][t]).collect()
            };
            let (logprobs, reference) = (of(&case.logprobs), of(reference));
            let exact = case.exact_kl.as_ref().map(|exact| of(exact));
            let estimator = config.kl.estimator;
            let got = sequence_kl(estimator, &logprobs, &reference, exact.as_deref());
            let expected = oracle::sequence_kl(estimator, &logprobs, &reference, exact.as_deref());
            close(&mut compared, "sequence_kl", got, expected);
        }
    }
}

fn close(compared: &mut Comparison<'_>, what: &str, got: f64, expected: f64) {
    compared.number(what, got, expected, Tolerance::of_largest_or_1(ROUNDING));
}
