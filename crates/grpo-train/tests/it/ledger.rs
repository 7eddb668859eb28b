//! Tests the ledger entry of a step.

use grpo_data::Group;
use grpo_model::{Adapted, Adapter, Frozen, LanguageModel, LoraConfig, Policy, weights_digest};
use grpo_run::{LedgerCompletion, LedgerStep};
use grpo_train::{Grpo, StepReport};

use crate::support::{SEED, begin, chains, config, fresh_model, grpo, take_step, vocabulary};

/// Builds the expected ledger entries for the samples in a report, ordered by group.
fn entries(report: &StepReport, version: u64) -> Vec<LedgerCompletion> {
    let entry = |completion: &grpo_data::Completion| {
        let (ids, mask) = (completion.ids(), completion.action_mask());
        let actions = ids.iter().zip(mask).filter(|(_, is_action)| **is_action).map(|(&id, _)| id);
        let place = [completion.key().prompt, completion.key().sample];
        let step = u64::from(report.step) + 1;
        LedgerCompletion::of(step, place, version, actions, completion.sampling_logprobs().unwrap())
    };
    report.groups.iter().flat_map(Group::completions).map(entry).collect()
}

/// Performs several steps and returns each report along with the policy hash after the step.
fn steps<M: LanguageModel>(grpo: &mut Grpo<M>, steps: u32) -> Vec<(StepReport, String)> {
    let step = |step| (take_step(grpo, step), weights_digest(grpo.policy()).to_string());
    (0..steps).map(step).collect()
}

#[test]
fn the_ledger_is_of_what_was_sampled_and_used() {
    for (updates, tokens) in [(1, 4096), (2, 4096), (3, 20)] {
        let mut config = config();
        config.train.updates_per_rollout = updates;
        config.train.micro_batch_tokens = tokens;
        config.optimizer.learning_rate = 1e-2;
        let mut grpo = grpo(config, chains());
        let begin = weights_digest(grpo.policy()).to_string();
        let mut before = begin.clone();
        let mut version = 0;
        for (report, after) in steps(&mut grpo, 3) {
            let LedgerStep {
                step, rollout, updates: made, reference, reference_changed, base, ..
            } = &report.observed.ledger;
            assert_eq!(*step, u64::from(report.step) + 1);
            assert_eq!(rollout.policy_version, version);
            assert_eq!(rollout.weights, before);
            assert_eq!(rollout.completions, entries(&report, version));
            assert_eq!(made.len(), updates as usize);
            for update in made {
                version += 1;
                assert_eq!(update.version, version);
                assert_eq!(update.completions, rollout.completions);
                assert_eq!(update.learning_rate, report.learning_rate);
                assert_ne!(update.weights, before, "an update that moved nothing");
                before.clone_from(&update.weights);
            }
            assert_eq!(before, after);
            assert_eq!((reference, reference_changed, base), (&begin, &None, &None));
        }
    }
}

#[test]
fn an_adapter_is_hashed_and_the_model_under_it_once() {
    let vocabulary = vocabulary();
    let base = fresh_model(vocabulary.len());
    let lora = LoraConfig { rank: 2, alpha: 4.0, ..LoraConfig::default() };
    let adapter = Adapter::random(&lora, &base, 1, &burn::tensor::Device::flex().autodiff());
    let policy = Policy::Adapted(Adapted::new(&base, adapter.unwrap()));
    let alone = Frozen::snapshot(&Policy::Whole(base)).digest().to_string();
    let mut grpo = begin(policy, config(), SEED, vocabulary.boundary(), chains()).unwrap();
    let begin = weights_digest(grpo.policy()).to_string();
    let steps = steps(&mut grpo, 2);
    for (report, after) in &steps {
        assert_eq!(report.observed.ledger.base.as_ref(), Some(&alone));
        assert_eq!(report.observed.ledger.reference, begin);
        assert_eq!(&report.observed.ledger.updates[0].weights, after);
    }
    assert_eq!(steps[1].0.observed.ledger.rollout.weights, steps[0].1);
    assert_ne!(steps[0].1, begin);
}
