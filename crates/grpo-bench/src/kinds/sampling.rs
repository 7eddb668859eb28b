//! `Rollout::sample`: groups of completions, all of full length, because nothing ends them.

use std::time::Instant;

use grpo_data::{CounterRng, Prompt, Purpose};
use grpo_model::{Frozen, Policy};
use grpo_rollout::{Rollout, RolloutSettings, StepKey};
use grpo_sampling::SamplingSettings;

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
    pub(crate) fn new(model: Model, shape: Shape) -> anyhow::Result<Self> {
        let policy = model.build()?;
        let vocabulary = model.size.vocabulary();
        let settings = RolloutSettings {
            group_size: shape.group,
            max_new_tokens: shape.tokens,
            end_ids: Vec::new(),
            distribution: SamplingSettings { temperature: 1.0, ..Default::default() }
                .checked(vocabulary)?,
            batch_size: shape.completions(),
        };
        Ok(Self {
            rollout: Rollout::new(settings, &policy, shape.prompt_tokens)?,
            policy: Frozen::snapshot(&policy),
            prompts: shape.prompts(model),
            tokens: (shape.completions() * shape.tokens) as f64,
            flops: shape.flops(model),
            step: 0,
        })
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
        let drawn: usize = groups.iter().flat_map(|g| &g.completions).map(|c| c.actions()).sum();
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
