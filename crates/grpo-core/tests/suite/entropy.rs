//! Tests the quantile in the high-entropy mask, the entropy bonus and its controller.

use grpo_core::{BatchTotals, EntropyBonus, EntropyController, HighEntropy, Preset};
use grpo_oracle as oracle;
use proptest::prelude::*;

use crate::support::{Batch, Run, cases, close, on_policy};

/// Checks that `numpy.quantile(values, 1 - share)` is at most `threshold` but greater than the next
/// smaller entropy.
#[track_caller]
fn check(values: &[f64], share: f64, threshold: f64, tokens: usize) {
    let got = HighEntropy::of(values.to_vec(), share);
    assert_eq!(got, HighEntropy { threshold, tokens }, "{share} of {values:?}");
}

#[test]
fn the_quantile_by_hand() {
    let values = [3.0, 0.0, 4.0, 1.0, 2.0];
    check(&values, 1.0, 0.0, 5);
    // Quantile 0.4, which lies between two values.
    check(&values, 0.9, 1.0, 4);
    // Quantiles that coincide with a value.
    check(&values, 0.75, 1.0, 4);
    check(&values, 0.5, 2.0, 3);
    check(&values, 0.25, 3.0, 2);
    check(&values, 0.2, 4.0, 1);
    check(&values, 1e-9, 4.0, 1);
    // In case of ties, more tokens than requested may be kept.
    check(&[1.0, 2.0, 2.0, 2.0], 0.25, 2.0, 3);
    check(&[2.0; 4], 0.01, 2.0, 4);
    // Quantile 2.5 between 1 and 3. Linear interpolation is used instead of the nearest value.
    check(&[1.0, 1.0, 3.0], 0.125, 3.0, 1);
    check(&[7.0], 0.3, 7.0, 1);
    check(&[], 0.3, 0.0, 0);
}

/// The quantile at 1 − share = 0.6 is 1.4, since rank 1.2 lies between the values 1 and 3.
#[test]
fn the_quantile_is_linear_between_neighbours() {
    check(&[0.0, 1.0, 3.0, 1.4 - 1e-9], 0.4, 1.4 - 1e-9, 2);
    check(&[0.0, 1.0, 3.0], 0.4, 3.0, 1);
}

#[test]
#[should_panic(expected = "an entropy is NaN")]
fn an_entropy_that_is_nan_is_a_broken_invariant() {
    HighEntropy::of(vec![1.0, f64::NAN], 0.5);
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn the_quantile_equals_the_loops(
        values in prop::collection::vec(prop_oneof![0.0..3.0_f64, Just(1.5)], 0..40),
        share in 1e-3..=1.0_f64,
    ) {
        let got = HighEntropy::of(values.clone(), share);
        prop_assert_eq!(got, oracle::high_entropy(&values, share));
        // At least the requested share is kept, up to rounding to whole tokens.
        prop_assert!(got.tokens as f64 >= (share * (values.len() as f64 - 1.0)).floor());
    }
}

const ADAPTIVE: EntropyBonus =
    EntropyBonus::Adaptive { initial: 0.25, target: 1.0, delta: 0.25, min: 0.125, max: 0.75 };

/// Checks the coefficient before the first update and after each observed entropy.
#[track_caller]
fn coefficients(bonus: EntropyBonus, entropies: &[f64], expected: &[f64]) {
    let mut controller = EntropyController::new(bonus);
    let mut got = vec![controller.coef()];
    for &entropy in entropies {
        controller.observe(entropy);
        got.push(controller.coef());
    }
    assert_eq!(got, expected);
}

#[test]
fn the_controller_by_hand() {
    let fixed = EntropyBonus::Static { coef: 0.5 };
    coefficients(fixed, &[0.1, 9.0], &[0.5; 3]);
    // The coefficient is 0 until an entropy at or below the target was observed. It then increases
    // by delta up to the upper bound.
    coefficients(ADAPTIVE, &[0.9, 1.0, 0.1], &[0.0, 0.5, 0.75, 0.75]);
    // Above the target, it decreases to the lower bound and is not applied.
    coefficients(ADAPTIVE, &[0.9, 1.1, 0.9], &[0.0, 0.5, 0.0, 0.5]);
    coefficients(ADAPTIVE, &[2.0, 2.0, 2.0, 1.0], &[0.0, 0.0, 0.0, 0.0, 0.375]);
}

#[test]
fn the_state_of_the_controller_is_saved_whole() {
    let mut controller = EntropyController::new(ADAPTIVE);
    controller.observe(0.9);
    let saved = serde_json::to_string(&controller).unwrap();
    let restored: EntropyController = serde_json::from_str(&saved).unwrap();
    assert_eq!(restored, controller);
    assert_eq!(restored.coef(), 0.5);
}

/// `loss −= coef · mean entropy`, so all tokens have the same negative derivative.
#[test]
fn the_bonus_by_hand() {
    let batch = Batch {
        mask: vec![vec![true, true, true], vec![true, false, false]],
        entropies: vec![vec![1.0, 2.0, 3.0], vec![6.0, f64::NAN, f64::NAN]],
        ..on_policy(vec![vec![-1.0; 3]; 2], vec![0.0; 2])
    };
    for preset in Preset::ALL {
        let config = preset.config();
        assert_eq!(batch.run(&config).loss, 0.0);
        let got = Batch { entropy_coef: 0.5, ..batch.clone() }.run(&config);
        close(got.loss, -1.5, 1e-15, "half of the mean of 1, 2, 3 and 6");
        assert_eq!(got.entropy_gradient, [[-0.125; 3], [-0.125, 0.0, 0.0]]);
        let part = BatchTotals { tokens: 8, ..batch.totals(None) };
        let got = Batch { entropy_coef: 0.5, ..batch.clone() }.run_in(&config, &part);
        close(got.loss, -0.75, 1e-15, "a mean over the whole optimizer batch");
    }
}
