//! Compares metrics with values calculated by hand, including edge cases.

use grpo_core::{KlEstimator, LossConfig, Preset, RatioLevel, Surrogate, TokenStatistics};

use crate::strategies::{kl, presets};
use crate::support::{Batch, Run, close, of_log_ratios, on_policy};

const CLIP_RATIOS: [&str; 5] = [
    "clip_ratio/low_mean",
    "clip_ratio/low_min",
    "clip_ratio/high_mean",
    "clip_ratio/high_max",
    "clip_ratio/region_mean",
];

#[track_caller]
fn check(batch: &Batch, config: &LossConfig, names: &[&str], expected: &[f64]) {
    let statistics = batch.statistics(config);
    let got: Vec<Option<f64>> = names.iter().map(|name| statistics.metric(name)).collect();
    let expected: Vec<Option<f64>> = expected.iter().copied().map(Some).collect();
    assert_eq!(got, expected, "{names:?}");
}

/// Creates two sequences with ratios 2, 1 | ½, 2, 1 and advantages A = 1 and A = −1. The sixth
/// position is padding.
fn two_sequences() -> Batch {
    let ln = f64::ln;
    Batch {
        mask: vec![vec![true, true, false], vec![true; 3]],
        old: Some(vec![vec![ln(0.25), ln(0.5), 9.0], vec![ln(1.0), ln(0.25), ln(0.5)]]),
        reference: Some(vec![vec![ln(0.25), ln(0.5), 9.0], vec![ln(0.5), ln(0.5), ln(1.0)]]),
        entropies: vec![vec![1.0, 2.0, 100.0], vec![3.0, 4.0, 5.0]],
        ..on_policy(vec![vec![ln(0.5); 3]; 2], vec![1.0, -1.0])
    }
}

#[test]
fn token_metrics_by_hand() {
    let batch = two_sequences();
    let config = Preset::Grpo.config();
    let expected = [1.0 / 5.0, 0.0, 1.0 / 5.0, 0.5, 2.0 / 5.0];
    check(&batch, &config, &CLIP_RATIOS, &expected);
    let statistics = batch.statistics(&config);
    assert_eq!(statistics.tokens(), 5);
    assert_eq!((statistics.entropy(), statistics.kept_entropy()), (Some(3.0), Some(3.0)));
    let [lowest, highest] = statistics.ratio_range().unwrap();
    close(lowest, 0.5, 1e-15, "smallest ratio");
    close(highest, 2.0, 1e-15, "largest ratio");
    check(&batch, &config, &["ratio/min", "ratio/max", "entropy"], &[lowest, highest, 3.0]);

    // e = ln ½, 0 | 0, 0, ln 2.
    let ln2 = 2_f64.ln();
    let of = |estimator, bias_correction| {
        let config = LossConfig { kl: kl(0.0, estimator, bias_correction), ..config };
        batch.statistics(&config).kl().unwrap()
    };
    close(of(KlEstimator::K1, false), 0.0, 1e-16, "k1");
    close(of(KlEstimator::K1, true), ln2 / 5.0, 1e-15, "k1 corrected");
    close(of(KlEstimator::K2, false), ln2 * ln2 / 5.0, 1e-15, "k2");
    close(of(KlEstimator::K2, true), 1.5 * ln2 * ln2 / 5.0, 1e-15, "k2 corrected");
    close(of(KlEstimator::K3, false), 0.5 / 5.0, 1e-15, "k3");
    close(of(KlEstimator::K3, true), ln2 / 5.0, 1e-15, "k3 corrected");
}

/// A sequence-level ratio is counted once per sequence.
#[test]
fn sequence_metrics_by_hand() {
    let surrogate = Surrogate::Clipped { epsilon_low: 0.2, epsilon_high: 0.2, delta: None };
    let config = LossConfig { surrogate, ..Preset::Gspo.config() };
    // √2 exceeds the bound with A = 1; the other ratio is 1 with A = −1.
    check(&two_sequences(), &config, &CLIP_RATIOS, &[0.0, 0.0, 0.5, 1.0, 0.5]);
    let [lowest, highest] = two_sequences().statistics(&config).ratio_range().unwrap();
    close(lowest, 1.0, 1e-15, "smallest ratio");
    close(highest, 2_f64.sqrt(), 1e-15, "largest ratio");
    let cispo = LossConfig { ratio_level: RatioLevel::Sequence, ..Preset::Cispo.config() };
    let cispo = LossConfig { surrogate: Surrogate::Cispo { cap: 1.2 }, ..cispo };
    check(&two_sequences(), &cispo, &["cispo_clip_ratio"], &[0.5]);
}

