//! An extension that is registered from outside of the crate.

use std::sync::Arc;

use grpo_data::{Outcome, PartName};
use grpo_extensions::{BucketPenalty, Bucketing, DiversityFilterConfig};
use grpo_model::Transformer;
use grpo_rewards::{Reward, RewardInput};
use grpo_train::{
    Ending, Grpo, Metrics, NextTokens, Parts, PolicyUpdate, SavedState, StateNumbers, StepDone,
    StepExtension, StepExtensions, TrainError, TrainObserver, TrainerState, Training,
    unconditional_prompts,
};
use serde_json::{Value, json};

use crate::support::{SEED, chains, config, fresh_model, molecules, parts, vocabulary};

#[expect(dead_code, reason = "it is a program, too")]
#[path = "../../examples/extension.rs"]
mod example;

#[test]
fn an_extension_from_outside_has_a_term_and_metrics() {
    let mut steps: Vec<Metrics> = Vec::new();
    let extension = example::ShortCompletions { weight: 0.5, steps: 2 };
    example::train(2, extension, |metrics| steps.push(metrics.clone())).unwrap();
    for (metrics, weight) in steps.iter().zip([0.25, 0.5]) {
        let of = |name: &str| metrics.get(name).unwrap();
        assert_eq!(of("short_completions/weight"), weight);
        // All completions have a reward, so the bonus follows from their lengths.
        let expected = -weight * of("completions/mean_length");
        assert!((of("short_completions/mean") - expected).abs() < 1e-12);
        assert!(of("reward_share/short_completions").is_finite());
        // The reward itself is left unchanged.
        assert!(of("reward") >= 0.0);
    }
    assert_eq!(steps.len(), 2);
}

fn begin(extensions: StepExtensions<Transformer>) -> Training<Transformer> {
    let actions = Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] });
    let parts = parts(actions, molecules(0.7), fresh_model(vocabulary().len()), chains());
    Training::new(Grpo::new(Parts { extensions, ..parts }, config(), SEED).unwrap(), None)
}

fn with_filter() -> Training<Transformer> {
    let config = DiversityFilterConfig {
        bucket: "text".to_owned(),
        min_similarity: None,
        bucket_size: 2,
        min_reward: 0.5,
        penalty: BucketPenalty::Step,
    };
    begin(vec![Box::new(config.build(Bucketing::TEXT).unwrap())])
}

/// Restores a state and returns what the run then saves of its extensions.
fn restored(training: &mut Training<Transformer>, numbers: Value) -> Result<Value, TrainError> {
    let moments = training.state().moments;
    let numbers: StateNumbers = serde_json::from_value(numbers).unwrap();
    let saved = SavedState { numbers, moments: moments.read(), reference: None };
    training.restore(training.policy().clone(), saved)?;
    let numbers = serde_json::to_value(training.state().numbers).unwrap();
    Ok(numbers["extensions"].clone())
}

/// The filter of older versions was a part of the state itself.
#[test]
fn a_state_of_an_older_version_is_restored() {
    let TrainerState { numbers, .. } = with_filter().state();
    let mut old = serde_json::to_value(numbers).unwrap();
    let state = json!({"buckets": {"CC": 2, "CCO": 1}, "rewarded": ["CC"]});
    old.as_object_mut().unwrap().remove("extensions").unwrap();
    old["buckets"] = state["buckets"].clone();
    old["rewarded"] = state["rewarded"].clone();
    let expected = json!({"diversity_filter": state});
    assert_eq!(restored(&mut with_filter(), old.clone()).unwrap(), expected);
    // What it saves is read again.
    let mut new = old.clone();
    for name in ["buckets", "rewarded"] {
        new.as_object_mut().unwrap().remove(name);
    }
    new["extensions"] = expected.clone();
    assert_eq!(restored(&mut with_filter(), new).unwrap(), expected);
    let error = restored(&mut begin(Vec::new()), old).unwrap_err().to_string();
    let said = "it has the state of `diversity_filter`, which this run does not use";
    assert!(error.contains(said), "{error}");
}

