//! Compares a GRPO step with its definition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_core::Preset;
use grpo_data::Prompt;
use grpo_train::{
    Decode, GrpoConfig, LossSettings, NextTokens, SamplingConfig, StepReport, TrainError,
    unconditional_prompts,
};

use crate::oracle::{completions, log_softmax, logprobs, mean, over_actions};
use crate::support::{
    SEED, begin, chains, config, distance, fresh_model, grpo, model, parameters, take_step,
    vocabulary,
};

/// Acceptance test 3: in the first update, ratios are 1, nothing is clipped, and the policy is
/// equal to the reference.
#[test]
fn the_first_update_begins_at_the_reference() {
    let report = take_step(&mut grpo(config(), chains()), 0);
    assert_eq!(report.learned.tokens().ratio_range(), Some([1.0, 1.0]));
    for (name, value) in report.learned.tokens().metrics() {
        assert!(!name.starts_with("clip_ratio") || value == 0.0, "{name} = {value}");
    }
    let kl = report.learned.tokens().kl().unwrap();
    assert!(kl.abs() < 1e-10, "{kl}");
    let [mean, largest] = sampling_difference(&report);
    assert!(mean <= largest && largest < 1e-5, "{mean} {largest}");
    assert!(report.learned.grad_norm() > 1e-3, "{}", report.learned.grad_norm());
}

#[test]
fn a_step_without_completions_is_an_error() {
    let mut grpo = grpo(config(), chains());
    let refused = |result: Result<_, TrainError>| matches!(result, Err(TrainError::Empty));
    assert!(refused(grpo.step(&[], 0).map(|_| ())));
    assert!(refused(grpo.learner_mut().learn(&mut [], 1e-2).map(|_| ())));
    assert_eq!(grpo.learner().version(), 0);
}

/// Acceptance test 4: recorded log-probabilities agree with the trainer, even with a temperature or
/// a truncated distribution.
#[test]
fn sampler_and_trainer_agree() {
    let plain = || config().sampling;
    for sampling in [
        plain(),
        SamplingConfig { temperature: 0.7, ..plain() },
        SamplingConfig { temperature: 1.4, top_k: Some(4), ..plain() },
        SamplingConfig { temperature: 1.4, top_p: Some(0.8), ..plain() },
        SamplingConfig { min_p: Some(0.2), ..plain() },
        SamplingConfig { repetition_penalty: Some(1.4), ..plain() },
        SamplingConfig { repetition_penalty: Some(0.8), top_p: Some(0.9), ..plain() },
        SamplingConfig {
            temperature: 1.2,
            top_k: Some(6),
            top_p: Some(0.9),
            min_p: Some(0.1),
            ..plain()
        },
    ] {
        let sampled = GrpoConfig { sampling: sampling.clone(), ..config() };
        let mut grpo = grpo(sampled, chains());
        for step in 0..3 {
            let [_, largest] = sampling_difference(&take_step(&mut grpo, step));
            assert!(largest < 1e-5, "step {step} with {sampling:?}: {largest}");
        }
    }
}

/// With ε = 1 in AdamW, a step is a smooth function of the gradient. With a small ε, rounding
/// errors in a gradient that should be 0 would change a weight by the full learning rate.
fn smooth(mut config: GrpoConfig) -> GrpoConfig {
    config.optimizer.epsilon = 1.0;
    config.optimizer.learning_rate = 1.0;
    config.optimizer.max_grad_norm = 1e6;
    config
}

#[test]
fn micro_batches_decide_nothing() {
    let before = parameters(grpo(config(), chains()).policy());
    for preset in [Preset::Grpo, Preset::DrGrpo, Preset::Dapo] {
        let of = |micro_batch_tokens| {
            let mut config = smooth(config());
            config.train.micro_batch_tokens = micro_batch_tokens;
            config.train.updates_per_rollout = 2;
            config.loss.preset = preset;
            let mut grpo = grpo(config, chains());
            let report = take_step(&mut grpo, 0);
            (parameters(grpo.policy()), report)
        };
        let (whole, whole_report) = of(64);
        let moved = distance(&whole, &before);
        assert!(moved > 1e-2, "{preset:?} moved by {moved} only");
        // With one or three tokens, each completion is processed separately.
        for micro_batch_tokens in [1, 3] {
            let (parts, report) = of(micro_batch_tokens);
            let apart = distance(&whole, &parts);
            assert!(apart < 1e-4 * moved, "{preset:?}, {micro_batch_tokens}: {apart} of {moved}");
            for (a, b) in [
                (report.learned.loss(), whole_report.learned.loss()),
                (report.learned.grad_norm(), whole_report.learned.grad_norm()),
                (
                    report.learned.tokens().kl().unwrap(),
                    whole_report.learned.tokens().kl().unwrap(),
                ),
                (
                    report.learned.tokens().entropy().unwrap(),
                    whole_report.learned.tokens().entropy().unwrap(),
                ),
            ] {
                assert!((a - b).abs() < 1e-5 * (1.0 + b.abs()), "{preset:?}: {a} and {b}");
            }
        }
    }
}

