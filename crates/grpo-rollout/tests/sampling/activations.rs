//! Activations that are kept for training.

use burn::tensor::Tensor;
use grpo_data::{Group, Prompt, Purpose};
use grpo_model::{Dropout, Frozen, LanguageModel, RolloutActivations, TokenBatch, Transformer};
use grpo_rollout::{Autoregressive, Engine, StepKey};

use crate::support::{KEY, VOCABULARY, completions, in_pool, model, prompts, scaled, settings};

/// Samples with this number of threads, and therefore engines, in batches that are smaller than the
/// number of completions.
fn sample(kept: &RolloutActivations, threads: usize, key: StepKey) -> Vec<Group> {
    let (model, prompts): (Transformer, Vec<Prompt>) = (model(), prompts());
    let mut settings = settings();
    settings.batch_size = 16;
    let rollout = Autoregressive::new(settings, &model, 4).unwrap();
    let rollout: &dyn Engine<Transformer> = &rollout;
    let rollout = rollout.keeping(kept.clone()).unwrap();
    in_pool(threads, || rollout.sample(&Frozen::snapshot(&model), &prompts, key)).unwrap()
}

/// Packs all completions as training does: without the last id, some behind a shared prompt.
fn packed(groups: &[Group], shares: bool) -> TokenBatch {
    let mut batch = TokenBatch::new();
    for group in groups {
        let prompt = &group.prompt.ids;
        let first = shares.then(|| batch.push(prompt));
        for completion in group.completions() {
            let read = &completion.ids()[..completion.ids().len() - 1];
            match first {
                None => batch.push(read),
                Some(first) if read.len() > prompt.len() => {
                    batch.push_behind(first, &read[prompt.len()..])
                }
                Some(_) => continue,
            };
        }
    }
    batch
}

fn bits(hidden: Tensor<2>) -> Vec<u32> {
    hidden.into_data().iter::<f32>().map(f32::to_bits).collect()
}

/// Small budgets keep some layers, or none.
#[test]
fn hidden_states_are_the_same_bits() {
    let model = model();
    for threads in [1, 3] {
        for budget in [0, 20_000, 300_000, 100_000_000] {
            let kept = RolloutActivations::new(budget);
            // The memory of the first rollout is used again.
            for key in [KEY, StepKey { step: 4, policy_version: 6, ..KEY }] {
                let groups = sample(&kept, threads, key);
                for shares in [false, true] {
                    let batch = packed(&groups, shares);
                    let known = kept.look_up(&batch, key.policy_version).expect("all are kept");
                    assert_eq!(
                        bits(model.hidden_from(&known, &batch)),
                        bits(model.hidden(&batch, &mut Dropout::off())),
                        "{threads} threads, {budget} bytes, shared prompts: {shares}"
                    );
                }
            }
        }
    }
}

/// A policy with other weights would compute something else, so what is known is really used.
#[test]
fn known_activations_are_not_computed_again() {
    let kept = RolloutActivations::new(100_000_000);
    let batch = packed(&sample(&kept, 1, KEY), false);
    let known = kept.look_up(&batch, KEY.policy_version).unwrap();
    let other = scaled(1.5);
    let computed = bits(other.hidden(&batch, &mut Dropout::off()));
    assert_ne!(bits(other.hidden_from(&known, &batch)), computed);
    // With nothing kept, it computes.
    let kept = RolloutActivations::new(0);
    sample(&kept, 1, KEY);
    let known = kept.look_up(&batch, KEY.policy_version).unwrap();
    assert_eq!(bits(other.hidden_from(&known, &batch)), computed);
}

#[test]
fn other_tokens_versions_and_purposes_are_unknown() {
    let kept = RolloutActivations::new(100_000_000);
    let groups = sample(&kept, 1, KEY);
    let (batch, version) = (packed(&groups, false), KEY.policy_version);
    assert!(kept.look_up(&batch, version).is_some());
    assert!(kept.look_up(&batch, version + 1).is_none());
    let longest = completions(&groups).max_by_key(|completion| completion.ids().len()).unwrap();
    let mut changed = longest.ids().to_vec();
    changed[1] = (changed[1] + 1) % VOCABULARY as u32;
    let mut more = batch.clone();
    more.push(&changed);
    assert!(kept.look_up(&more, version).is_none());
    // Completions of an evaluation replace nothing.
    sample(&kept, 1, StepKey { purpose: Purpose::EVALUATION, policy_version: 9, ..KEY });
    assert!(kept.look_up(&batch, 9).is_none() && kept.look_up(&batch, version).is_some());
    kept.forget();
    assert!(kept.look_up(&batch, version).is_none());
}
