//! Rollouts that are sampled ahead of the policy's updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_model::{Frozen, Transformer, weights_digest};
use grpo_rollout::{Engine, EngineRequest, RolloutError, StepKey};
use grpo_train::{
    AboveTolerance, Ending, EngineFactory, GrpoConfig, NextTokens, SavedState, StateNumbers,
    StepDone, TrainError, TrainObserver, TrainerState, Training, unconditional_prompts,
};

use crate::support::{SEED, chains, config, grpo, molecules, vocabulary, with_actions};

/// What a run has sampled, and its policy after each step, from the initial one on.
struct Kept {
    groups: Vec<Vec<Group>>,
    staleness: Vec<Option<f64>>,
    policies: Vec<Transformer>,
}

impl TrainObserver<Transformer> for Kept {
    fn step(
        &mut self,
        done: &StepDone<'_>,
        training: &Training<Transformer>,
    ) -> Result<(), TrainError> {
        self.groups.push(done.report.groups.clone());
        self.staleness.push(done.metrics.get("sampling/staleness"));
        self.policies.push(training.policy().clone());
        Ok(())
    }
}

fn stale(staleness: u32) -> GrpoConfig {
    let mut config = config();
    config.train.steps = 6;
    config.train.staleness = staleness;
    config.sampler_check.above = Some(AboveTolerance::Correct);
    config
}

fn begin(config: &GrpoConfig) -> (Training<Transformer>, Kept) {
    let training = Training::new(grpo(config.clone(), chains()), None);
    let policies = vec![training.policy().clone()];
    (training, Kept { groups: Vec::new(), staleness: Vec::new(), policies })
}

fn run_to(training: &mut Training<Transformer>, last: u32, kept: &mut Kept) {
    let prompts = |_| Ok(unconditional_prompts(3, vocabulary().boundary()));
    assert_eq!(training.run_to(last, prompts, kept).unwrap(), Ending::Finished);
}

