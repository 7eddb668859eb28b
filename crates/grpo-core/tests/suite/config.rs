//! Tests which configurations are valid, and the error messages for invalid ones.

use grpo_core::{
    AdvantageConfig, Aggregation, Baseline, EntropyBonus, KlConfig, KlEstimator, KlPlacement,
    LossConfig, MismatchCorrection, MismatchMode, Preset, RatioLevel, Reduction, RewardScale,
    Surrogate,
};

use crate::strategies::kl;

fn grpo() -> LossConfig {
    Preset::Grpo.config()
}

fn with(surrogate: Surrogate) -> LossConfig {
    LossConfig { surrogate, ..grpo() }
}

#[track_caller]
fn refused(config: LossConfig, message: &str) {
    assert_eq!(config.checked().unwrap_err().to_string(), message);
}

#[track_caller]
fn allowed(config: LossConfig) {
    assert_eq!(config.checked(), Ok(config));
}

/// Checks that all `values` are rejected with a message that contains the valid range.
#[track_caller]
fn out_of_range(make: impl Fn(f64) -> LossConfig, name: &str, values: &[f64], range: &str) {
    for &value in values {
        refused(make(value), &format!("{name} = {value} is out of range; it must be {range}"));
    }
}

const BELOW_ZERO: [f64; 3] = [-1e-9, f64::NAN, f64::INFINITY];
const AT_MOST_ZERO: [f64; 4] = [0.0, -1.0, f64::NAN, f64::INFINITY];

#[test]
fn clipping_has_ranges() {
    let clipped = |epsilon_low, epsilon_high, delta| {
        with(Surrogate::Clipped { epsilon_low, epsilon_high, delta })
    };
    let low = |low| clipped(low, 0.2, None);
    out_of_range(low, "epsilon_low", &[-0.1, 1.0 + 1e-9, f64::NAN], "0 to 1");
    let at_least = "0 or more and finite";
    out_of_range(|high| clipped(0.2, high, None), "epsilon_high", &BELOW_ZERO, at_least);
    let delta = |delta| clipped(0.2, 0.25, Some(delta));
    out_of_range(delta, "delta", &AT_MOST_ZERO, "above 0 and finite");
    allowed(clipped(0.0, 0.0, None));
    allowed(clipped(1.0, 5.0, None));
    allowed(delta(1e-9));
}

#[test]
fn other_surrogates_have_ranges() {
    let range = "above 0 and finite";
    out_of_range(|cap| with(Surrogate::Cispo { cap }), "cap", &AT_MOST_ZERO, range);
    let sapo = |temperature_positive, temperature_negative| {
        with(Surrogate::Sapo { temperature_positive, temperature_negative })
    };
    out_of_range(|t| sapo(t, 1.0), "temperature_positive", &AT_MOST_ZERO, range);
    out_of_range(|t| sapo(1.0, t), "temperature_negative", &AT_MOST_ZERO, range);
    let vespo = |[k_positive, lambda_positive, k_negative, lambda_negative]: [f64; 4]| {
        with(Surrogate::Vespo { k_positive, lambda_positive, k_negative, lambda_negative })
    };
    let names = ["k_positive", "lambda_positive", "k_negative", "lambda_negative"];
    for (place, name) in names.into_iter().enumerate() {
        let one = |value| {
            let mut values = [1.0; 4];
            values[place] = value;
            vespo(values)
        };
        out_of_range(one, name, &AT_MOST_ZERO, range);
    }
    allowed(vespo([1e-9; 4]));
    allowed(with(Surrogate::Reinforce {}));
}

#[test]
fn masks_have_ranges() {
    let off_policy = |threshold| LossConfig { off_policy_threshold: Some(threshold), ..grpo() };
    let at_least = "0 or more and finite";
    out_of_range(off_policy, "off_policy_threshold", &BELOW_ZERO, at_least);
    allowed(off_policy(0.0));
    let share = |share| LossConfig { high_entropy_share: Some(share), ..grpo() };
    let range = "above 0 and at most 1";
    out_of_range(share, "high_entropy_share", &[0.0, -0.5, 1.0 + 1e-9, f64::NAN], range);
    allowed(share(1.0));
    allowed(share(1e-9));
}

#[test]
fn corrections_have_ranges() {
    let bounds = |min, max| {
        let (level, mode) = (RatioLevel::Token, MismatchMode::Truncate);
        LossConfig { mismatch: Some(MismatchCorrection { level, mode, min, max }), ..grpo() }
    };
    let at_least = "0 or more and finite";
    out_of_range(|min| bounds(min, 2.0), "mismatch.min", &BELOW_ZERO, at_least);
    let range = "above 0 and finite";
    out_of_range(|max| bounds(0.0, max), "mismatch.max", &AT_MOST_ZERO, range);
    refused(bounds(2.5, 2.0), "mismatch.min = 2.5 is above mismatch.max = 2");
    allowed(bounds(2.0, 2.0));
    allowed(bounds(0.0, 1e-9));
    let text = r#"{"level": "token", "mode": "mask", "max": 2.0}"#;
    let unbounded: MismatchCorrection = serde_json::from_str(text).unwrap();
    assert_eq!(unbounded.min, 0.0);
}

