//! `Rollout::sample`: groups of completions, all of full length, because nothing ends them, or of lengths that are
//! given.

use std::time::Instant;

use grpo_data::{CounterRng, Group, Prompt, Purpose, SampleKey};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, LanguageModel, Policy};
use grpo_rollout::{Rollout, RolloutSettings, StepKey, StopRule};

use crate::case::{Measured, Repetition};
use crate::models::Model;

/// How much is sampled in a repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) prompts: usize,
    /// Tokens of each prompt.
    pub(crate) prompt_tokens: usize,
    /// Completions of each prompt.
    pub(crate) group: usize,
    /// Tokens of each completion.
    pub(crate) tokens: usize,
}

impl Shape {
    /// Completions in all.
    pub(crate) fn completions(self) -> usize {
        self.prompts * self.group
    }

    /// Operations of sampling: each prompt is read once, and the last token of a completion is drawn and not fed.
    pub(crate) fn flops(self, model: Model) -> f64 {
        let prefill = model.forward_flops(0, self.prompt_tokens, 1);
        let last = self.prompt_tokens + self.tokens - 1;
        let decode = model.forward_flops(self.prompt_tokens, last, self.tokens - 1);
        self.prompts as f64 * (prefill + self.group as f64 * decode)
    }

    /// Prompts of random ids.
    pub(crate) fn prompts(self, model: Model) -> Vec<Prompt> {
        let rng = CounterRng::new(1, Purpose::Evaluation);
        let id = |prompt: u32, place: usize| {
            rng.below([place as u32, prompt, 0, 0], model.size.vocabulary() as u64) as u32
        };
        (0..self.prompts as u32)
            .map(|i| Prompt::of_ids(i, (0..self.prompt_tokens).map(|t| id(i, t)).collect()))
            .collect()
    }
}

pub(crate) struct Sampling {
    policy: Frozen<Policy>,
    rollout: Rollout,
    prompts: Vec<Prompt>,
    tokens: f64,
    flops: f64,
    step: u32,
}

impl Sampling {
    /// All completions at the same time.
    pub(crate) fn new(model: Model, shape: Shape) -> anyhow::Result<Self> {
        let policy = model.build()?;
        Ok(Self {
            rollout: rollout(&policy, shape, shape.completions())?,
            policy: Frozen::snapshot(&policy),
            prompts: shape.prompts(model),
            tokens: (shape.completions() * shape.tokens) as f64,
            flops: shape.flops(model),
            step: 0,
        })
    }

    /// Completions of `lengths`, `at_once` of them at the same time; what ends makes room for the next one.
    pub(crate) fn of_lengths(
        model: Model,
        group: usize,
        at_once: usize,
        lengths: Vec<usize>,
    ) -> anyhow::Result<Self> {
        let policy = model.build()?;
        let prompts = lengths.len() / group;
        let shape = |tokens| Shape { prompts, prompt_tokens: 1, group, tokens };
        let longest = shape(lengths.iter().copied().max().unwrap_or(0));
        // Each group of one: a prompt of one token is nearly nothing.
        let of_one = |&tokens: &usize| Shape { prompts: 1, group: 1, ..shape(tokens) }.flops(model);
        Ok(Self {
            policy: Frozen::snapshot(&policy),
            prompts: longest.prompts(model),
            tokens: lengths.iter().sum::<usize>() as f64,
            flops: lengths.iter().map(of_one).sum(),
            rollout: rollout(&policy, longest, at_once)?.stopping(OfLengths { group, lengths }),
            step: 0,
        })
    }
}

/// Nothing ends a completion but its full length.
fn rollout(policy: &Policy, shape: Shape, batch_size: usize) -> anyhow::Result<Rollout> {
    let plain = SamplingSettings { temperature: 1.0, ..Default::default() };
    let settings = RolloutSettings {
        group_size: shape.group,
        max_new_tokens: shape.tokens,
        end_ids: Vec::new(),
        distribution: plain.checked(policy.vocabulary_size())?,
        batch_size,
    };
    Ok(Rollout::new(settings, policy, shape.prompt_tokens)?)
}

/// Ends each completion at a length of its own.
struct OfLengths {
    group: usize,
    lengths: Vec<usize>,
}

impl StopRule for OfLengths {
    fn ends(&self, completion: &[u32], key: &SampleKey) -> bool {
        completion.len() == self.lengths[key.prompt as usize * self.group + key.sample as usize]
    }
}

impl Measured for Sampling {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let (seed, purpose) = (1, Purpose::Sampling);
        let key = StepKey { seed, purpose, step: self.step, policy_version: 0 };
        self.step += 1;
        let started = Instant::now();
        let groups = self.rollout.sample(&self.policy, &self.prompts, key)?;
        let repetition = Repetition::since(started, self.tokens, Some(self.flops));
        let drawn: usize = groups.iter().flat_map(Group::completions).map(|c| c.actions()).sum();
        anyhow::ensure!(drawn as f64 == self.tokens, "{drawn} tokens drawn, not {}", self.tokens);
        Ok(repetition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Size;

    const MODEL: Model = Model { size: Size::Tiny, context: 64 };

    #[test]
    fn every_completion_has_full_length() {
        let shape = Shape { prompts: 2, prompt_tokens: 3, group: 4, tokens: 9 };
        let repetition = Sampling::new(MODEL, shape).unwrap().run().unwrap();
        assert_eq!(repetition.work, 72.0);
        assert_eq!(repetition.flops, Some(shape.flops(MODEL)));
    }

    #[test]
    fn completions_have_the_lengths_that_are_given() {
        let lengths = vec![3, 9, 1, 4, 4, 7, 2, 8];
        let mut sampling = Sampling::of_lengths(MODEL, 4, 3, lengths.clone()).unwrap();
        let key = StepKey { seed: 1, purpose: Purpose::Sampling, step: 0, policy_version: 0 };
        let groups = sampling.rollout.sample(&sampling.policy, &sampling.prompts, key).unwrap();
        let found = groups.iter().flat_map(Group::completions).map(|c| c.actions());
        assert_eq!(found.collect::<Vec<usize>>(), lengths);
        assert_eq!(sampling.run().unwrap().work, 38.0);
    }

    #[test]
    fn a_shared_prompt_is_counted_once() {
        let shape = |group| Shape { prompts: 3, prompt_tokens: 20, group, tokens: 1 };
        assert_eq!(shape(8).flops(MODEL), shape(1).flops(MODEL));
        let alone = MODEL.forward_flops(0, 20, 1);
        assert_eq!(shape(1).flops(MODEL), 3.0 * alone);
    }

    #[test]
    fn prompts_differ() {
        let shape = Shape { prompts: 2, prompt_tokens: 20, group: 1, tokens: 1 };
        let prompts = shape.prompts(MODEL);
        assert_ne!(prompts[0].ids, prompts[1].ids);
        assert!(prompts.iter().flat_map(|p| &p.ids).all(|&id| id < 32));
    }
}