/// Samples each step again, with the policy that is supposed to have sampled it.
#[test]
fn a_step_learns_from_the_policy_of_as_many_steps_ago() {
    for staleness in [0, 1, 2, 5, 9] {
        let config = stale(staleness);
        let (mut training, mut kept) = begin(&config);
        run_to(&mut training, 6, &mut kept);
        let prompts = unconditional_prompts(3, vocabulary().boundary());
        for step in 0..6_u32 {
            let sampled_after = step.saturating_sub(staleness);
            let policy = &kept.policies[sampled_after as usize];
            let actions = NextTokens { end_ids: vec![vocabulary().boundary()] };
            let engine = config.sampler(policy, &actions, 8, 1, &chains()).unwrap();
            let policy_version = u64::from(sampled_after);
            let key = StepKey { seed: SEED, purpose: Purpose::SAMPLING, step, policy_version };
            let expected = engine.sample(&Frozen::snapshot(policy), &prompts, key).unwrap();
            let found = kept.groups[step as usize].iter().flat_map(Group::completions);
            assert!(found.eq(expected.iter().flat_map(Group::completions)), "{staleness} {step}");
            let expected = (staleness > 0).then(|| f64::from(step - sampled_after));
            assert_eq!(kept.staleness[step as usize], expected);
        }
        // The policy changes in each step, so each of them would be noticed.
        let digests: Vec<String> =
            kept.policies.iter().map(|policy| weights_digest(policy).into()).collect();
        assert!(digests.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

/// The program runs in its thread pool, whose only thread then waits for the rollout.
#[test]
fn a_pool_with_one_thread_does_not_wait_for_itself() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let groups = pool.install(|| {
        let (mut training, mut kept) = begin(&stale(1));
        run_to(&mut training, 3, &mut kept);
        kept.groups
    });
    let (mut training, mut kept) = begin(&stale(1));
    run_to(&mut training, 3, &mut kept);
    assert_eq!(groups, kept.groups);
}

/// A checkpoint contains the rollouts that were sampled ahead, so a resumed run is the same.
#[test]
fn a_resumed_run_learns_from_the_same_rollouts() {
    for staleness in [1, 3] {
        let config = stale(staleness);
        let (mut whole, mut expected) = begin(&config);
        run_to(&mut whole, 6, &mut expected);
        let (mut first, mut kept) = begin(&config);
        run_to(&mut first, 2, &mut kept);
        let TrainerState { numbers, moments, reference } = first.state();
        let text = serde_json::to_string(&numbers).unwrap();
        assert!(text.contains("\"ahead\":[{\"step\":2,\"policy_version\":"));
        let numbers: StateNumbers = serde_json::from_str(&text).unwrap();
        assert!(reference.is_none());
        let (mut second, mut rest) = begin(&config);
        let saved = SavedState { numbers, moments: moments.read(), reference: None };
        second.restore(first.policy().clone(), saved).unwrap();
        run_to(&mut second, 6, &mut rest);
        assert_eq!(rest.groups, expected.groups[2..]);
        assert_eq!(weights_digest(second.policy()), weights_digest(whole.policy()));
        // Without them, it would differ.
        let (mut third, mut without) = begin(&config);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut value = value.as_object().unwrap().clone();
        value.remove("ahead");
        let numbers: StateNumbers = serde_json::from_value(value.into()).unwrap();
        let saved = SavedState { numbers, moments: moments.read(), reference: None };
        third.restore(first.policy().clone(), saved).unwrap();
        run_to(&mut third, 6, &mut without);
        assert_ne!(without.groups, expected.groups[2..]);
    }
}

/// Samples with the local engine until it has been asked for `most` steps.
#[derive(Debug)]
struct Failing {
    engine: Arc<dyn Engine<Transformer>>,
    most: usize,
    asked: Arc<AtomicUsize>,
}

impl Engine<Transformer> for Failing {
    fn sample(
        &self,
        policy: &Frozen<Transformer>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        match self.asked.fetch_add(1, Ordering::Relaxed) < self.most {
            true => self.engine.sample(policy, prompts, key),
            false => Err(RolloutError::Unfit("the server is down".to_owned())),
        }
    }

    fn again(
        &self,
        policy: &Frozen<Transformer>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        self.engine.again(policy, prompt, sample, key)
    }

    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Engine<Transformer>> {
        let engine = self.engine.interrupted_by(flag);
        Arc::new(Self { engine, most: self.most, asked: Arc::clone(&self.asked) })
    }
}

struct FailingActions {
    most: usize,
    asked: Arc<AtomicUsize>,
}

impl EngineFactory<Transformer> for FailingActions {
    fn create(
        &self,
        policy: &Transformer,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<Transformer>>, RolloutError> {
        let actions = NextTokens { end_ids: vec![vocabulary().boundary()] };
        let engine = actions.create(policy, request)?;
        Ok(Arc::new(Failing { engine, most: self.most, asked: Arc::clone(&self.asked) }))
    }
}

/// The error is that of the first step that failed, and no other step is sampled after it.
#[test]
fn nothing_is_sampled_after_a_failed_rollout() {
    let asked = Arc::new(AtomicUsize::new(0));
    let actions = FailingActions { most: 3, asked: Arc::clone(&asked) };
    let policy = crate::support::model(vocabulary().len(), 2.0);
    let grpo = with_actions(Arc::new(actions), molecules(0.7), policy, stale(3), SEED, chains());
    let grpo = grpo.unwrap();
    let mut training = Training::new(grpo, None);
    let (mut kept, boundary) = (begin(&stale(3)).1, vocabulary().boundary());
    let prompts = |_| Ok(unconditional_prompts(3, boundary));
    let error = training.run_to(6, prompts, &mut kept).unwrap_err();
    assert_eq!(error.to_string(), "sampling: the server is down");
    assert_eq!((training.steps(), asked.load(Ordering::Relaxed)), (3, 4));
    // The state is that of a run without rollouts that were sampled ahead.
    let text = serde_json::to_string(&training.state().numbers).unwrap();
    assert!(!text.contains("\"ahead\""));
}

#[test]
fn differences_must_be_corrected() {
    let mut config = stale(1);
    config.sampler_check.above = None;
    assert_eq!(
        config.check().unwrap_err().to_string(),
        "train.staleness = 1 samples from earlier policies than the trained one, which stops a run with sampler_check.above = \"stop\"; set loss.mismatch, or sampler_check.above = \"correct\""
    );
    let error = stale(17).check().unwrap_err().to_string();
    assert_eq!(error, "train.staleness = 17 is out of range; expected 0 to 16");
}
