//! Steps and saved states of runs with extensions.

use std::sync::Arc;

use grpo_extensions::{ArchiveConfig, BucketPenalty, Bucketing, CallLimit, DiversityFilterConfig};
use grpo_model::Transformer;
use grpo_rewards::{Identify, Identity};
use grpo_train::{
    AuxiliaryLoss, Ending, Grpo, NextTokens, Parts, PolicyUpdate, SavedState, StateNumbers,
    StepDone, StepExtension, StepExtensions, TrainError, TrainObserver, TrainerState, Training,
    unconditional_prompts,
};
use serde_json::{Value, json};

use crate::support::{SEED, chains, config, fresh_model, molecules, parts, vocabulary};

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

/// The archive of older versions was a part of the state itself.
#[test]
fn a_state_with_an_archive_of_an_older_version_is_restored() {
    let identify: Identify = |texts| texts.iter().map(|_| Identity::Unknown).collect();
    let train = CallLimit { max_reward_calls: Some(9) };
    let settings = ArchiveConfig { train, ..ArchiveConfig::default() };
    let with_archive = || {
        let archive = settings.archive(Some(identify), None, &config().sampling, SEED).unwrap();
        begin(vec![Box::new(archive)])
    };
    let calls = json!([
        {"text": "CC", "terms": [[0.5, 0.25]], "parts": [["qed", 0.25]]},
        {"text": "CCO", "terms": [[0.5, 1.0]], "parts": []},
    ]);
    let mut old = serde_json::to_value(with_archive().state().numbers).unwrap();
    assert!(old.get("extensions").is_none(), "an empty archive has no state");
    old["archive"] = calls.clone();
    let expected = json!({"archive": calls});
    assert_eq!(restored(&mut with_archive(), old.clone()).unwrap(), expected);
    let error = restored(&mut begin(Vec::new()), old).unwrap_err().to_string();
    assert!(error.contains("it has the state of `archive`"), "{error}");
}

/// Fails while the policy learns.
struct FailsOnce(bool);

impl StepExtension<Transformer> for FailsOnce {
    fn name(&self) -> &'static str {
        "fails_once"
    }

    fn auxiliary_loss(&mut self) -> Option<&mut dyn AuxiliaryLoss<Transformer>> {
        Some(self)
    }
}

impl AuxiliaryLoss<Transformer> for FailsOnce {
    fn grpo_weight(&self) -> f64 {
        1.0
    }

    fn add(&mut self, update: &mut PolicyUpdate<'_, Transformer>) -> Result<f64, TrainError> {
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
