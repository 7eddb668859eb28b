//! Tests sampler mismatches by changing recorded log-probabilities.

use burn::module::Module;
use grpo_core::{MismatchCorrection, MismatchMode, Preset, RatioLevel};
use grpo_data::{Completion, CompletionParts, Group};
use grpo_model::{Frozen, LanguageModel, WeightPrecision};
use grpo_train::{
    AboveTolerance, GrpoConfig, LearnResult, Learner, SamplerCheck, TrainError, Update,
};

use crate::oracle::logprobs;
use crate::support::{chains, config, grpo, model, parameters, take_step, vocabulary};

/// Creates settings with small micro-batches and two updates.
fn cut() -> GrpoConfig {
    let mut config = config();
    config.train.micro_batch_tokens = 60;
    config.train.updates_per_rollout = 2;
    config
}

fn with(above: AboveTolerance, tolerance: f64) -> GrpoConfig {
    GrpoConfig { sampler_check: SamplerCheck { tolerance, above: Some(above) }, ..cut() }
}

/// Returns samples from the initial policy with their rewards.
fn sampled() -> Vec<Group> {
    take_step(&mut grpo(config(), chains()), 0).groups
}

/// Returns the same completions after applying `change` to the recorded log-probabilities.
pub(crate) fn recorded(groups: &[Group], change: impl Fn(u32, u32, &mut [f32])) -> Vec<Group> {
    let mut groups = groups.to_vec();
    for sample in groups.iter_mut().flat_map(|group| &mut group.samples) {
        let mut parts = CompletionParts::from(sample.completion.clone());
        change(parts.key.prompt, parts.key.sample, parts.sampling_logprobs.as_mut().unwrap());
        sample.completion = Completion::new(parts);
    }
    groups
}

/// Learns from `groups` and returns the result along with the parameters.
fn learn(config: &GrpoConfig, groups: &[Group]) -> (Result<LearnResult, TrainError>, Vec<f32>) {
    let policy = model(vocabulary().len(), 2.0);
    let reference = Frozen::snapshot(&policy);
    let mut learner = Learner::new(policy, reference, config).unwrap();
    let learned = learner.learn(&mut groups.to_vec(), 1e-2);
    (learned, parameters(learner.policy()))
}

/// Returns the loss, gradient norm and metrics of each update.
fn numbers(learned: &LearnResult) -> Vec<(&'static str, f64)> {
    let of = |update: &Update| {
        let own = [("loss", update.loss), ("grad_norm", update.grad_norm)];
        own.into_iter().chain(update.tokens.metrics()).collect::<Vec<_>>()
    };
    learned.updates.iter().flat_map(of).collect()
}

