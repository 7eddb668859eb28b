//! Compares token weights with values calculated by hand.

use grpo_core::{BatchTotals, HighEntropy, LossConfig, Preset, Reduction};

use crate::strategies::REDUCTIONS;
use crate::support::{Batch, Run, all_close, of_log_ratios, on_policy};

/// Returns the weights. With A = −1, the loss is `Σ w log π_θ`, so the derivatives are equal to the
/// weights.
fn weights(reduction: Reduction, mask: &[Vec<bool>], totals: &BatchTotals) -> Vec<Vec<f64>> {
    let logprobs = mask.iter().map(|row| vec![-1.0; row.len()]).collect();
    let batch = on_policy(logprobs, vec![-1.0; mask.len()]);
    let batch = Batch { mask: mask.to_vec(), ..batch };
    let config = LossConfig { reduction, ..Preset::Reinforce.config() };
    batch.run_in(&config, totals).gradient
}

#[test]
fn weights_by_hand() {
    let mask = [vec![true, true, true, true], vec![false, true, false, false], vec![false; 4]];
    let totals =
        BatchTotals { sequences: 8, tokens: 20, max_completion_length: 16, high_entropy: None };
    let check = |reduction: Reduction, [a, b]: [f64; 2]| {
        let expected = vec![vec![a; 4], vec![0.0, b, 0.0, 0.0], vec![0.0; 4]];
        all_close(&weights(reduction, &mask, &totals), &expected, 1e-16, "weight");
    };
    check(Reduction::SequenceMean, [1.0 / 32.0, 1.0 / 8.0]);
    check(Reduction::SequenceSum, [1.0 / 8.0, 1.0 / 8.0]);
    check(Reduction::TokenMean, [1.0 / 20.0, 1.0 / 20.0]);
    check(Reduction::MicroBatchTokenMean, [3.0 / 8.0 / 5.0, 3.0 / 8.0 / 5.0]);
    check(Reduction::Constant, [1.0 / 128.0, 1.0 / 128.0]);
}

/// This also holds if the batch contains no actions at all and the totals are 0.
#[test]
fn rows_without_an_action_have_no_gradient_and_make_no_nan() {
    let mut batch = of_log_ratios(&[0.5, -0.5], 1.5);
    batch.mask = vec![vec![false; 2]];
    batch.entropy_coef = 0.5;
    let nothing =
        BatchTotals { sequences: 0, tokens: 0, max_completion_length: 0, high_entropy: None };
    let kept =
        BatchTotals { high_entropy: Some(HighEntropy { threshold: 0.0, tokens: 0 }), ..nothing };
    for preset in Preset::ALL {
        for reduction in REDUCTIONS {
            for high_entropy_share in [None, Some(0.5)] {
                let config = LossConfig {
                    reduction,
                    high_entropy_share,
                    off_policy_threshold: Some(0.0),
                    ..preset.config()
                };
                for totals in [&kept, &BatchTotals { sequences: 3, tokens: 7, ..kept }] {
                    let got = batch.run_in(&config, totals);
                    assert_eq!(got.loss, 0.0, "{config:?}");
                    assert_eq!(got.gradient, [[0.0; 2]], "{config:?}");
                    assert_eq!(got.entropy_gradient, [[0.0; 2]], "{config:?}");
                }
                let statistics = batch.statistics(&config);
                assert_eq!(statistics.metrics(), [], "a mean over nothing is left out");
                assert_eq!((statistics.tokens(), statistics.ratio_range()), (0, None));
            }
        }
    }
}

#[test]
fn the_reductions_of_a_batch_without_totals_divide_by_one() {
    let nothing =
        BatchTotals { sequences: 0, tokens: 0, max_completion_length: 0, high_entropy: None };
    for reduction in REDUCTIONS {
        assert_eq!(weights(reduction, &[vec![true]], &nothing), [[1.0]], "{reduction:?}");
    }
}
