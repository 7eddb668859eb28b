//! Compares surrogates with values calculated by hand, and checks where the gradient is exactly 0.

use grpo_core::{
    LossConfig, MismatchCorrection, MismatchMode, Preset, RatioLevel, Reduction, Surrogate,
};
use proptest::prelude::*;

use crate::strategies::{LEVELS, batches};
use crate::support::{Batch, Run, cases, close, of_log_ratios};

fn clipped(delta: Option<f64>) -> LossConfig {
    let surrogate = Surrogate::Clipped { epsilon_low: 0.2, epsilon_high: 0.28, delta };
    LossConfig { surrogate, ..Preset::Grpo.config() }
}

/// Checks the loss and its derivative with respect to `log π_θ` for a single token with this ratio.
#[track_caller]
fn check(config: &LossConfig, ratio: f64, advantage: f64, loss: f64, derivative: f64) {
    let got = of_log_ratios(&[ratio.ln()], advantage).run(config);
    let what = format!("{config:?} at ratio {ratio}, A = {advantage}");
    close(got.loss, loss, 1e-14 * loss.abs(), &what);
    close(got.gradient[0][0], derivative, 1e-14 * derivative.abs(), &what);
}

#[test]
fn clipped_by_hand() {
    for config in [clipped(None), clipped(Some(1.5))] {
        check(&config, 1.1, 2.0, -2.2, -2.2);
        check(&config, 0.5, 2.0, -1.0, -1.0);
        check(&config, 1.3, 2.0, -2.56, 0.0);
        check(&config, 0.9, -2.0, 1.8, 1.8);
        check(&config, 0.7, -2.0, 1.6, 0.0);
        check(&config, 1.4, -2.0, 2.8, 2.8);
        check(&config, 3.0, 0.0, 0.0, 0.0);
    }
    check(&clipped(None), 1.6, -2.0, 3.2, 3.2);
    check(&clipped(Some(1.5)), 1.6, -2.0, 3.0, 0.0);
    // δ is larger than the upper bound, which takes effect first for A > 0.
    check(&clipped(Some(1.5)), 1.6, 2.0, -2.56, 0.0);
}

/// On the first update, the ratio is 1 and has a gradient even if it equals the bound.
#[test]
fn no_room_to_move_still_has_a_first_step() {
    let surrogate = Surrogate::Clipped { epsilon_low: 0.0, epsilon_high: 0.0, delta: None };
    let config = LossConfig { surrogate, ..Preset::Grpo.config() };
    check(&config, 1.0, 2.0, -2.0, -2.0);
    check(&config, 1.0, -2.0, 2.0, 2.0);
}

#[test]
fn cispo_by_hand() {
    let config = Preset::Cispo.config();
    // log π_θ = ln c − 1.
    check(&config, 2.0, 3.0, -6.0 * (2_f64.ln() - 1.0), -6.0);
    check(&config, 7.0, 3.0, -15.0 * (7_f64.ln() - 1.0), -15.0);
    check(&config, 0.1, -3.0, 0.3 * (0.1_f64.ln() - 1.0), 0.3);
}

#[test]
fn sapo_by_hand() {
    let surrogate = Surrogate::Sapo { temperature_positive: 2.0, temperature_negative: 0.5 };
    let config = LossConfig { surrogate, ..Preset::Sapo.config() };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for ratio in [0.25, 1.0, 1.75] {
        for (advantage, temperature) in [(3.0, 2.0), (-3.0, 0.5)] {
            let gate = sigmoid(temperature * (ratio - 1.0));
            let loss = -4.0 / temperature * gate * advantage;
            check(&config, ratio, advantage, loss, -4.0 * gate * (1.0 - gate) * ratio * advantage);
        }
        check(&config, ratio, 0.0, 0.0, 0.0);
    }
}

