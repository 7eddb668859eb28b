//! Tests which inputs masks and corrections depend on, what they affect, and the order in which
//! they apply.

use grpo_core::{
    BatchTotals, HighEntropy, KlEstimator, LossConfig, MismatchCorrection, MismatchMode, Preset,
    RatioLevel, TokenStatistics,
};

use crate::strategies::{corrections, every_option, kl, presets};
use crate::support::{Batch, Rows, Run, all_close, close, of_log_ratios, on_policy};

/// Creates a sequence that every mask drops: the advantage is negative, the policy is far from the
/// sampler, quotients are out of bounds, and entropies are low.
fn dropped() -> Batch {
    Batch {
        sampling: Some(vec![vec![0.0; 2]]),
        reference: Some(vec![vec![-1.3; 2]]),
        ..of_log_ratios(&[-0.1, -0.2], -1.5)
    }
}

/// The penalty is added after all masks.
#[test]
fn no_mask_touches_the_penalty() {
    let masking = MismatchCorrection {
        level: RatioLevel::Token,
        mode: MismatchMode::Mask,
        min: 0.9,
        max: 1.1,
    };
    let kept = HighEntropy { threshold: 1.0, tokens: 2 };
    for estimator in [KlEstimator::K2, KlEstimator::K3] {
        for preset in presets() {
            let penalised = LossConfig { kl: kl(0.3, estimator, false), ..preset };
            let alone = Batch { advantages: vec![0.0], ..dropped() }.run(&penalised).gradient;
            assert_ne!(alone, [[0.0; 2]]);
            let totals = BatchTotals { high_entropy: Some(kept), ..dropped().totals(None) };
            let off_policy = LossConfig { off_policy_threshold: Some(0.01), ..penalised };
            let low_entropy = LossConfig { high_entropy_share: Some(0.5), ..penalised };
            for config in [off_policy, low_entropy] {
                let got = dropped().run_in(&config, &totals).gradient;
                all_close(&got, &alone, 1e-16, &format!("{config:?}"));
            }
            // VESPO includes the correction in its weight, where a masked quotient counts as 1e-8.
            if preset != Preset::Vespo.config() {
                let config = LossConfig { mismatch: Some(masking), ..penalised };
                all_close(&dropped().run(&config).gradient, &alone, 1e-16, &format!("{config:?}"));
            }
        }
    }
}

/// Denominators, the quantile and the mean entropy include all action tokens, even those that a
/// mask drops.
#[test]
fn a_dropped_sequence_still_counts() {
    let batch = Batch {
        old: Some(vec![vec![-1.0; 2], vec![0.0; 2]]),
        entropies: vec![vec![1.0, 2.0], vec![3.0, 4.0]],
        entropy_coef: 0.5,
        ..on_policy(vec![vec![-1.0; 2]; 2], vec![-2.0, -2.0])
    };
    let config = LossConfig {
        off_policy_threshold: Some(0.5),
        high_entropy_share: Some(0.5),
        ..Preset::Dapo.config()
    };
    let got = batch.run(&config);
    // The two tokens with the highest entropy belong to the sequence that is dropped.
    assert_eq!(got.gradient, [[0.0; 2]; 2]);
    assert_eq!(got.entropy_gradient, [[0.0; 2], [-0.25; 2]]);
    close(got.loss, -1.75, 1e-15, "−0.5 · 3.5");
    let got = batch.run(&LossConfig { high_entropy_share: None, ..config });
    assert_eq!(got.gradient, [[0.5; 2], [0.0; 2]], "over four tokens");
    assert_eq!(got.entropy_gradient, [[-0.125; 2]; 2]);
}

/// Checks whether both the loss and the metric consider this sequence to be dropped.
#[track_caller]
fn drops(batch: &Batch, config: &LossConfig, expected: bool) {
    let gradient = batch.run(config).gradient.concat();
    assert_eq!(gradient.iter().all(|&g| g == 0.0), expected, "{gradient:?}");
    let metric = batch.statistics(config).metric("off_policy/dropped_ratio");
    assert_eq!(metric, Some(f64::from(u8::from(expected))));
}

