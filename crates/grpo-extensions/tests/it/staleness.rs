//! Rollouts that are sampled ahead of the policy's updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_extensions::{ConfiguredRun, SamplingAhead, extension_kinds};
use grpo_model::{Frozen, Transformer, weights_digest};
use grpo_rollout::{Engine, EngineRequest, RolloutError, StepKey};
use grpo_train::{
    AboveTolerance, Ending, EngineFactory, Grpo, GrpoConfig, NextTokens, Parts, SavedState,
    StateNumbers, StepDone, StepExtensions, TrainError, TrainObserver, TrainerState, Training,
    unconditional_prompts,
};

use crate::support::{SEED, chains, config, model, molecules, parts, vocabulary};

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

fn corrected() -> GrpoConfig {
    let mut config = config();
    config.train.steps = 6;
    config.sampler_check.above = Some(AboveTolerance::Correct);
    config
}

/// Creates a run with the local engine, or with another one.
fn ahead(staleness: u32, engine: Arc<dyn EngineFactory<Transformer>>) -> Training<Transformer> {
    let ahead = SamplingAhead::new(staleness, [3, 8]);
    let extensions: StepExtensions<Transformer> = match staleness {
        0 => Vec::new(),
        _ => vec![Box::new(ahead)],
    };
    let parts = parts(engine, molecules(0.7), model(vocabulary().len(), 2.0), chains());
    Training::new(Grpo::new(Parts { extensions, ..parts }, corrected(), SEED).unwrap(), None)
}

fn begin(staleness: u32) -> (Training<Transformer>, Kept) {
    let training =
        ahead(staleness, Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] }));
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
        let (config, (mut training, mut kept)) = (corrected(), begin(staleness));
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
        let (mut training, mut kept) = begin(1);
        run_to(&mut training, 3, &mut kept);
        kept.groups
    });
    let (mut training, mut kept) = begin(1);
    run_to(&mut training, 3, &mut kept);
    assert_eq!(groups, kept.groups);
}

/// A checkpoint contains the rollouts that were sampled ahead, so a resumed run is the same.
#[test]
fn a_resumed_run_learns_from_the_same_rollouts() {
    for staleness in [1, 3] {
        let (mut whole, mut expected) = begin(staleness);
        run_to(&mut whole, 6, &mut expected);
        let (mut first, mut kept) = begin(staleness);
        run_to(&mut first, 2, &mut kept);
        let TrainerState { numbers, moments, reference } = first.state();
        let text = serde_json::to_string(&numbers).unwrap();
        assert!(text.contains("\"staleness\":[{\"step\":2,\"policy_version\":"), "{text}");
        let numbers: StateNumbers = serde_json::from_str(&text).unwrap();
        assert!(reference.is_none());
        let (mut second, mut rest) = begin(staleness);
        let saved = SavedState { numbers, moments: moments.read(), reference: None };
        second.restore(first.policy().clone(), saved).unwrap();
        run_to(&mut second, 6, &mut rest);
        assert_eq!(rest.groups, expected.groups[2..]);
        assert_eq!(weights_digest(second.policy()), weights_digest(whole.policy()));
        // Without them, it would differ.
        let (mut third, mut without) = begin(staleness);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut value = value.as_object().unwrap().clone();
        let ahead = value.remove("extensions").unwrap()["staleness"].clone();
        let numbers: StateNumbers = serde_json::from_value(value.clone().into()).unwrap();
        let saved = SavedState { numbers, moments: moments.read(), reference: None };
        third.restore(first.policy().clone(), saved).unwrap();
        run_to(&mut third, 6, &mut without);
        assert_ne!(without.groups, expected.groups[2..]);
        // Older versions saved them in the state itself.
        let mut value = serde_json::Value::from(value);
        value["ahead"] = ahead.clone();
        let read = |value: &serde_json::Value| {
            let numbers: StateNumbers = serde_json::from_value(value.clone()).unwrap();
            let saved = SavedState { numbers, moments: moments.read(), reference: None };
            let (mut resumed, kept) = begin(staleness);
            resumed.restore(first.policy().clone(), saved).map(|()| (resumed, kept))
        };
        let (mut old, mut rest) = read(&value).unwrap();
        run_to(&mut old, 6, &mut rest);
        assert_eq!(rest.groups, expected.groups[2..]);
        // Rollouts of other steps are refused.
        value["ahead"][0]["step"] = 3.into();
        let error = read(&value).err().unwrap().to_string();
        assert!(
            error.contains("the rollout of step 4 is not one of this run's next steps"),
            "{error}"
        );
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
    let mut training = ahead(3, Arc::new(actions));
    let (mut kept, boundary) = (begin(3).1, vocabulary().boundary());
    let prompts = |_| Ok(unconditional_prompts(3, boundary));
    let error = training.run_to(6, prompts, &mut kept).unwrap_err();
    assert_eq!(error.to_string(), "sampling: the server is down");
    assert_eq!((training.steps(), asked.load(Ordering::Relaxed)), (3, 4));
    // The state is that of a run without rollouts that were sampled ahead.
    let text = serde_json::to_string(&training.state().numbers).unwrap();
    assert!(!text.contains("\"staleness\""), "{text}");
}

#[test]
fn differences_must_be_corrected() {
    let kinds = extension_kinds::<Transformer>();
    let kind = kinds.iter().find(|kind| kind.keys.contains(&"train.staleness")).unwrap();
    let parse = |staleness: i64| {
        let keys = toml::toml! { train = { staleness = 0 } };
        let mut keys = keys;
        keys["train"]["staleness"] = staleness.into();
        (kind.parse)(keys, &[])
    };
    let ahead = parse(1).unwrap().unwrap();
    let check = |config: &GrpoConfig| {
        ahead.check(&ConfiguredRun { config, extensions: &["staleness"], has_prompts: false })
    };
    check(&corrected()).unwrap();
    assert_eq!(
        check(&config()).unwrap_err().to_string(),
        "train.staleness = 1 samples from earlier policies than the trained one, which stops a run with sampler_check.above = \"stop\"; set loss.mismatch, or sampler_check.above = \"correct\""
    );
    let error = parse(17).unwrap_err().to_string();
    assert_eq!(error, "train.staleness = 17 is out of range; expected 0 to 16");
    assert!(parse(0).unwrap().is_none());
}