#[test]
fn reinforce_knows_no_ratio() {
    let config = Preset::Reinforce.config();
    check(&config, 9.0, 2.0, -2.0 * (9_f64.ln() - 1.0), -2.0);
    check(&config, 0.1, -2.0, 2.0 * (0.1_f64.ln() - 1.0), 2.0);
}

/// The derivative is `−φ(W) A` for each token in the sequence.
#[test]
fn vespo_by_hand() {
    #[track_caller]
    fn phi(config: &LossConfig, batch: &Batch, expected: f64) {
        let advantage = batch.advantages[0];
        let got = batch.run(config).gradient[0][0] / -advantage;
        close(got, expected, 1e-12 * expected, &format!("φ of {batch:?}"));
        let phi = batch.statistics(config).metric("vespo/phi_seq_mean").unwrap();
        close(phi, expected, 1e-12 * expected, &format!("metric of {batch:?}"));
    }
    let surrogate = Surrogate::Vespo {
        k_positive: 2.0,
        lambda_positive: 3.0,
        k_negative: 0.25,
        lambda_negative: 0.5,
    };
    let config =
        LossConfig { surrogate, reduction: Reduction::SequenceSum, ..Preset::Vespo.config() };
    let of = |k: f64, lambda: f64, log_weight: f64| {
        (lambda + k * log_weight - lambda * log_weight.exp()).exp()
    };
    let batch = |log_ratios: &[f64], advantage| of_log_ratios(log_ratios, advantage);
    phi(&config, &batch(&[0.3, -0.1], 1.5), of(2.0, 3.0, 0.2));
    phi(&config, &batch(&[0.3, -0.1], -1.5), of(0.25, 0.5, 0.2));
    // Log-ratios are clamped to ±20, and their sum to the range from ln 1e-8 to 20.
    phi(&config, &batch(&[-30.0, 21.0], -1.5), of(0.25, 0.5, 0.0));
    phi(&config, &batch(&[-25.0, 19.5], -1.5), of(0.25, 0.5, -0.5));
    phi(&config, &batch(&[-19.0, -19.0], -1.5), of(0.25, 0.5, 1e-8_f64.ln()));

    // If φ is not finite, the weight is 0. λ is almost 0 here.
    let steep = Surrogate::Vespo {
        k_positive: 40.0,
        lambda_positive: 1e-9,
        k_negative: 40.0,
        lambda_negative: 1e-9,
    };
    let steep = LossConfig { surrogate: steep, ..config };
    phi(&steep, &batch(&[17.0], 1.0), of(40.0, 1e-9, 17.0));
    phi(&steep, &batch(&[18.0], 1.0), 0.0);
    // ln W is limited to 20: φ(20) is finite, but φ would overflow for larger values.
    let bounded = Surrogate::Vespo {
        k_positive: 35.0,
        lambda_positive: 1e-9,
        k_negative: 35.0,
        lambda_negative: 1e-9,
    };
    let bounded = LossConfig { surrogate: bounded, ..config };
    phi(&bounded, &batch(&[19.0, 19.0], 1.0), of(35.0, 1e-9, 20.0));

    // Each mismatch quotient contributes its logarithm. A masked 0 counts as ln 1e-8.
    let mismatch = |mode, max| {
        let level = RatioLevel::Token;
        Some(MismatchCorrection { level, mode, min: 0.5, max })
    };
    let sampled = |log_ratios: &[f64], log_quotients: &[f64]| Batch {
        sampling: Some(vec![log_quotients.iter().map(|x| -1.0 - x).collect()]),
        ..batch(log_ratios, -1.5)
    };
    let truncating = LossConfig { mismatch: mismatch(MismatchMode::Truncate, 4.0), ..config };
    let masking = LossConfig { mismatch: mismatch(MismatchMode::Mask, 4.0), ..config };
    let inside = sampled(&[0.3, -0.1], &[0.4, -0.2]);
    phi(&truncating, &inside, of(0.25, 0.5, 0.4));
    phi(&masking, &inside, of(0.25, 0.5, 0.4));
    let outside = sampled(&[0.3, -0.1], &[2.0, -0.2]);
    phi(&truncating, &outside, of(0.25, 0.5, 0.2 + 4_f64.ln() - 0.2));
    let outside = sampled(&[19.0, -0.1], &[2.0, -0.2]);
    phi(&masking, &outside, of(0.25, 0.5, 18.9 + 1e-8_f64.ln() - 0.2));
    // A quotient is limited to e²⁰.
    let huge = LossConfig { mismatch: mismatch(MismatchMode::Truncate, 1e30), ..config };
    phi(&huge, &sampled(&[-19.0, -0.5], &[30.0, 0.0]), of(0.25, 0.5, 0.5));
}

