//! Compares KL estimators with values calculated by hand, and tests edge cases.

use burn::tensor::DType;
use grpo_core::{KlConfig, KlEstimator, KlPlacement, LossConfig, Preset, sequence_kl};
use proptest::prelude::*;

use crate::strategies::{kl, penalties};
use crate::support::{Batch, Run, cases, close, of_log_ratios, on_policy};

/// Creates a batch with one token and an advantage of 0, so that the loss equals the penalty.
fn one_token(logprob: f64, reference: f64) -> Batch {
    Batch {
        reference: Some(vec![vec![reference]]),
        exact_kl: Some(vec![vec![7.0]]),
        ..on_policy(vec![vec![logprob]], vec![0.0])
    }
}

/// Checks the value and the derivative with respect to `log π_θ`, of both loss and metric, for
/// ratio 3 and e = ln ½.
#[test]
fn penalties_by_hand() {
    let ln2 = 2_f64.ln();
    let check = |estimator, bias_correction, value: f64, derivative: f64| {
        let config =
            LossConfig { kl: kl(0.5, estimator, bias_correction), ..Preset::Grpo.config() };
        let mut batch = of_log_ratios(&[3_f64.ln()], 0.0);
        batch.reference = Some(vec![vec![batch.logprobs[0][0] - ln2]]);
        batch.exact_kl = Some(vec![vec![7.0]]);
        let got = batch.run(&config);
        close(got.loss, 0.5 * value, 1e-14, &format!("{estimator:?}, {bias_correction}"));
        close(got.gradient[0][0], 0.5 * derivative, 1e-14, "derivative");
        let metric = batch.statistics(&config).kl().unwrap();
        close(metric, value, 1e-14, "metric");
        got.exact_gradient[0][0]
    };
    let half_square = ln2 * ln2 / 2.0;
    // The derivative with respect to log π_θ is −1 for e, and the ratio itself for the ratio.
    check(KlEstimator::K1, true, 3.0 * ln2, 3.0 * ln2 + 3.0);
    check(KlEstimator::K2, false, half_square, ln2);
    check(KlEstimator::K2, true, 3.0 * half_square, 3.0 * half_square + 3.0 * ln2);
    check(KlEstimator::K3, false, ln2 - 0.5, 0.5);
    check(KlEstimator::K3, true, 3.0 * (ln2 - 0.5), 3.0 * (ln2 - 0.5) + 1.5);
    assert_eq!(check(KlEstimator::Exact, false, 7.0, 0.0), 0.5);
}

#[test]
fn a_penalty_in_the_reward_is_not_in_the_loss() {
    let config = KlConfig { placement: KlPlacement::Reward, ..kl(0.5, KlEstimator::K1, false) };
    let placed = |kl: KlConfig| (kl.in_loss(), kl.in_reward());
    assert_eq!(placed(config), (false, true));
    assert_eq!(placed(KlConfig { coef: 0.0, ..config }), (false, false));
    assert_eq!(placed(kl(0.5, KlEstimator::K2, false)), (true, false));
    assert_eq!(placed(kl(0.0, KlEstimator::K2, false)), (false, false));
    let loss = LossConfig { kl: config, ..Preset::Grpo.config() };
    assert_eq!(one_token(-1.0, -2.0).run(&loss.checked().unwrap()).loss, 0.0);
    // The metric is still reported.
    assert_eq!(one_token(-1.0, -2.0).statistics(&loss).kl(), Some(1.0));
}

#[test]
fn a_penalty_without_weight_needs_no_reference() {
    let batch = Batch { reference: None, exact_kl: None, ..one_token(-1.0, -1.0) };
    for kl in penalties() {
        let config = LossConfig { kl: KlConfig { coef: 0.0, ..kl }, ..Preset::Grpo.config() };
        assert_eq!(batch.run(&config).loss, 0.0);
        assert_eq!(batch.statistics(&config).kl(), None);
    }
}

#[test]
fn the_penalty_of_a_completion_by_hand() {
    let ln = f64::ln;
    let logprobs = [ln(0.5), ln(0.25)];
    let reference = [ln(0.25), ln(0.5)];
    let ln2 = ln(2.0);
    let of = |estimator, exact| sequence_kl(estimator, &logprobs, &reference, exact);
    close(of(KlEstimator::K1, None), 0.0, 1e-16, "k1");
    close(of(KlEstimator::K2, None), ln2 * ln2, 1e-15, "k2");
    close(of(KlEstimator::K3, None), 0.5, 1e-15, "k3: ½ + ln 2 − 1 + 2 − ln 2 − 1");
    assert_eq!(of(KlEstimator::Exact, Some(&[0.25, 0.5])), 0.75);
    close(sequence_kl(KlEstimator::K1, &[-1.0], &[-3.0], None), 2.0, 0.0, "log π − log π_ref");
    for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
        assert_eq!(sequence_kl(estimator, &[], &[], None), 0.0);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn at_the_reference_every_estimate_is_exactly_zero(logprob in -50.0..0.0_f32) {
        let logprob = f64::from(logprob);
        for kl in penalties() {
            let config = LossConfig { kl, ..Preset::Grpo.config() };
            let batch = Batch { exact_kl: Some(vec![vec![0.0]]), ..one_token(logprob, logprob) };
            prop_assert_eq!(batch.statistics(&config).kl(), Some(0.0));
            for dtype in [DType::F32, DType::F64] {
                prop_assert_eq!(batch.run_as(dtype, &config, &batch.totals(None)).loss, 0.0);
            }
        }
    }

    /// Tests single tokens, down to differences at which `exp(e) − e − 1` suffers from
    /// cancellation.
    #[test]
    fn k2_and_k3_are_never_negative(
        size in -60.0..2.0_f64,
        power in -60.0..2.0_f64,
        up in any::<bool>(),
    ) {
        let logprob = -size.exp2();
        let e = power.exp2() * if up { 1.0 } else { -1.0 };
        let batch = one_token(logprob, logprob + e);
        for kl in penalties() {
            if matches!(kl.estimator, KlEstimator::K2 | KlEstimator::K3) {
                let config = LossConfig { kl, ..Preset::Grpo.config() };
                let metric = batch.statistics(&config).kl().unwrap();
                prop_assert!(metric >= 0.0, "{metric}");
                // The loss may be off by the rounding error of exp(e).
                let loss = batch.run(&config).loss;
                prop_assert!(loss >= -2.0 * f64::EPSILON * e.exp().max(1.0), "{loss}");
            }
        }
    }
}
