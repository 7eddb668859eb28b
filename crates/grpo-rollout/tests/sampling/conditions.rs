//! Prompts with conditions.

use grpo_data::{Completion, Group, Prefix, Prompt};
use grpo_logprob::{Targets, score};
use grpo_model::{Frozen, TokenBatch, Transformer, WeightPrecision};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings};

use serde_json::json;

use crate::support::{
    CONTEXT, KEY, VOCABULARY, all_ids, completions, in_pool, other, prompts, settings, shaken,
};

fn model(lstm: bool) -> Transformer {
    let config = other(json!({
        "vocab_size": VOCABULARY, "block_size": CONTEXT, "n_layer": 2, "n_head": 2, "n_embd": 16,
        "num_props": 2, "lstm_layers": if lstm { 2 } else { 0 },
    }));
    shaken(config, 2.0, 0.4, WeightPrecision::F32)
}

/// The prompts of the other tests with conditions of different lengths, one of them without any.
fn conditional() -> Vec<Prompt> {
    let prefixes = [
        (&[5, 1, 9][..], &[Some(1.0), None][..]),
        (&[], &[]),
        (&[], &[Some(-0.5), Some(2.0)]),
        (&[5, 1, 9, 3, 3, 8, 2, 2, 7, 5, 1, 1, 4, 4, 9, 6, 2, 10], &[]),
        (&[7], &[Some(0.25), Some(0.25)]),
        (&[5, 1, 9], &[Some(1.0), None]),
    ];
    let with = |(prompt, (ids, values)): (Prompt, (&[u32], &[Option<f32>]))| Prompt {
        prefix: Prefix { ids: ids.to_vec(), values: values.to_vec() },
        ..prompt
    };
    prompts().into_iter().zip(prefixes).map(with).collect()
}

fn sample(model: &Transformer, settings: RolloutSettings) -> Vec<Group> {
    let rollout = Autoregressive::new(settings, model, 4).unwrap();
    rollout.sample(&Frozen::snapshot(model), &conditional(), KEY).unwrap()
}

fn bits(groups: &[Group]) -> Vec<Vec<u32>> {
    let bits = |completion: &Completion| {
        completion.sampling_logprobs().unwrap().iter().map(|logprob| logprob.to_bits()).collect()
    };
    completions(groups).map(bits).collect()
}

#[test]
fn recorded_logprobs_are_those_of_a_full_pass() {
    for lstm in [false, true] {
        let model = model(lstm);
        let frozen = Frozen::snapshot(&model);
        let groups = sample(&model, settings());
        for (group, prompt) in groups.iter().zip(conditional()) {
            for completion in group.completions() {
                assert_eq!(*completion.prefix(), prompt.prefix);
                let ids = completion.ids();
                let mut batch = TokenBatch::new();
                batch.push_conditional(completion.prefix(), &ids[..ids.len() - 1]);
                let hidden = frozen.hidden(&batch);
                let first = prompt.ids.len() - 1;
                let hidden = hidden.narrow(0, first, completion.actions());
                let targets = Targets::new(completion.action_ids().collect(), VOCABULARY);
                let scores = score(hidden, &frozen.head(), &targets).logprobs;
                let expected: Vec<f32> = scores.into_data().iter().collect();
                assert_eq!(completion.sampling_logprobs().unwrap(), expected);
            }
        }
        // The condition matters: the first two prompts have the same ids.
        assert_ne!(bits(&groups)[..9], bits(&groups)[9..18]);
    }
}

#[test]
fn batches_threads_and_repetition_change_no_bit() {
    for lstm in [false, true] {
        let model = model(lstm);
        let together = sample(&model, settings());
        for batch_size in [1, 5, 17] {
            let other = in_pool(3, || sample(&model, RolloutSettings { batch_size, ..settings() }));
            assert_eq!(all_ids(&other), all_ids(&together));
            assert_eq!(bits(&other), bits(&together));
        }
        let rollout = Autoregressive::new(settings(), &model, 4).unwrap();
        let frozen = Frozen::snapshot(&model);
        for (group, prompt) in together.iter().zip(conditional()) {
            let again = rollout.again(&frozen, &prompt, 4, KEY).unwrap();
            assert_eq!(again, group.samples[4].completion);
        }
    }
}

#[test]
fn conditions_that_the_model_cannot_read_are_refused() {
    let rollout = Autoregressive::new(settings(), &crate::support::model(), 4).unwrap();
    let frozen = Frozen::snapshot(&crate::support::model());
    let refused = rollout.sample(&frozen, &conditional(), KEY).unwrap_err().to_string();
    assert!(refused.contains("the model takes no token ids"), "{refused}");
}