/// Has a memory of scores.
struct Memory;

impl StepExtension<Transformer> for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn keeps_scores(&self) -> bool {
        true
    }
}

/// Compares the completions of a group.
struct Relative;

impl Reward for Relative {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        vec![Outcome::abstained(); samples.len()]
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<PartName> {
        Vec::new()
    }
}

#[test]
fn scores_relative_to_a_group_are_not_kept() {
    let actions = Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] });
    let parts = parts(actions, Arc::new(Relative), fresh_model(vocabulary().len()), chains());
    let extensions: StepExtensions<Transformer> = vec![Box::new(Memory)];
    let begun = Grpo::new(Parts { extensions, ..parts }, config(), SEED);
    let error = begun.map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "memory keeps the scores of completions, but this reward compares the completions of a group; remove [replay] and train.max_reward_calls, or use another reward"
    );
}

/// Fails while the policy learns.
struct FailsOnce(bool);

impl StepExtension<Transformer> for FailsOnce {
    fn name(&self) -> &'static str {
        "fails_once"
    }

    fn grpo_weight(&self) -> Option<f64> {
        Some(1.0)
    }

    fn auxiliary_loss(
        &mut self,
        update: &mut PolicyUpdate<'_, Transformer>,
    ) -> Result<f64, TrainError> {
        match std::mem::replace(&mut self.0, false) {
            true => Err(TrainError::Interrupted),
            false => Ok(update.grpo_loss),
        }
    }
}

/// A step that fails before its first update leaves nothing behind, so repeated it is the same.
#[test]
fn a_step_that_fails_while_learning_can_be_repeated() {
    let config = DiversityFilterConfig {
        bucket: "text".to_owned(),
        min_similarity: None,
        bucket_size: 2,
        min_reward: 0.0,
        penalty: BucketPenalty::Step,
    };
    let run = |fails: bool| {
        let filter = config.build(Bucketing::TEXT).unwrap();
        let mut training = begin(vec![Box::new(FailsOnce(fails)), Box::new(filter)]);
        let mut steps = || {
            let prompts = |_| Ok(unconditional_prompts(3, vocabulary().boundary()));
            training.run_to(2, prompts, &mut Silent).unwrap()
        };
        if fails {
            assert_eq!(steps(), Ending::Interrupted);
        }
        assert_eq!(steps(), Ending::Finished);
        serde_json::to_value(training.state().numbers).unwrap()
    };
    let expected = run(false);
    assert!(!expected["extensions"]["diversity_filter"]["buckets"].as_object().unwrap().is_empty());
    assert_eq!(run(true), expected);
}

struct Silent;

impl TrainObserver<Transformer> for Silent {
    fn step(
        &mut self,
        _done: &StepDone<'_>,
        _training: &Training<Transformer>,
    ) -> Result<(), TrainError> {
        Ok(())
    }
}

/// What the configuration of the program checks is checked for programs of others, too.
#[test]
fn extensions_are_checked_when_a_run_is_assembled() {
    let mut config = config();
    config.advantage.aggregation = grpo_core::Aggregation::NormalizeThenSum;
    let filter = DiversityFilterConfig {
        bucket: "text".to_owned(),
        min_similarity: None,
        bucket_size: 2,
        min_reward: 0.0,
        penalty: BucketPenalty::Step,
    };
    let engine = Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] });
    let parts = parts(engine, molecules(0.7), fresh_model(vocabulary().len()), chains());
    let extensions: StepExtensions<Transformer> =
        vec![Box::new(filter.build(Bucketing::TEXT).unwrap())];
    let error = Grpo::new(Parts { extensions, ..parts }, config, SEED).err().unwrap().to_string();
    assert!(error.starts_with("diversity_filter multiplies the total reward"), "{error}");
}