/// The minimum fraction of low clips is 0 only if some sequence has none.
#[test]
fn extremes_are_over_sequences() {
    let config = Preset::Grpo.config();
    let low = |log_ratios: [f64; 2]| log_ratios.map(|d| -1.0 - d).to_vec();
    let batch = Batch {
        old: Some(vec![low([-1.0, -1.0]), low([-1.0, 0.0]), low([1.0, 0.0])]),
        ..on_policy(vec![vec![-1.0; 2]; 3], vec![-1.0, -1.0, 1.0])
    };
    check(&batch.part(0..2), &config, &CLIP_RATIOS, &[0.75, 0.5, 0.0, 0.0, 0.75]);
    check(&batch, &config, &CLIP_RATIOS, &[0.5, 0.0, 1.0 / 6.0, 0.5, 2.0 / 3.0]);
}

/// A ratio that equals a bound is not clipped. Nothing is clipped if the advantage is 0.
#[test]
fn a_bound_is_inside() {
    let none = Surrogate::Clipped { epsilon_low: 0.0, epsilon_high: 0.0, delta: None };
    let config = LossConfig { surrogate: none, ..Preset::Grpo.config() };
    for advantage in [1.0, 0.0, -1.0] {
        check(&of_log_ratios(&[0.0], advantage), &config, &CLIP_RATIOS, &[0.0; 5]);
    }
    for log_ratio in [-1.0, 1.0] {
        check(&of_log_ratios(&[log_ratio], 0.0), &config, &CLIP_RATIOS, &[0.0; 5]);
    }
    check(&of_log_ratios(&[-1.0], 1.0), &config, &CLIP_RATIOS, &[0.0; 5]);
    check(&of_log_ratios(&[1.0], -1.0), &config, &CLIP_RATIOS, &[0.0; 5]);
    check(&of_log_ratios(&[-0.1], -1.0), &config, &CLIP_RATIOS, &[1.0, 1.0, 0.0, 0.0, 1.0]);
    check(&of_log_ratios(&[0.1], 1.0), &config, &CLIP_RATIOS, &[0.0, 0.0, 1.0, 1.0, 1.0]);

    let surrogate = Surrogate::Cispo { cap: 1.0 };
    let config = LossConfig { surrogate, ..Preset::Cispo.config() };
    let capped = |log_ratio: f64, advantage: f64, expected: f64| {
        check(&of_log_ratios(&[log_ratio], advantage), &config, &["cispo_clip_ratio"], &[expected]);
    };
    capped(0.0, 1.0, 0.0);
    capped(0.1, 1.0, 1.0);
    capped(0.1, 0.0, 0.0);
    capped(0.1, -1.0, 0.0);
}

/// A non-finite weight is replaced by 0 in both the loss and the metric.
#[test]
fn each_surrogate_has_its_own_metrics() {
    let batch = of_log_ratios(&[0.1], 1.0);
    for config in presets() {
        let statistics = batch.statistics(&config);
        let has = |name: &str| statistics.metric(name).is_some();
        let surrogate = config.surrogate;
        assert_eq!(has("clip_ratio/low_mean"), matches!(surrogate, Surrogate::Clipped { .. }));
        assert_eq!(has("clip_ratio/region_mean"), matches!(surrogate, Surrogate::Clipped { .. }));
        assert_eq!(has("cispo_clip_ratio"), matches!(surrogate, Surrogate::Cispo { .. }));
        assert_eq!(has("vespo/phi_seq_mean"), matches!(surrogate, Surrogate::Vespo { .. }));
        assert!(has("ratio/min") && has("entropy") && !has("kl") && !has("nothing"));
    }
}

#[test]
fn sums_of_nothing_are_equal_and_empty() {
    let nothing = TokenStatistics::default();
    assert_eq!(nothing.metrics(), []);
    assert_eq!((nothing.kl(), nothing.entropy(), nothing.tokens()), (None, None, 0));
    let mut sums = TokenStatistics::default();
    let batch = of_log_ratios(&[0.1], 1.0).part(0..0);
    batch.add_to(&mut sums, &Preset::Grpo.config(), &batch.totals(None));
    assert_eq!(sums, nothing);
}
