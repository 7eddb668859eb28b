//! Tests each loss option in complete steps.

use grpo_core::{
    AdvantageConfig, EntropyBonus, KlEstimator, KlPlacement, MismatchCorrection, MismatchMode,
    Preset, RatioLevel, group_advantages,
};
use grpo_train::{GrpoConfig, LossSettings, StepReport};

use crate::oracle::{advantages, completions, logprobs};
use crate::support::{
    begin, chains, config, distance, fresh_model, grpo, model, parameters, take_step, vocabulary,
};

/// Sets ε of AdamW to 1, so that a step is a smooth function of the gradient. Two updates are used
/// so that ratios differ from 1 where the loss has them.
pub(crate) fn smooth(loss: LossSettings) -> GrpoConfig {
    let mut config = GrpoConfig { loss, ..config() };
    config.optimizer.epsilon = 1.0;
    config.optimizer.learning_rate = 1.0;
    config.optimizer.max_grad_norm = 1e6;
    config.train.updates_per_rollout = if loss.preset == Preset::Reinforce { 1 } else { 2 };
    config
}

/// Performs two steps and returns the last report along with the parameters.
fn run(config: GrpoConfig) -> (StepReport, Vec<f32>) {
    let mut grpo = grpo(config, chains());
    take_step(&mut grpo, 0);
    let report = take_step(&mut grpo, 1);
    (report, parameters(grpo.policy()))
}

pub(crate) fn choices() -> Vec<LossSettings> {
    let plain = LossSettings { kl_coef: Some(0.05), ..LossSettings::default() };
    let mode = MismatchMode::Truncate;
    let mismatch = |level, max| Some(MismatchCorrection { level, mode, min: 0.5, max });
    let exact = LossSettings { kl_estimator: Some(KlEstimator::Exact), ..plain };
    let mut all: Vec<LossSettings> =
        Preset::ALL.iter().map(|&preset| LossSettings { preset, ..plain }).collect();
    all.retain(|settings| settings.preset != Preset::Bnpo);
    all.extend([
        LossSettings { delta: Some(1.3), ..plain },
        LossSettings { kl_estimator: Some(KlEstimator::K1), ..plain },
        LossSettings {
            kl_estimator: Some(KlEstimator::K2),
            kl_bias_correction: Some(false),
            ..plain
        },
        exact,
        LossSettings { high_entropy_share: Some(0.3), ..exact },
        LossSettings { kl_placement: Some(KlPlacement::Reward), ..plain },
        LossSettings { kl_placement: Some(KlPlacement::Reward), ..exact },
        LossSettings { off_policy_threshold: Some(0.0), ..plain },
        LossSettings { high_entropy_share: Some(0.3), ..plain },
        LossSettings { mismatch: mismatch(RatioLevel::Token, 0.9), ..plain },
        LossSettings { mismatch: mismatch(RatioLevel::Sequence, 0.8), ..plain },
        LossSettings { entropy_bonus: Some(EntropyBonus::Static { coef: 0.01 }), ..plain },
        LossSettings {
            entropy_bonus: Some(EntropyBonus::Static { coef: 0.01 }),
            high_entropy_share: Some(0.5),
            ..plain
        },
    ]);
    all
}

#[test]
fn every_choice_moves_the_policy_alike_however_the_step_is_cut() {
    let start = parameters(&model(vocabulary().len(), 2.0));
    let mut seen: Vec<Vec<f32>> = vec![];
    for loss in choices() {
        let whole = smooth(loss);
        let mut cut = whole.clone();
        cut.train.micro_batch_tokens = 5;
        let ((whole, after_whole), (cut, after_cut)) = (run(whole), run(cut));
        let scale = whole.learned.grad_norm().abs().max(1.0);
        assert!(
            (whole.learned.grad_norm() - cut.learned.grad_norm()).abs() < 1e-4 * scale,
            "{loss:?}"
        );
        assert!(
            (whole.learned.loss() - cut.learned.loss()).abs()
                < 1e-4 * whole.learned.loss().abs().max(1.0),
            "{loss:?}"
        );
        assert!(distance(&after_whole, &after_cut) < 1e-4, "{loss:?}");
        assert!(distance(&after_whole, &start) > 1e-4, "{loss:?} moved nothing");
        for other in &seen {
            assert!(distance(&after_whole, other) > 1e-6, "{loss:?} is as another");
        }
        seen.push(after_whole);
    }
}

/// The settings recorded for a run must not depend on later changes to a preset.
#[test]
fn a_resolved_loss_is_the_same_loss() {
    for loss in choices() {
        let resolved = loss.resolved().unwrap();
        assert_eq!(resolved.resolve().unwrap(), loss.resolve().unwrap());
        assert!(resolved.surrogate.is_some() && resolved.reduction.is_some());
        let other_preset = LossSettings { preset: Preset::Vespo, ..resolved };
        assert_eq!(other_preset.resolve().unwrap(), loss.resolve().unwrap());
    }
}

