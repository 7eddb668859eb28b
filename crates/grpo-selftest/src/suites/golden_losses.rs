//! Compares losses, gradients and metrics with results from TRL.

use burn::tensor::Device;
use grpo_core::{LossTerms, RatioLevel, SequenceTerms};

use crate::golden::GoldenLoss;
use crate::report::{Comparison, Suite, Tolerance};
use crate::tensors::{Precision, evaluate, rounded};
use grpo_oracle::{self as oracle, LossCase, Rows};

/// Creates an empty suite.
pub(super) fn start(source: &str, precision: Precision) -> Suite {
    Suite::new("losses, gradients, metrics", source, precision)
}

/// Compares grpo-core with TRL.
pub(super) fn fill(suite: &mut Suite, cases: &[GoldenLoss], device: &Device) {
    for golden in cases {
        check(suite, golden, device);
    }
}

/// Compares the oracle with TRL.
pub(super) fn of_oracle(cases: &[GoldenLoss], source: &str) -> Suite {
    let mut suite = Suite::new("losses, metrics of the f64 loops", source, Precision::F64);
    for golden in cases {
        let (config, totals) = (&golden.config, golden.totals(&golden.case));
        let mut case = suite.case(&golden.label);
        let tolerance = tolerance(Precision::F64);
        let loss = oracle::loss(&golden.case, config, &totals);
        case.number("loss", loss, golden.expected.loss, tolerance);
        let metrics = oracle::metrics(&golden.case, config, &totals);
        check_metrics(&mut case, golden, &golden.case, tolerance, |name| match name {
            "policy_loss" => {
                let loss = oracle::loss(&without_bonus(&golden.case), config, &totals);
                Some(loss * golden.policy_loss_factor)
            }
            _ => metrics.get(name).copied(),
        });
    }
    suite
}

/// 1e-9 relative to the largest expected value or 1 in f64, and 2e-5 relative to the largest
/// expected value in f32.
fn tolerance(precision: Precision) -> Tolerance {
    match precision {
        Precision::F64 => Tolerance::of_largest_or_1(1e-9),
        Precision::F32 => Tolerance::of_largest(2e-5),
    }
}

fn check(suite: &mut Suite, golden: &GoldenLoss, device: &Device) {
    let precision = suite.precision;
    let inputs = rounded(&golden.case, precision);
    let totals = golden.totals(&inputs);
    let got = evaluate(&inputs, &golden.config, &totals, device, precision);

    let expected = &golden.expected;
    let tolerance = tolerance(precision);
    let mut case = suite.case(&golden.label);
    let of_loss = || rounding_of_loss(golden, &inputs);
    case.number(
        "loss",
        got.loss,
        expected.loss,
        tolerance.or(&[got.loss], &[expected.loss], of_loss),
    );
    let gradient = &expected.grad_logprobs;
    let of_gradient = || rounding_of_gradient(golden, &inputs);
    let admitted = tolerance.or(&got.gradient.logprobs.concat(), &gradient.concat(), of_gradient);
    case.rows("grad_logprobs", &got.gradient.logprobs, gradient, admitted);
    if let Some(gradient) = &expected.grad_entropy {
        case.rows("grad_entropy", &got.gradient.entropies, gradient, tolerance);
    }
    let statistics = got.statistics();
    check_metrics(&mut case, golden, &inputs, tolerance, |name| match name {
        // TRL's metric is the loss without the entropy bonus.
        "policy_loss" => {
            Some((got.terms.policy_loss + got.terms.kl_penalty) * golden.policy_loss_factor)
        }
        _ => statistics.metric(name),
    });
    if let (Some(ratio), Some(correction)) =
        (&expected.importance_sampling_ratio, golden.config.mismatch)
    {
        let weights = mismatch_weights(&got.terms, correction.level);
        let expected = of_actions(&inputs, ratio, correction.level);
        case.rows("importance_sampling_ratio", &weights, &expected, tolerance);
    }
}