/// A = 0 uses the constants for positive advantages. Only the metric depends on this.
#[test]
fn vespo_counts_zero_as_positive() {
    let config = Preset::Vespo.config();
    let phi = |advantage| {
        of_log_ratios(&[0.2], advantage).statistics(&config).metric("vespo/phi_seq_mean")
    };
    assert_eq!(phi(0.0), phi(1.0));
    assert_ne!(phi(0.0), phi(-1.0));
}

/// Uses the geometric mean of the token ratios, so long and short sequences count equally.
#[test]
fn a_ratio_of_a_sequence_by_hand() {
    let config = LossConfig {
        surrogate: Surrogate::Clipped { epsilon_low: 0.2, epsilon_high: 0.2, delta: None },
        ..Preset::Luspo.config()
    };
    let mut batch = of_log_ratios(&[2_f64.ln(), 0.5_f64.ln(), 1.1_f64.ln(), 9.0], 2.0);
    batch.mask[0][3] = false;
    let got = batch.run(&config);
    let ratio = 1.1_f64.powf(1.0 / 3.0);
    close(got.loss, -6.0 * ratio, 1e-14, "three times −c A");
    for t in 0..3 {
        close(got.gradient[0][t], -2.0 * ratio, 1e-14, "Σ_t −c A / 3");
    }
    assert_eq!(got.gradient[0][3], 0.0);
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_clipped_token_has_exactly_no_gradient_and_any_other_has_one(
        batch in batches(),
        epsilon_low in 0.0..0.5_f64,
        epsilon_high in 0.0..0.5_f64,
        above in prop::option::of(0.01..0.5_f64),
    ) {
        let delta = above.map(|above| 1.0 + epsilon_high + above);
        let surrogate = Surrogate::Clipped { epsilon_low, epsilon_high, delta };
        for ratio_level in LEVELS {
            let preset = Preset::Grpo.config();
            let config = LossConfig { surrogate, ratio_level, ..preset };
            let batch = Batch { entropy_coef: 0.0, ..batch.clone() };
            let got = batch.run(&config);
            let old = batch.old.as_ref().unwrap();
            for (b, old) in old.iter().enumerate() {
                let places = batch.active(b);
                let length = places.len() as f64;
                let log_ratio = |t: usize| batch.logprobs[b][t] - old[t];
                let mean = places.iter().map(|&t| log_ratio(t)).sum::<f64>() / length;
                let advantage = batch.advantages[b];
                for t in places {
                    let ratio = match ratio_level {
                        RatioLevel::Token => log_ratio(t).exp(),
                        RatioLevel::Sequence => mean.exp(),
                    };
                    let below = ratio < 1.0 - epsilon_low && advantage < 0.0;
                    let above = ratio > 1.0 + epsilon_high && advantage > 0.0;
                    let far = delta.is_some_and(|delta| ratio > delta) && advantage < 0.0;
                    if below || above || far {
                        prop_assert_eq!(got.gradient[b][t], 0.0);
                    } else {
                        let expected = -ratio * advantage / length / batch.rows() as f64;
                        let tolerance = 1e-13 * expected.abs();
                        close(got.gradient[b][t], expected, tolerance, "gradient");
                    }
                }
            }
        }
    }
}