/// Multiplying k2 by the importance ratio does not make it unbiased.
#[test]
fn k2_is_not_bias_corrected_unless_asked() {
    let corrected = |kl_estimator| {
        let settings =
            LossSettings { kl_coef: Some(0.05), kl_estimator, ..LossSettings::default() };
        settings.resolve().unwrap().kl.bias_correction
    };
    let estimators = [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::Exact];
    assert_eq!(estimators.map(|one| corrected(Some(one))), [true, false, true, false]);
}

#[test]
fn a_penalty_in_the_reward_is_taken_off_before_advantages() {
    let beta = 0.3;
    for estimator in [KlEstimator::K1, KlEstimator::K3] {
        let mut config = config();
        config.loss = LossSettings {
            kl_coef: Some(beta),
            kl_placement: Some(KlPlacement::Reward),
            kl_estimator: Some(estimator),
            ..LossSettings::default()
        };
        let mut grpo = grpo(config, chains());
        let reference = model(vocabulary().len(), 2.0);
        assert_eq!(
            take_step(&mut grpo, 0).learned.reward_kl,
            Some(0.0),
            "the policy is its reference"
        );
        let report = take_step(&mut grpo, 1);
        let of_completions: Vec<f64> = completions(&report)
            .map(|completion| {
                let pairs = logprobs(&reference, completion).into_iter();
                let pairs = pairs.zip(completion.sampling_logprobs().unwrap());
                let terms = pairs.map(|(reference, &sampled)| {
                    let e = reference - f64::from(sampled);
                    if estimator == KlEstimator::K1 { -e } else { e.exp() - e - 1.0 }
                });
                terms.sum()
            })
            .collect();
        let mean = of_completions.iter().sum::<f64>() / of_completions.len() as f64;
        assert!(mean.abs() > 1e-3, "the policy has not moved");
        assert!((report.learned.reward_kl.unwrap() - mean).abs() < 1e-5);
        let shaped: Vec<Option<f64>> = report
            .samples()
            .zip(&of_completions)
            .map(|(sample, kl)| Some(sample.reward()? - beta * kl))
            .collect();
        let groups: Vec<Vec<Option<f64>>> = shaped.chunks(8).map(<[_]>::to_vec).collect();
        let expected = group_advantages(&groups, &AdvantageConfig::default()).unwrap();
        let pairs = advantages(&report).into_iter().zip(expected.groups.concat());
        pairs
            .for_each(|(got, expected)| assert!((got - expected).abs() < 1e-3, "{got} {expected}"));
    }
}

#[test]
fn the_exact_kl_begins_at_zero_and_is_never_negative() {
    let mut config = config();
    config.loss.kl_estimator = Some(KlEstimator::Exact);
    let mut grpo = grpo(config, chains());
    assert_eq!(take_step(&mut grpo, 0).learned.tokens().kl(), Some(0.0));
    let later = take_step(&mut grpo, 1).learned.tokens().kl().unwrap();
    assert!(later > 1e-5, "{later}");
}

#[test]
fn an_adaptive_entropy_bonus_follows_the_entropy() {
    // The output of an untrained model is nearly uniform.
    let uniform = (vocabulary().len() as f64).ln();
    let coefs = |target: f64| -> Vec<(f64, bool)> {
        let mut config = config();
        config.loss.entropy_bonus = Some(EntropyBonus::Adaptive {
            initial: 0.1,
            target,
            delta: 0.02,
            min: 0.07,
            max: 0.13,
        });
        let vocabulary = vocabulary();
        let model = fresh_model(vocabulary.len());
        let boundary = vocabulary.boundary();
        let mut grpo = begin(model, config, 11, boundary, chains()).unwrap();
        (0..4)
            .map(|step| {
                let report = take_step(&mut grpo, step);
                let learned = &report.learned;
                let without_bonus = learned.policy_loss() + learned.kl_penalty();
                (learned.entropy_coef().unwrap(), without_bonus == learned.loss())
            })
            .collect()
    };
    // The entropy is unknown before the first update. Afterwards the coefficient rises to its upper
    // bound.
    let below = coefs(2.0 * uniform);
    let got: Vec<f64> = below.iter().map(|(coef, _)| (coef * 100.0).round() / 100.0).collect();
    assert_eq!(got, [0.0, 0.12, 0.13, 0.13]);
    assert_eq!(
        below.iter().map(|(_, same)| *same).collect::<Vec<_>>(),
        [true, false, false, false]
    );
    let above = coefs(0.1 * uniform);
    assert!(above.iter().all(|(coef, _)| *coef == 0.0));
}