fn without_bonus(case: &LossCase) -> LossCase {
    LossCase { entropy_coef: 0.0, ..case.clone() }
}

// TRL computed its results from inputs that were not rounded to f32. If terms cancel, rounding
// alone can change a value by more than a fraction of 2e-5. For example, e = 4e-3 as the difference
// of two log-probabilities of about 2.4 only has 14 accurate bits. In these cases, the effect of
// rounding is computed in f64 and added to the tolerance.

/// Computes the effect of rounded inputs on the loss, using f64 loops.
fn rounding_of_loss(golden: &GoldenLoss, rounded: &LossCase) -> f64 {
    let at = |case: &LossCase| oracle::loss(case, &golden.config, &golden.totals(case));
    (at(rounded) - at(&golden.case)).abs()
}

/// Computes the largest effect of rounded inputs on the gradient, using f64 loops.
fn rounding_of_gradient(golden: &GoldenLoss, rounded: &LossCase) -> f64 {
    let at = |case: &LossCase| {
        oracle::gradient(case, &golden.config, &golden.totals(case)).logprobs.concat()
    };
    let pairs = at(rounded).into_iter().zip(at(&golden.case));
    pairs.fold(0.0, |most, (rounded, exact)| most.max((rounded - exact).abs()))
}

/// Computes the effect of rounded inputs on a metric, using f64 loops.
fn rounding_of_metric(golden: &GoldenLoss, rounded: &LossCase, name: &str) -> f64 {
    let at = |case: &LossCase| {
        let metrics = oracle::metrics(case, &golden.config, &golden.totals(case));
        metrics.get(name).copied().unwrap_or(0.0)
    };
    (at(rounded) - at(&golden.case)).abs()
}

/// Compares all metrics that TRL reports. Groups of metrics that TRL does not report must be
/// absent.
fn check_metrics(
    case: &mut Comparison<'_>,
    golden: &GoldenLoss,
    inputs: &LossCase,
    tolerance: Tolerance,
    named: impl Fn(&str) -> Option<f64>,
) {
    for (name, expected) in &golden.expected.metrics {
        let expected = expected.unwrap_or(f64::NAN);
        let got = match name.as_str() {
            // The coefficient is a setting in TRL but an input here.
            "entropy_coef" => Some(golden.entropy_coef),
            name => named(name),
        };
        let got = got.unwrap_or(f64::NAN);
        let of_metric = || rounding_of_metric(golden, inputs, name);
        case.number(name, got, expected, tolerance.or(&[got], &[expected], of_metric));
    }
    let families = ["kl", "clip_ratio/low_mean", "cispo_clip_ratio", "vespo/phi_seq_mean"];
    for name in families.into_iter().filter(|name| !golden.expected.metrics.contains_key(*name)) {
        case.number(name, named(name).unwrap_or(f64::NAN), f64::NAN, Tolerance::EXACT);
    }
}

/// Returns the corrected `π_old / π_sampler` for the action tokens in each sequence. If they share
/// a quotient, only the first is returned.
fn mismatch_weights(terms: &LossTerms, level: RatioLevel) -> Rows {
    let weights = |sequence: &SequenceTerms| {
        let tokens = sequence.tokens.iter().filter_map(|token| token.sampling?.weight);
        match level {
            RatioLevel::Token => tokens.collect(),
            RatioLevel::Sequence => tokens.take(1).collect(),
        }
    };
    terms.sequences.iter().map(weights).collect()
}

/// Selects the action tokens from TRL results of shape `[b][t]`, or `[b][1]` at sequence level.
fn of_actions(inputs: &LossCase, rows: &Rows, level: RatioLevel) -> Rows {
    let row = |b: usize| match level {
        RatioLevel::Token => inputs.active(b).into_iter().map(|t| rows[b][t]).collect(),
        RatioLevel::Sequence => rows[b][..inputs.active(b).len().min(1)].to_vec(),
    };
    (0..inputs.rows()).map(row).collect()
}
