//! Tests inputs that cannot be sampled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, Transformer};
use grpo_rollout::{Autoregressive, Engine, RolloutError, RolloutSettings};

use crate::support::{KEY, VOCABULARY, in_pool, model, prompt, scaled, settings};

#[test]
fn a_diverged_model_is_not_sampled() {
    // Matrix products overflow with weights this large.
    let model = scaled(1e30);
    let rollout = Autoregressive::new(settings(), &model, 1).unwrap();
    let error = rollout.sample(&Frozen::snapshot(&model), &[prompt(0, &[0])], KEY).unwrap_err();
    assert!(matches!(error, RolloutError::Diverged(_)));
    assert_eq!(
        error.to_string(),
        "the model's logits are not finite: it has diverged, or its weights are damaged"
    );
}

#[test]
fn sampling_ends_when_it_is_interrupted() {
    let (model, flag) = (model(), Arc::new(AtomicBool::new(false)));
    let rollout =
        Autoregressive::new(settings(), &model, 1).unwrap().interrupted_by(Arc::clone(&flag));
    let sample = || rollout.sample(&Frozen::snapshot(&model), &[prompt(0, &[0])], KEY);
    assert!(sample().is_ok());
    flag.store(true, Ordering::Relaxed);
    assert!(matches!(sample().unwrap_err(), RolloutError::Interrupted));
}

#[test]
fn each_finished_completion_is_reported() {
    let (model, finished) = (model(), Arc::new(AtomicUsize::new(0)));
    let prompts = [prompt(0, &[0]), prompt(1, &[1, 2]), prompt(2, &[3])];
    let rollout = Autoregressive::new(settings(), &model, 2).unwrap();
    let counter = Arc::clone(&finished);
    let report = move || {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let reporting = Engine::<Transformer>::reporting(&rollout, Arc::new(report)).unwrap();
    let policy = Frozen::snapshot(&model);
    let groups = reporting.sample(&policy, &prompts, KEY).unwrap();
    assert_eq!(finished.load(Ordering::Relaxed), 3 * settings().group_size);
    assert_eq!(groups, rollout.sample(&policy, &prompts, KEY).unwrap());
}

#[track_caller]
fn check_refused(settings: RolloutSettings, longest_prompt: usize, expected: &str) {
    let error: RolloutError = Autoregressive::new(settings, &model(), longest_prompt).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_cannot_be_sampled_is_refused() {
    check_refused(
        RolloutSettings { group_size: 0, ..settings() },
        1,
        "group_size = 0 is out of range; expected 1 or more",
    );
    check_refused(
        RolloutSettings { max_new_tokens: 0, ..settings() },
        1,
        "max_new_tokens = 0 is out of range; expected 1 or more",
    );
    check_refused(
        RolloutSettings { batch_size: 0, ..settings() },
        1,
        "batch_size = 0 is out of range; expected 1 or more",
    );
    check_refused(
        RolloutSettings { end_ids: vec![11, 12], ..settings() },
        1,
        "end id 12 is outside the vocabulary of 12 tokens",
    );
    let other = SamplingSettings::default().checked(VOCABULARY + 1).unwrap();
    check_refused(
        RolloutSettings { distribution: other, ..settings() },
        1,
        "the sampling distribution has 13 tokens, but the model's vocabulary has 12",
    );
    check_refused(settings(), 0, "a prompt has no tokens; expected at least the begin token");
    check_refused(
        RolloutSettings { max_new_tokens: 18, ..settings() },
        4,
        "a prompt of 4 tokens with max_new_tokens = 18 exceeds the model's context of 20 tokens; set max_new_tokens to at most 17",
    );
    let fits = RolloutSettings { max_new_tokens: 17, ..settings() };
    assert!(Autoregressive::new(fits, &model(), 4).is_ok());
    check_refused(
        RolloutSettings { max_new_tokens: usize::MAX, ..settings() },
        1,
        &format!(
            "a prompt of 1 token with max_new_tokens = {} exceeds the model's context of 20 tokens; set max_new_tokens to at most 20",
            usize::MAX
        ),
    );
}

#[test]
fn prompts_that_cannot_be_read_are_refused() {
    check_refused(
        settings(),
        21,
        "a prompt of 21 tokens with max_new_tokens = 12 exceeds the model's context of 20 tokens; shorten the prompt to at most 20",
    );
    let model = model();
    let policy = Frozen::snapshot(&model);
    let rollout = Autoregressive::new(settings(), &model, 3).unwrap();
    let expected = "prompt token id 12 is outside the vocabulary of 12 tokens";
    let prompts = [prompt(0, &[1, 2]), prompt(1, &[0, 12])];
    assert_eq!(rollout.sample(&policy, &prompts, KEY).unwrap_err().to_string(), expected);
    assert_eq!(rollout.again(&policy, &prompts[1], 0, KEY).unwrap_err().to_string(), expected);
    assert!(rollout.again(&policy, &prompts[0], 0, KEY).is_ok());
    // This prompt was not known when the engine was created.
    let refusal = |ids: &[u32]| {
        let prompts = [prompt(0, &[1]), prompt(1, ids)];
        rollout.sample(&policy, &prompts, KEY).unwrap_err().to_string()
    };
    assert_eq!(refusal(&[]), "a prompt has no tokens; expected at least the begin token");
    assert!(rollout.sample(&policy, &[prompt(0, &[1; 9])], KEY).is_ok());
    assert_eq!(
        refusal(&[1; 10]),
        "a prompt of 10 tokens with max_new_tokens = 12 exceeds the model's context of 20 tokens; set max_new_tokens to at most 11"
    );
}

/// If only some rows in a batch diverge, sampling with multiple engines returns an error. It
/// neither panics nor returns a partial result.
#[test]
fn reports_a_model_that_diverges_during_training() {
    let model = scaled(1e30);
    let settings = RolloutSettings { batch_size: 64, ..settings() };
    let rollout = Autoregressive::new(settings, &model, 1).unwrap();
    let prompts: Vec<_> = (0..40).map(|index| prompt(index, &[index % 12])).collect();
    for threads in [1, 3] {
        let policy = Frozen::snapshot(&model);
        let error = in_pool(threads, || rollout.sample(&policy, &prompts, KEY)).unwrap_err();
        assert!(matches!(error, RolloutError::Diverged(_)));
        let error = rollout.again(&policy, &prompts[0], 0, KEY).unwrap_err();
        assert!(matches!(error, RolloutError::Diverged(_)));
    }
}