#[test]
fn presets_are_different_losses() {
    let of = |preset| {
        let mut config = smooth(config());
        config.loss.preset = preset;
        take_step(&mut grpo(config, chains()), 0).learned.grad_norm()
    };
    let norms = [Preset::Grpo, Preset::DrGrpo, Preset::Dapo].map(of);
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        assert!((norms[a] - norms[b]).abs() > 1e-3 * norms[a], "{norms:?}");
    }
}

/// Acceptance test 2: if all rewards are equal, the policy does not change.
#[test]
fn equal_rewards_leave_the_policy_as_it_is() {
    for text in ["", "CCO"] {
        let mut config = config();
        config.loss.kl_coef = None;
        let mut grpo = grpo(config, Arc::new(move |_| text.to_owned()));
        let before = parameters(grpo.policy());
        for step in 0..2 {
            let report = take_step(&mut grpo, step);
            assert_eq!(report.learned.zero_std_share, 1.0);
            assert_eq!(
                (report.learned.grad_norm(), report.learned.loss()),
                (0.0, 0.0),
                "rewarding {text:?}"
            );
        }
        assert_eq!(parameters(grpo.policy()), before, "rewarding {text:?}");
    }
}

/// Acceptance test 6: if rewards provide no signal, the penalty moves the policy back to the
/// reference.
#[test]
fn the_penalty_leads_back_to_the_reference() {
    let equal = Arc::new(AtomicBool::new(false));
    let (seen, chains) = (Arc::clone(&equal), chains());
    let decode: Decode = Arc::new(move |ids| match seen.load(Ordering::Relaxed) {
        true => String::new(),
        false => chains(ids),
    });
    let mut config = config();
    config.loss.kl_coef = Some(0.5);
    let mut grpo = grpo(config, decode);
    let displaced =
        (0..6).map(|step| take_step(&mut grpo, step).learned.tokens().kl().unwrap()).last();
    let displaced = displaced.unwrap();
    assert!(displaced > 1e-3, "{displaced}");
    equal.store(true, Ordering::Relaxed);
    let returned =
        (6..60).map(|step| take_step(&mut grpo, step).learned.tokens().kl().unwrap()).last();
    assert!(returned.unwrap() < 0.25 * displaced, "{displaced} came to {returned:?}");
}

/// The `kl` and `entropy` metrics show that the reference is the initial policy in every step.
#[test]
fn the_reference_stays_where_the_policy_was() {
    let mut grpo = grpo(config(), chains());
    let reference = grpo.policy().clone();
    let mut last_kl = 0.0;
    for step in 0..4 {
        let policy = grpo.policy().clone();
        let report = take_step(&mut grpo, step);
        let kl = over_actions(&report, |completion| {
            let pairs = logprobs(&reference, completion).into_iter();
            let pairs = pairs.zip(logprobs(&policy, completion));
            pairs
                .map(|(reference, policy)| (reference - policy).exp_m1() - (reference - policy))
                .collect()
        });
        let entropy = over_actions(&report, |completion| {
            let all = log_softmax(&policy, completion);
            all.iter().map(|row| row.iter().map(|l| -l.exp() * l).sum()).collect()
        });
        last_kl = report.learned.tokens().kl().unwrap();
        assert!((last_kl - mean(&kl)).abs() < 1e-5, "step {step}: {last_kl}, {}", mean(&kl));
        assert!(
            (report.learned.tokens().entropy().unwrap() - mean(&entropy)).abs() < 1e-5,
            "step {step}"
        );
    }
    assert!(last_kl > 1e-3, "the policy never left: {last_kl}");
}

/// The second update on a rollout uses the log-probabilities from the first update as π_old.
#[test]
fn later_updates_use_the_first_logprobs_as_old_ones() {
    let twice = |updates| {
        let mut config = config();
        config.train.updates_per_rollout = updates;
        config.loss = LossSettings::default();
        grpo(config, chains())
    };
    let mut once = twice(1);
    let old = once.policy().clone();
    take_step(&mut once, 0);
    let between = once.policy().clone();

    let mut twice = twice(2);
    let report = take_step(&mut twice, 0);
    let ratios = over_actions(&report, |completion| {
        let pairs = logprobs(&between, completion).into_iter().zip(logprobs(&old, completion));
        pairs.map(|(new, old)| (new - old).exp()).collect()
    });
    // In the first update, ratios are 1.
    let least = ratios.iter().copied().fold(1.0, f64::min);
    let most = ratios.iter().copied().fold(1.0, f64::max);
    let [found_least, found_most] = report.learned.tokens().ratio_range().unwrap();
    assert!((found_least - least).abs() < 1e-4 && (found_most - most).abs() < 1e-4);
    assert!(least < 0.99 && most > 1.01, "the first update moved nothing: {least} {most}");
    assert_eq!(report.learned.tokens().tokens(), 2 * ratios.len() as u64);

    // The next rollout uses the policy after both updates.
    let report = take_step(&mut twice, 1);
    assert!(completions(&report).all(|completion| completion.policy_version() == 2));
    assert!(sampling_difference(&report)[1] < 1e-5);
}