#[test]
fn vespo_has_no_correction_of_sequences() {
    for mode in [MismatchMode::Truncate, MismatchMode::Mask] {
        let of = |level, preset: Preset| {
            let mismatch = Some(MismatchCorrection { level, mode, min: 0.0, max: 2.0 });
            LossConfig { mismatch, ..preset.config() }
        };
        refused(
            of(RatioLevel::Sequence, Preset::Vespo),
            "the vespo surrogate folds the sampler mismatch of each token into its sequence \
             weight, so a sequence-level correction would count it twice; use mismatch.level = \
             \"token\"",
        );
        allowed(of(RatioLevel::Token, Preset::Vespo));
        allowed(of(RatioLevel::Sequence, Preset::Grpo));
    }
}

#[test]
fn bonuses_have_ranges() {
    let bonus = |bonus| LossConfig { entropy_bonus: Some(bonus), ..grpo() };
    let fixed = |coef| bonus(EntropyBonus::Static { coef });
    let at_least = "0 or more and finite";
    out_of_range(fixed, "entropy_bonus.coef", &BELOW_ZERO, at_least);
    allowed(fixed(0.0));
    let adaptive = |[initial, target, delta, min, max]: [f64; 5]| {
        bonus(EntropyBonus::Adaptive { initial, target, delta, min, max })
    };
    let good = [0.5, 1.0, 0.1, 0.25, 1.0];
    let one = |place: usize| {
        move |value| {
            let mut values = good;
            values[place] = value;
            adaptive(values)
        }
    };
    for (place, name) in [(1, "target"), (2, "delta"), (3, "min"), (4, "max")] {
        out_of_range(one(place), &format!("entropy_bonus.{name}"), &BELOW_ZERO, at_least);
    }
    let between = "between entropy_bonus.min and entropy_bonus.max";
    let outside = [0.25 - 1e-9, 1.0 + 1e-9, f64::NAN];
    out_of_range(one(0), "entropy_bonus.initial", &outside, between);
    for initial in [0.25, 0.5, 1.0] {
        allowed(one(0)(initial));
    }
    // If the bounds are in the wrong order, no value is valid.
    out_of_range(|min| adaptive([0.5, 1.0, 0.1, min, 0.4]), "entropy_bonus.initial", &[], between);
    assert!(adaptive([0.5, 1.0, 0.1, 0.6, 0.4]).checked().is_err());
}

#[test]
fn refuses_an_invalid_penalty() {
    let of = |kl| LossConfig { kl, ..grpo() };
    let at_least = "0 or more and finite";
    out_of_range(|coef| of(kl(coef, KlEstimator::K3, true)), "kl_coef", &BELOW_ZERO, at_least);
    refused(
        of(kl(0.1, KlEstimator::K1, false)),
        "kl_estimator = \"k1\" without kl_bias_correction has an expected gradient of zero, so as a loss it only adds noise; use k3, enable the correction, or apply the penalty to the reward",
    );
    allowed(of(kl(0.1, KlEstimator::K1, true)));
    // If the coefficient is 0, the KL is only reported as a metric.
    allowed(of(kl(0.0, KlEstimator::K1, false)));
    let in_reward = |estimator, bias_correction| {
        let placement = KlPlacement::Reward;
        of(KlConfig { coef: 0.1, estimator, placement, bias_correction })
    };
    use KlEstimator::{Exact, K1, K2, K3};
    for estimator in [K1, K2, K3, Exact] {
        allowed(in_reward(estimator, false));
        refused(
            in_reward(estimator, true),
            "kl_bias_correction has no effect on a penalty in the reward, which is not differentiated; remove it",
        );
    }
    let exact = "kl_bias_correction has no effect on the exact KL, which is not estimated from the sampled token; remove it";
    refused(of(kl(0.1, Exact, true)), exact);
    refused(of(kl(0.0, Exact, true)), exact);
    allowed(of(kl(0.1, Exact, false)));
}

#[test]
fn advantages_have_ranges() {
    let default = AdvantageConfig::default();
    let check = |config: AdvantageConfig, message: &str| {
        assert_eq!(config.checked().map_err(|error| error.to_string()), Err(message.to_owned()));
    };
    for epsilon in BELOW_ZERO {
        let message =
            format!("epsilon = {epsilon} is out of range; it must be 0 or more and finite");
        check(AdvantageConfig { epsilon, ..default }, &message);
    }
    for clip in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let message = format!("clip = {clip} is out of range; it must be above 0 and finite");
        check(AdvantageConfig { clip: Some(clip), ..default }, &message);
    }
    let (baseline, aggregation) = (Baseline::Batch, Aggregation::NormalizeThenSum);
    check(
        AdvantageConfig { baseline, ..default },
        "a batch baseline cannot be scaled by the group's deviation, which is 0 for equal rewards; use scale = \"batch\" or \"none\"",
    );
    for scale in [RewardScale::Group, RewardScale::Batch, RewardScale::None] {
        check(
            AdvantageConfig { baseline, aggregation, scale, ..default },
            "aggregation = \"normalize_then_sum\" centres each reward function around its mean within the \
             group; use baseline = \"group\" or \"leave_one_out\"",
        );
    }
    for quantile in [0.0, -0.5, 1.000001, f64::NAN] {
        let message =
            format!("quantile = {quantile} is out of range; it must be above 0 and at most 1");
        check(AdvantageConfig { quantile, ..default }, &message);
    }
    let good = AdvantageConfig { epsilon: 0.0, clip: Some(1e-9), ..default };
    assert_eq!(good.checked(), Ok(good));
    let batch = AdvantageConfig { baseline, scale: RewardScale::Batch, ..default };
    assert_eq!(batch.checked(), Ok(batch));
    let refused = AdvantageConfig { baseline, ..default };
    let error = grpo_core::group_advantages(&[], &refused);
    assert_eq!(error.unwrap_err(), refused.checked().unwrap_err().into());
}