#[test]
fn the_off_policy_mask_by_hand() {
    let config = LossConfig { off_policy_threshold: Some(0.5), ..Preset::Reinforce.config() };
    // The mean of −d over action tokens must exceed the threshold. Equality is not enough.
    drops(&of_log_ratios(&[-0.75, -0.5], -1.0), &config, true);
    drops(&of_log_ratios(&[-0.75, -0.25], -1.0), &config, false);
    drops(&of_log_ratios(&[-0.75, 0.5], -1.0), &config, false);
    drops(&of_log_ratios(&[0.75, 0.75], -1.0), &config, false);
    let mut masked = of_log_ratios(&[-0.75, 9.0], -1.0);
    masked.mask[0][1] = false;
    drops(&masked, &config, true);
    // A sequence with a positive advantage is never dropped.
    drops(&of_log_ratios(&[-0.75], 1.0), &config, false);
    let metric = |batch: &Batch| batch.statistics(&config).metric("off_policy/dropped_ratio");
    assert_eq!(metric(&of_log_ratios(&[-0.75], 0.0)), Some(0.0));
    let without = LossConfig { off_policy_threshold: None, ..config };
    assert_eq!(masked.statistics(&without).metric("off_policy/dropped_ratio"), None);
}

/// The behaviour policy is the sampler if there is a correction, then π_old, then the policy
/// itself, whose distance is 0.
#[test]
fn the_off_policy_mask_reads_what_behaved() {
    let plain = LossConfig { off_policy_threshold: Some(0.5), ..Preset::Reinforce.config() };
    let correction = MismatchCorrection {
        level: RatioLevel::Token,
        mode: MismatchMode::Truncate,
        min: 0.0,
        max: 2.0,
    };
    let corrected = LossConfig { mismatch: Some(correction), ..plain };
    let rows = |value: f64| Some(vec![vec![value; 2]]);
    let batch = on_policy(vec![vec![-1.0; 2]], vec![-1.0]);
    let far = Batch { old: rows(-0.25), sampling: rows(-1.0), ..batch.clone() };
    drops(&far, &plain, true);
    drops(&far, &corrected, false);
    let sampled_far = Batch { old: rows(-1.0), sampling: rows(-0.25), ..batch.clone() };
    drops(&sampled_far, &plain, false);
    drops(&sampled_far, &corrected, true);
    let first = Batch { old: None, ..sampled_far };
    drops(&first, &plain, false);
    drops(&first, &corrected, true);
    let zero = LossConfig { off_policy_threshold: Some(0.0), ..plain };
    drops(&first, &zero, false);
    drops(&batch, &zero, false);
}

/// With A = −1 and REINFORCE, the derivatives are equal to the corrected quotients.
#[test]
fn corrections_by_hand() {
    #[track_caller]
    fn check(mode: MismatchMode, level: RatioLevel, quotients: &[f64], expected: &[f64]) {
        let correction = MismatchCorrection { level, mode, min: 0.5, max: 4.0 };
        let mismatch = Some(correction);
        let config = LossConfig { mismatch, ..Preset::Luspo.config() };
        let config = LossConfig { surrogate: Preset::Reinforce.config().surrogate, ..config };
        let places = quotients.len();
        // Padding, which is not corrected.
        let mut batch = on_policy(vec![vec![-1.0; places + 1]], vec![-1.0]);
        batch.mask[0][places] = false;
        let mut sampling: Vec<f64> = quotients.iter().map(|q| -1.0 - q.ln()).collect();
        sampling.push(f64::NAN);
        batch.sampling = Some(vec![sampling]);
        let expected: Rows = vec![[expected, &[0.0]].concat()];
        let got = batch.run(&config);
        all_close(&got.gradient, &expected, 1e-14, &format!("{mode:?}, {level:?}"));
    }
    use MismatchMode::{Mask, Truncate};
    use RatioLevel::{Sequence, Token};
    check(Truncate, Token, &[0.25, 2.0, 8.0], &[0.5, 2.0, 4.0]);
    check(Mask, Token, &[0.25, 2.0, 8.0], &[0.0, 2.0, 0.0]);
    // The product is used, not the mean.
    check(Truncate, Sequence, &[0.25, 2.0, 3.0], &[1.5; 3]);
    check(Mask, Sequence, &[0.25, 2.0, 3.0], &[1.5; 3]);
    check(Truncate, Sequence, &[2.0, 4.0], &[4.0; 2]);
    check(Mask, Sequence, &[2.0, 4.0], &[0.0; 2]);
    check(Truncate, Sequence, &[0.5, 0.25], &[0.5; 2]);
    check(Mask, Sequence, &[0.5, 0.25], &[0.0; 2]);
}