#[test]
fn a_reward_that_fails_stops_the_step_and_moves_nothing() {
    let mut config = config();
    config.train.reward_time_limit = 1e-3;
    // Three hundred rings per completion take much longer than a millisecond.
    let mut grpo = grpo(config, Arc::new(|_| "C1CCCCC1".repeat(100)));
    let before = parameters(grpo.policy());
    let error = grpo.step(&unconditional_prompts(3, vocabulary().boundary()), 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the reward failed for 24 of 24 completions of step 5, more than train.max_failed_rewards = 0.1 allows; raise it, or set on_failure = \"abstain\" in the section of an external reward to leave such completions out; first failure: the reward exceeded its time limit of 1ms"
    );
    assert_eq!(parameters(grpo.policy()), before);
}

#[test]
fn reports_a_diverged_policy() {
    let vocabulary = vocabulary();
    let boundary = vocabulary.boundary();
    // Matrix products overflow with weights this large.
    let model = model(vocabulary.len(), 1e30);
    let mut grpo = begin(model, config(), SEED, boundary, chains()).unwrap();
    let error = grpo.step(&unconditional_prompts(3, boundary), 0).unwrap_err();
    assert!(matches!(error, TrainError::Rollout(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "sampling: the model's logits are not finite: it has diverged, or its weights are damaged"
    );
}

#[test]
fn settings_that_do_not_fit_the_model_are_refused() {
    let refusal = |config: GrpoConfig| {
        let boundary = vocabulary().boundary();
        let model = fresh_model(vocabulary().len());
        let error = begin(model, config, SEED, boundary, chains()).err().unwrap();
        error.to_string()
    };
    let mut long = config();
    long.sampling.max_new_tokens = 17;
    assert_eq!(
        refusal(long),
        "sampling: a prompt of 1 token with max_new_tokens = 17 exceeds the model's context of 16 tokens; set max_new_tokens to at most 16"
    );
    let mut few = config();
    few.sampling.top_k = Some(0);
    assert_eq!(
        refusal(few),
        "sampling: top_k = 0 is out of range; expected 1 or more (remove it to keep all tokens)"
    );
    let mut cold = config();
    cold.sampling.temperature = 0.0;
    assert_eq!(
        refusal(cold),
        "sampling: temperature = 0 is out of range; use top_k = 1 (--top-k 1) for the most likely token at each step"
    );
}

/// Tests errors that depend on the model and the data, for settings that are in range.
#[test]
fn what_cannot_be_sampled_is_named_through_the_configuration() {
    let vocabulary = vocabulary().len() as u32;
    let model = fresh_model(vocabulary as usize);
    let decode: Decode = Arc::new(|_| String::new());
    let refusal = |end_ids: Vec<u32>, longest_prompt| {
        config()
            .sampler(&model, &NextTokens { end_ids }, 2, longest_prompt, &decode)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal(vec![1, vocabulary], 1),
        format!("sampling: end id {vocabulary} is outside the vocabulary of {vocabulary} tokens")
    );
    assert_eq!(
        refusal(vec![], 0),
        "sampling: a prompt has no tokens; expected at least the begin token"
    );
    assert_eq!(
        refusal(vec![], 17),
        "sampling: a prompt of 17 tokens with max_new_tokens = 12 exceeds the model's context of 16 tokens; shorten the prompt to at most 16"
    );
    assert!(
        config()
            .sampler(&model, &NextTokens { end_ids: vec![vocabulary - 1] }, 2, 5, &decode)
            .is_ok()
    );
    // This prompt was not known when the run was created.
    let mut grpo = grpo(config(), chains());
    let before = parameters(grpo.policy());
    for (ids, expected) in [
        (vec![], "sampling: a prompt has no tokens; expected at least the begin token".to_owned()),
        (vec![1; 6], "sampling: a prompt of 6 tokens with max_new_tokens = 12 exceeds the model's context of 16 tokens; set max_new_tokens to at most 11".to_owned()),
        (vec![vocabulary], format!("sampling: prompt token id {vocabulary} is outside the vocabulary of {vocabulary} tokens")),
    ] {
        let prompts = [0, 1, 2].map(|index| Prompt::of_ids(index, ids.clone()));
        assert_eq!(grpo.step(&prompts, 0).unwrap_err().to_string(), expected);
    }
    assert_eq!(parameters(grpo.policy()), before);
}

/// Returns the mean and maximum difference between sampler and trainer log-probabilities.
fn sampling_difference(report: &StepReport) -> [f64; 2] {
    ["mean", "max"].map(|what| {
        let name = format!("sampling/sampling_logp_difference/{what}");
        report.learned.tokens().metric(&name).unwrap()
    })
}