#[test]
fn names_stand_for_the_choices_of_their_papers() {
    #[track_caller]
    fn check(name: &str, surrogate: Surrogate, level: RatioLevel, reduction: Reduction) {
        let preset: Preset = serde_json::from_str(&format!("\"{name}\"")).unwrap();
        let got = preset.config();
        assert_eq!((got.surrogate, got.ratio_level, got.reduction), (surrogate, level, reduction));
        assert_eq!(got.kl, kl(0.0, KlEstimator::K3, true));
        let plain = LossConfig {
            off_policy_threshold: None,
            high_entropy_share: None,
            mismatch: None,
            entropy_bonus: None,
            ..got
        };
        assert_eq!(got.checked(), Ok(plain));
        let scale = if name == "dr_grpo" { RewardScale::None } else { RewardScale::Group };
        assert_eq!(preset.reward_scale(), scale);
    }
    use RatioLevel::{Sequence, Token};
    let clipped =
        |epsilon_low, epsilon_high| Surrogate::Clipped { epsilon_low, epsilon_high, delta: None };
    check("grpo", clipped(0.2, 0.2), Token, Reduction::SequenceMean);
    check("dr_grpo", clipped(0.2, 0.2), Token, Reduction::Constant);
    check("dapo", clipped(0.2, 0.28), Token, Reduction::TokenMean);
    check("bnpo", clipped(0.2, 0.2), Token, Reduction::MicroBatchTokenMean);
    check("gspo", clipped(3e-4, 4e-4), Sequence, Reduction::SequenceMean);
    check("cispo", Surrogate::Cispo { cap: 5.0 }, Token, Reduction::TokenMean);
    let sapo = Surrogate::Sapo { temperature_positive: 1.0, temperature_negative: 1.05 };
    check("sapo", sapo, Token, Reduction::SequenceMean);
    let vespo = Surrogate::Vespo {
        k_positive: 2.0,
        lambda_positive: 3.0,
        k_negative: 3.0,
        lambda_negative: 2.0,
    };
    check("vespo", vespo, Token, Reduction::TokenMean);
    check("luspo", clipped(3e-4, 4e-4), Sequence, Reduction::SequenceSum);
    check("reinforce", Surrogate::Reinforce {}, Token, Reduction::SequenceMean);
    assert_eq!(Preset::default(), Preset::Grpo);
    let written: AdvantageConfig = serde_json::from_str("{}").unwrap();
    assert_eq!(written, AdvantageConfig::default());
    assert_eq!((written.epsilon, written.clip), (1e-4, None));
}

#[test]
fn a_preset_is_shown_as_a_configuration_names_it() {
    for preset in Preset::ALL {
        let name = serde_json::to_value(preset).unwrap();
        assert_eq!(name, preset.to_string());
    }
}

#[test]
fn a_refusal_names_its_setting() {
    let mismatch = |level, min| {
        let mode = MismatchMode::Truncate;
        Some(MismatchCorrection { level, mode, min, max: 2.0 })
    };
    let with_kl = |kl: KlConfig| LossConfig { kl, ..grpo() };
    let of_sequences = mismatch(RatioLevel::Sequence, 0.0);
    for (config, setting) in [
        (with(Surrogate::Cispo { cap: 0.0 }), "cap"),
        (with_kl(kl(0.1, KlEstimator::K1, false)), "kl_estimator"),
        (with_kl(kl(0.1, KlEstimator::Exact, true)), "kl_bias_correction"),
        (LossConfig { mismatch: of_sequences, ..Preset::Vespo.config() }, "mismatch.level"),
        (LossConfig { mismatch: mismatch(RatioLevel::Token, 2.5), ..grpo() }, "mismatch.min"),
    ] {
        assert_eq!(config.checked().unwrap_err().setting(), setting);
    }
    let baseline = AdvantageConfig { baseline: Baseline::Batch, ..AdvantageConfig::default() };
    let aggregation = Aggregation::NormalizeThenSum;
    for config in [baseline, AdvantageConfig { aggregation, ..baseline }] {
        assert_eq!(config.checked().unwrap_err().setting(), "baseline");
    }
}