/// Sampler metrics include both raw and corrected quotients.
#[test]
fn metrics_of_the_sampler_by_hand() {
    let ln2 = 2_f64.ln();
    let mut batch = on_policy(vec![vec![-1.0; 3]], vec![1.0]);
    batch.mask[0][2] = false;
    batch.sampling = Some(vec![vec![-1.0 - 2.0 * ln2, -1.0 + ln2, 9.0]]);
    let metrics = |config: &LossConfig| {
        let statistics = batch.statistics(config);
        let of = |name: &str| {
            let name = format!("sampling/{name}");
            [format!("{name}/min"), format!("{name}/mean"), format!("{name}/max")]
                .map(|name| statistics.metric(&name))
        };
        let [_, mean, most] = of("sampling_logp_difference");
        close(mean.unwrap(), 1.5 * ln2, 1e-15, "mean difference");
        close(most.unwrap(), 2.0 * ln2, 1e-15, "largest difference");
        (of("raw_importance_sampling_ratio"), of("importance_sampling_ratio"))
    };
    #[track_caller]
    fn check(got: [Option<f64>; 3], expected: [f64; 3]) {
        for (got, expected) in got.into_iter().zip(expected) {
            close(got.unwrap(), expected, 1e-14, "metric");
        }
    }
    let plain = Preset::Grpo.config();
    let (raw, corrected) = metrics(&plain);
    check(raw, [0.5, 2.25, 4.0]);
    assert_eq!(corrected, [None; 3]);
    let [of_tokens, masking, of_sequence, _] = <[_; 4]>::try_from(corrections()).unwrap();
    let with = |mismatch| LossConfig { mismatch: Some(mismatch), ..plain };
    let (raw, corrected) = metrics(&with(of_tokens));
    check(raw, [0.5, 2.25, 4.0]);
    check(corrected, [0.8, 1.025, 1.25]);
    check(metrics(&with(masking)).1, [0.0; 3]);
    let (raw, corrected) = metrics(&with(of_sequence));
    check(raw, [2.0; 3]);
    check(corrected, [1.25; 3]);
    let unknown = Batch { sampling: None, ..batch.clone() }.statistics(&plain);
    assert_eq!(unknown.metric("sampling/sampling_logp_difference/mean"), None);
}

/// A token whose entropy equals the threshold is kept in both the loss and the metric.
#[test]
fn the_threshold_itself_is_kept() {
    let config = LossConfig { high_entropy_share: Some(0.5), ..Preset::Reinforce.config() };
    let batch = Batch {
        entropies: vec![vec![0.5, 1.0, 1.5, 7.0]],
        mask: vec![vec![true, true, true, false]],
        ..on_policy(vec![vec![-1.0; 4]], vec![-3.0])
    };
    let totals = batch.totals(config.high_entropy_share);
    assert_eq!(totals.high_entropy, Some(HighEntropy { threshold: 1.0, tokens: 2 }));
    assert_eq!(batch.run(&config).gradient, [[0.0, 1.0, 1.0, 0.0]]);
    let statistics = batch.statistics(&config);
    assert_eq!((statistics.kept_entropy(), statistics.entropy()), (Some(1.25), Some(1.0)));
    assert_eq!(TokenStatistics::default().kept_entropy(), None);
}

/// If no token is masked, the loss is unchanged.
#[test]
fn masks_that_keep_everything_change_nothing() {
    let batch = crate::toy::Scene::new().batch();
    for config in every_option() {
        let open =
            LossConfig { off_policy_threshold: Some(1e3), high_entropy_share: Some(1.0), ..config };
        if config.high_entropy_share.is_none() && config.off_policy_threshold.is_none() {
            assert_eq!(batch.run(&open).gradient, batch.run(&config).gradient);
        }
    }
}
