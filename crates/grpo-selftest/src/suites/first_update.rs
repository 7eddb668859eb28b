//! Checks properties that hold exactly for the first update after sampling, where π_old equals π_θ.

use burn::tensor::Device;
use grpo_core::{KlConfig, KlEstimator, KlPlacement, LossConfig, Preset, RatioLevel, Surrogate};

use crate::report::{Suite, Tolerance};
use crate::suites::generated_losses::cases;
use crate::tensors::{Precision, evaluate, rounded};
use grpo_oracle::LossCase;

/// Creates an empty suite.
pub(super) fn start(precision: Precision) -> Suite {
    Suite::new("first update", "exact identities", precision)
}

pub(super) fn fill(suite: &mut Suite, device: &Device) {
    let inputs: Vec<LossCase> = cases(3).into_iter().step_by(97).map(|it| it.case).collect();
    for preset in Preset::ALL {
        for ratio_level in [RatioLevel::Token, RatioLevel::Sequence] {
            for inputs in &inputs {
                let config = LossConfig { ratio_level, ..preset.config() };
                let label = format!("{preset:?} {ratio_level:?}");
                check(suite, label, inputs, &config, device);
            }
        }
    }
}

fn check(
    suite: &mut Suite,
    label: String,
    inputs: &LossCase,
    config: &LossConfig,
    device: &Device,
) {
    let precision = suite.precision;
    let first = rounded(&LossCase { entropy_coef: 0.0, ..inputs.clone() }, precision);
    let first = LossCase {
        old: None,
        reference: Some(first.logprobs.clone()),
        exact_kl: Some(vec![vec![0.0; first.width()]; first.rows()]),
        ..first
    };
    let totals = first.totals(None);
    let got = evaluate(&first, config, &totals, device, precision);
    let mut compared = suite.case(label);
    for (name, value) in got.statistics().metrics() {
        let expected = match name {
            "ratio/min" | "ratio/max" => Some(1.0),
            // No ratio exceeds its bound, because all ratios are 1 and the CISPO cap is larger.
            "kl" | "cispo_clip_ratio" => Some(0.0),
            name if name.starts_with("clip_ratio/") => Some(0.0),
            _ => None,
        };
        if let Some(expected) = expected {
            compared.number(name, value, expected, Tolerance::EXACT);
        }
    }

    // All weights are 1, so every surrogate has the same derivative as −A log π.
    let plain = LossConfig { surrogate: Surrogate::Reinforce {}, ..*config };
    let expected = evaluate(&first, &plain, &totals, device, precision).gradient.logprobs;
    let tolerance = Tolerance::of_largest(match precision {
        Precision::F64 => 1e-14,
        Precision::F32 => 1e-6,
    });
    compared.rows("gradient, compared with −A log π", &got.gradient.logprobs, &expected, tolerance);

    // Recording π_old must not make a difference.
    let kept = LossCase { old: Some(first.logprobs.clone()), ..first.clone() };
    let kept = evaluate(&kept, config, &totals, device, precision);
    compared.number("loss with π_old recorded", kept.loss, got.loss, Tolerance::EXACT);
    let gradient = &got.gradient.logprobs;
    compared.rows(
        "gradient with π_old recorded",
        &kept.gradient.logprobs,
        gradient,
        Tolerance::EXACT,
    );

    // If the reference equals the policy, the penalty is exactly 0.
    for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::Exact] {
        let bias_correction = estimator != KlEstimator::Exact;
        let kl = KlConfig { coef: 0.5, estimator, placement: KlPlacement::Loss, bias_correction };
        let penalised = LossConfig { kl, ..*config };
        let penalised = evaluate(&first, &penalised, &totals, device, precision);
        compared.number("loss with a penalty of 0", penalised.loss, got.loss, Tolerance::EXACT);
        let kl = penalised.statistics().kl();
        let expected = if first.tokens() == 0 { f64::NAN } else { 0.0 };
        compared.number("kl", kl.unwrap_or(f64::NAN), expected, Tolerance::EXACT);
    }
}
