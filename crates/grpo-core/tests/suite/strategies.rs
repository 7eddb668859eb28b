//! Generates batches and configurations for property tests.

use grpo_core::{
    EntropyBonus, KlConfig, KlEstimator, KlPlacement, LossConfig, MismatchCorrection, MismatchMode,
    Preset, RatioLevel, Reduction, Surrogate,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::{Batch, Rows, rounded};

pub(crate) const LEVELS: [RatioLevel; 2] = [RatioLevel::Token, RatioLevel::Sequence];

pub(crate) const REDUCTIONS: [Reduction; 5] = [
    Reduction::SequenceMean,
    Reduction::SequenceSum,
    Reduction::TokenMean,
    Reduction::MicroBatchTokenMean,
    Reduction::Constant,
];

/// Creates a penalty that is part of the loss.
pub(crate) fn kl(coef: f64, estimator: KlEstimator, bias_correction: bool) -> KlConfig {
    KlConfig { coef, estimator, placement: KlPlacement::Loss, bias_correction }
}

/// Returns all valid penalties in the loss with a positive coefficient.
pub(crate) fn penalties() -> Vec<KlConfig> {
    use KlEstimator::{Exact, K1, K2, K3};
    let kinds = [(K1, true), (K2, false), (K2, true), (K3, false), (K3, true), (Exact, false)];
    kinds.map(|(estimator, bias_correction)| kl(0.3, estimator, bias_correction)).to_vec()
}

/// Returns all corrections, with bounds that some quotients in [`batches`] exceed.
pub(crate) fn corrections() -> Vec<MismatchCorrection> {
    let modes = [MismatchMode::Truncate, MismatchMode::Mask];
    let both = LEVELS.into_iter().flat_map(|level| modes.map(|mode| (level, mode)));
    both.map(|(level, mode)| MismatchCorrection { level, mode, min: 0.8, max: 1.25 }).collect()
}

/// Returns the unmodified presets.
pub(crate) fn presets() -> Vec<LossConfig> {
    Preset::ALL.map(Preset::config).to_vec()
}

/// Returns every preset and ratio level: unmodified, with each option on its own, and with many
/// options at once.
pub(crate) fn every_option() -> Vec<LossConfig> {
    let mut all = Vec::new();
    for preset in presets() {
        for ratio_level in LEVELS {
            let base = LossConfig { ratio_level, ..preset };
            let first = all.len();
            all.push(base);
            all.extend(REDUCTIONS.map(|reduction| LossConfig { reduction, ..base }));
            all.extend(penalties().into_iter().map(|kl| LossConfig { kl, ..base }));
            all.push(LossConfig { off_policy_threshold: Some(0.05), ..base });
            all.push(LossConfig { high_entropy_share: Some(0.5), ..base });
            let corrections = corrections().into_iter().map(Some);
            all.extend(corrections.map(|mismatch| LossConfig { mismatch, ..base }));
            let entropy_bonus = Some(EntropyBonus::Static { coef: 0.1 });
            all.push(LossConfig { entropy_bonus, ..base });
            if let Surrogate::Clipped { epsilon_low, epsilon_high, .. } = base.surrogate {
                let delta = Some(1.0 + 2.0 * epsilon_high);
                let surrogate = Surrogate::Clipped { epsilon_low, epsilon_high, delta };
                all.push(LossConfig { surrogate, ..base });
            }
            all.push(LossConfig {
                kl: kl(0.3, KlEstimator::K3, true),
                off_policy_threshold: Some(0.05),
                high_entropy_share: Some(0.5),
                mismatch: Some(self::corrections()[1]),
                entropy_bonus,
                ..base
            });
            let alone = all.split_off(first);
            all.extend(alone.into_iter().filter_map(|config| config.checked().ok()));
        }
    }
    all
}

/// Generates any valid loss configuration.
pub(crate) fn configs() -> impl Strategy<Value = LossConfig> {
    let surrogates: Vec<Surrogate> = presets()
        .iter()
        .map(|preset| preset.surrogate)
        .chain([
            Surrogate::Clipped { epsilon_low: 0.1, epsilon_high: 0.15, delta: Some(1.3) },
            Surrogate::Cispo { cap: 1.1 },
        ])
        .collect();
    let without = kl(0.0, KlEstimator::K3, true);
    let independent = (
        select(surrogates),
        select(LEVELS.to_vec()),
        prop_oneof![Just(without), select(penalties())],
        select(REDUCTIONS.to_vec()),
        prop::option::of(0.0..0.2_f64),
        prop::option::of(0.05..1.0_f64),
        prop::option::of(select(corrections())),
    );
    let config = independent.prop_map(
        |(surrogate, ratio_level, kl, reduction, off_policy, high_entropy, mismatch)| LossConfig {
            surrogate,
            ratio_level,
            kl,
            reduction,
            off_policy_threshold: off_policy,
            high_entropy_share: high_entropy,
            mismatch,
            entropy_bonus: None,
        },
    );
    config.prop_filter_map("allowed", |config| config.checked().ok())
}

/// Generates batches of 1 to 5 rows with up to 6 tokens each and some gaps. Ratios occur on both
/// sides of every bound, and all values can be represented in f32.
pub(crate) fn batches() -> impl Strategy<Value = Batch> {
    let f32s = |range: std::ops::Range<f32>| range.prop_map(f64::from);
    (1..=5_usize, 1..=6_usize, prop_oneof![Just(0.0), f32s(0.01..1.0)]).prop_flat_map(
        move |(rows, width, entropy_coef)| {
            let numbers = [
                f32s(-4.0..-0.05),
                f32s(-0.5..0.5),
                f32s(-1.0..1.0),
                f32s(-0.4..0.4),
                f32s(0.0..2.0),
                f32s(0.0..3.0),
            ];
            let token = (numbers, prop::bool::weighted(0.8));
            let row = (prop::collection::vec(token, width), f32s(-2.0..2.0));
            prop::collection::vec(row, rows).prop_map(move |rows| {
                let each = |value: fn(&[f64; 6]) -> f64| -> Rows {
                    let row = |(row, _): &(Vec<([f64; 6], bool)>, f64)| {
                        row.iter().map(|(token, _)| rounded(value(token))).collect()
                    };
                    rows.iter().map(row).collect()
                };
                Batch {
                    logprobs: each(|t| t[0]),
                    mask: rows.iter().map(|(row, _)| row.iter().map(|t| t.1).collect()).collect(),
                    advantages: rows.iter().map(|row| row.1).collect(),
                    old: Some(each(|t| t[0] - t[1])),
                    reference: Some(each(|t| t[0] + t[2])),
                    sampling: Some(each(|t| t[0] - t[1] + t[3])),
                    exact_kl: Some(each(|t| t[4])),
                    entropies: each(|t| t[5]),
                    entropy_coef,
                }
            })
        },
    )
}