#[test]
fn a_wrong_sampler_ends_the_run_before_the_policy_moves() {
    let groups = sampled();
    let before = parameters(&model(vocabulary().len(), 2.0));
    // A single token is sufficient, no matter which micro-batch contains its completion.
    for (prompt, sample) in [(0, 0), (1, 3), (2, 7)] {
        let completion = &groups[prompt as usize].samples[sample as usize].completion;
        let last = completion.actions() - 1;
        let wrong = recorded(&groups, |p, s, logprobs| {
            if (p, s) == (prompt, sample) {
                logprobs[last] -= 0.25;
            }
        });
        let (learned, after) = learn(&cut(), &wrong);
        let error = learned.unwrap_err();
        let TrainError::SamplerMismatch { trainer, .. } = error else { panic!("{error}") };
        let expected = logprobs(&model(vocabulary().len(), 2.0), completion)[last];
        assert!((trainer - expected).abs() < 1e-5, "{trainer}, expected {expected}");
        let sampler = completion.sampling_logprobs().unwrap()[last] - 0.25;
        assert_eq!(
            error.to_string(),
            format!(
                "step 1: the sampler recorded log-probability {sampler:.6} at position {} of prompt {prompt}, sample {sample}, but the trainer computes {trainer:.6} with the same weights, which exceeds the tolerance of 0.001; find the difference, or set sampler_check.above = \"correct\" to weight the tokens of such a step by their ratio",
                completion.ids().len() - 1
            )
        );
        assert!(after.iter().zip(&before).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

/// Increases or decreases the probability of each token by up to a factor of 2.7.
fn shaken(groups: &[Group]) -> Vec<Group> {
    recorded(groups, |prompt, sample, logprobs| {
        for (t, logprob) in logprobs.iter_mut().enumerate() {
            let shake = ((t as u32 + 5 * sample + 11 * prompt) % 7) as f32 / 3.0 - 1.0;
            *logprob = (*logprob + shake).min(0.0);
        }
    })
}

#[test]
fn a_corrected_step_is_one_of_truncated_importance_sampling() {
    let groups = sampled();
    let (level, mode) = (RatioLevel::Token, MismatchMode::Truncate);
    let by_hand = Some(MismatchCorrection { level, mode, min: 0.0, max: 2.0 });
    // Test a mismatch in the last micro-batch only, and one in all of them.
    let only_last = recorded(&groups, |prompt, sample, logprobs| {
        if (prompt, sample) == (2, 7) {
            logprobs[0] -= 1.5;
        }
    });
    for wrong in [only_last, shaken(&groups)] {
        for preset in [Preset::Grpo, Preset::Cispo, Preset::Vespo, Preset::Gspo] {
            let mut correct = with(AboveTolerance::Correct, 1e-3);
            correct.loss.preset = preset;
            let (learned, after) = learn(&correct, &wrong);
            let learned = learned.unwrap();
            assert_eq!(learned.corrected, Some(true));
            let largest =
                learned.updates[0].tokens.metric("sampling/importance_sampling_ratio/max");
            assert_eq!(largest, Some(2.0));

            let mut hand = cut();
            hand.loss.preset = preset;
            hand.loss.mismatch = by_hand;
            let (expected, expected_after) = learn(&hand, &wrong);
            let expected = expected.unwrap();
            assert_eq!(expected.corrected, Some(true), "a loss that corrects does not stop");
            assert_eq!(numbers(&learned), numbers(&expected), "{preset:?}");
            assert_eq!(after, expected_after, "{preset:?}");

            // The result must differ from the one without a correction.
            let mut blind = with(AboveTolerance::Stop, 1e9);
            blind.loss.preset = preset;
            let (blind, blind_after) = learn(&blind, &wrong);
            assert_ne!(numbers(&blind.unwrap()), numbers(&learned), "{preset:?}");
            assert_ne!(blind_after, after, "{preset:?}");
        }
    }
}

#[test]
fn a_loss_with_its_own_correction_keeps_it_or_stops() {
    let groups = sampled();
    let wrong = shaken(&groups);
    let (level, mode) = (RatioLevel::Sequence, MismatchMode::Mask);
    let own = Some(MismatchCorrection { level, mode, min: 0.5, max: 1.5 });
    let of = |mut config: GrpoConfig| {
        config.loss.mismatch = own;
        learn(&config, &wrong)
    };
    let (usual, after) = of(cut());
    let (explicit, after_explicit) = of(with(AboveTolerance::Correct, 1e-3));
    let (unchecked, after_unchecked) = of(with(AboveTolerance::Correct, 1e9));
    let [usual, explicit, unchecked] = [usual, explicit, unchecked].map(Result::unwrap);
    assert_eq!(usual.corrected, Some(true));
    assert_eq!(unchecked.corrected, Some(false));
    assert_eq!(numbers(&usual), numbers(&explicit));
    assert_eq!(numbers(&usual), numbers(&unchecked));
    assert_eq!(after, after_explicit);
    assert_eq!(after, after_unchecked);
    let (stopped, _) = of(with(AboveTolerance::Stop, 1e-3));
    assert!(matches!(stopped, Err(TrainError::SamplerMismatch { .. })));
}

#[test]
fn within_the_tolerance_nothing_changes() {
    let groups = sampled();
    let (right, expected) = learn(&with(AboveTolerance::Stop, 1e9), &groups);
    let right = right.unwrap();
    let near = recorded(&groups, |_, _, logprobs| {
        logprobs.iter_mut().for_each(|logprob| *logprob -= 9e-4);
    });
    for (above, corrected) in [(AboveTolerance::Stop, None), (AboveTolerance::Correct, Some(false))]
    {
        for groups in [&groups, &near] {
            let (learned, after) = learn(&with(above, 1e-3), groups);
            let learned = learned.unwrap();
            assert_eq!(learned.corrected, corrected);
            for (update, expected) in learned.updates.iter().zip(&right.updates) {
                assert_eq!((update.loss, update.grad_norm), (expected.loss, expected.grad_norm));
            }
            assert_eq!(after, expected);
        }
    }
    // Sampler metrics are still reported.
    let (learned, _) = learn(&with(AboveTolerance::Stop, 1e-3), &near);
    let learned = learned.unwrap();
    let metric = |name: &str| learned.updates[1].tokens.metric(name).unwrap();
    let difference = metric("sampling/sampling_logp_difference/mean");
    assert!((difference - 9e-4).abs() < 1e-5, "{difference}");
    let quotient = metric("sampling/raw_importance_sampling_ratio/mean");
    assert!((quotient - 9e-4_f64.exp()).abs() < 1e-5, "{quotient}");
}

/// If the policy samples with rounded weights, recorded log-probabilities are those of the rounded
/// weights. They differ from the trainer's, and the correction weights the tokens accordingly.
#[test]
fn rounded_weights_are_corrected() {
    for (weights, nearest, furthest) in
        [(WeightPrecision::Bf16, 1e-3, 0.2), (WeightPrecision::Q8, 1e-3, 0.4)]
    {
        let mut config = with(AboveTolerance::Correct, 1e-3);
        config.sampling.weights = weights;
        let policy = model(vocabulary().len(), 2.0);
        let mut grpo = grpo(config.clone(), chains());
        let report = take_step(&mut grpo, 0);
        assert_eq!(report.learned.corrected, Some(true), "{weights}");
        let metric = |name: &str| report.learned.tokens().metric(name).unwrap();
        let difference = metric("sampling/sampling_logp_difference/max");
        assert!((nearest..furthest).contains(&difference), "{weights}: {difference}");

        let rounded = policy.valid().with_weights_in(weights);
        for completion in report.groups.iter().flat_map(Group::completions) {
            let recorded = completion.sampling_logprobs().unwrap();
            let expected = logprobs(&rounded, completion);
            let apart = recorded.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs());
            let apart = apart.fold(0.0, f64::max);
            assert!(apart < 2e-5, "{weights}: {apart}");
        }

        // Must be equivalent to a loss that always applies the correction.
        let mut hand = cut();
        let (level, mode) = (RatioLevel::Token, MismatchMode::Truncate);
        hand.loss.mismatch = Some(MismatchCorrection { level, mode, min: 0.0, max: 2.0 });
        let (learned, after) = learn(&hand, &report.groups);
        let of_hand = learned.unwrap();
        let (learned, after_correction) = learn(&config, &report.groups);
        assert_eq!(numbers(&learned.unwrap()), numbers(&of_hand), "{weights}");
        assert_eq!(after_correction, after, "{weights}");
        let blind = with(AboveTolerance::Correct, 1e9);
        let (_, without) = learn(&blind, &report.groups);
        assert_ne!(without, after, "{weights}");
    }
}
