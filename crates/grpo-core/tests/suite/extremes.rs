//! Tests log-ratios whose exponential exceeds the range of f32.

use burn::tensor::DType;
use grpo_core::{KlEstimator, LossConfig, Preset, RatioLevel, Surrogate};

use crate::strategies::{every_option, kl};
use crate::support::{Batch, Outcome, Run, close, of_log_ratios};

/// Evaluates a token with this log-ratio and matching quotients, next to an ordinary token, in f32.
fn run(log_ratio: f64, advantage: f64, config: &LossConfig) -> Outcome {
    let batch = Batch {
        reference: Some(vec![vec![-1.0; 2]]),
        sampling: Some(vec![vec![-1.0, -1.0 - log_ratio]]),
        exact_kl: Some(vec![vec![1.0; 2]]),
        entropy_coef: config.entropy_bonus.map_or(0.0, |_| 0.1),
        ..of_log_ratios(&[log_ratio, 0.1], advantage)
    };
    for (name, value) in batch.statistics(config).metrics() {
        assert!(value.is_finite(), "{name} of {config:?}");
    }
    batch.run_as(DType::F32, config, &batch.totals(config.high_entropy_share))
}

#[test]
fn everything_is_finite() {
    for config in every_option() {
        for size in [50.0, 79.0, 80.0, 88.7, 89.0, 100.0] {
            for log_ratio in [size, -size] {
                for advantage in [2.0, 0.0, -2.0] {
                    let got = run(log_ratio, advantage, &config);
                    let what = format!("{log_ratio}, A = {advantage}, {config:?}");
                    assert!(got.loss.is_finite(), "loss {}: {what}", got.loss);
                    let gradient = &got.gradient[0];
                    assert!(gradient.iter().all(|g| g.is_finite()), "{gradient:?}: {what}");
                }
            }
        }
    }
}

/// Checks the loss and its derivative for a single token. Beyond the range, the derivative is 0
/// regardless of clipping.
#[test]
fn beyond_the_range_by_hand() {
    #[track_caller]
    fn check(surrogate: Surrogate, log_ratio: f64, advantage: f64, loss: f64, derivative: f64) {
        for ratio_level in [RatioLevel::Token, RatioLevel::Sequence] {
            let config = LossConfig { surrogate, ratio_level, ..Preset::Grpo.config() };
            let batch = of_log_ratios(&[log_ratio], advantage);
            let got = batch.run_as(DType::F32, &config, &batch.totals(None));
            // Below 1e-38, f32 values are subnormal and lose precision.
            let near = |value: f64| 1e-5 * value.abs() + 1e-44;
            close(got.loss, loss, near(loss), "loss");
            close(got.gradient[0][0], derivative, near(derivative), "derivative");
        }
    }
    let clipped = |delta| Surrogate::Clipped { epsilon_low: 0.2, epsilon_high: 0.2, delta };
    for log_ratio in [79.0, 100.0, 1e4] {
        check(clipped(None), log_ratio, 2.0, -2.4, 0.0);
        check(clipped(None), log_ratio, 0.0, 0.0, 0.0);
        check(clipped(Some(3.0)), log_ratio, -2.0, 6.0, 0.0);
        let sapo = Surrogate::Sapo { temperature_positive: 1.0, temperature_negative: 1.0 };
        check(sapo, log_ratio, -2.0, 8.0, 0.0);
        check(clipped(None), -log_ratio, -2.0, 1.6, 0.0);
        check(clipped(None), -log_ratio, 2.0, -2.0 * (-log_ratio).exp(), -2.0 * (-log_ratio).exp());
    }
    // Without clipping, ratios are used unchanged up to the bound and are limited to it beyond.
    check(clipped(None), 79.0, -2.0, 2.0 * 79_f64.exp(), 2.0 * 79_f64.exp());
    let bound = f64::from(f32::MAX).powf(0.9);
    check(clipped(None), 100.0, -2.0, 2.0 * bound, 0.0);
}

/// In f64, the bound is greater than the largest f32 value.
#[test]
fn the_bound_is_that_of_the_numbers() {
    let batch = of_log_ratios(&[100.0], -2.0);
    let got = batch.run(&Preset::Grpo.config());
    close(got.loss, 2.0 * 100_f64.exp(), 1e30, "loss");
    assert_eq!(got.gradient[0][0], got.loss);
}

#[test]
fn k3_of_a_token_that_the_policy_has_given_up_is_bounded() {
    let config = LossConfig { kl: kl(1.0, KlEstimator::K3, false), ..Preset::Grpo.config() };
    let derivative = |e: f64| {
        let mut batch = of_log_ratios(&[0.0], 0.0);
        batch.reference = Some(vec![vec![e - 1.0]]);
        let got = batch.run_as(DType::F32, &config, &batch.totals(None));
        assert!(got.loss.is_finite());
        got.gradient[0][0]
    };
    close(derivative(79.0), -79_f64.exp(), 1e-5 * 79_f64.exp(), "1 − exp(e)");
    assert_eq!(derivative(100.0), 0.0);
}
