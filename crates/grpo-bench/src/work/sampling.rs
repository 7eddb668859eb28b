//! Benchmarks `Engine::sample` with groups of completions that have the maximum length.

use std::time::Instant;

use grpo_data::{Group, Prompt, Purpose};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, LanguageModel, Policy, ProductPrecision};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StepKey};

use super::{Repetition, Work, random_ids};
use crate::models::Model;

/// The amount of work per repetition.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of prompts.
    pub prompts: usize,
    /// Number of tokens per prompt.
    pub prompt_tokens: usize,
    /// Number of completions per prompt.
    pub group: usize,
    /// Number of tokens per completion.
    pub tokens: usize,
}

impl Shape {
    /// Number of completions per prompt in [`Shape::groups`].
    pub const GROUP: usize = 8;

    /// Groups of 8 completions whose prompt only consists of the begin token.
    pub const fn groups(prompts: usize, tokens: usize) -> Self {
        Self { prompts, prompt_tokens: 1, group: Self::GROUP, tokens }
    }

    /// Returns the number of completions.
    pub const fn completions(self) -> usize {
        self.prompts * self.group
    }

    /// Returns the FLOPs for sampling. Each prompt is processed once, and the last token of a
    /// completion is sampled but not processed.
    pub fn flops(self, model: Model) -> f64 {
        let prefill = model.forward_flops(0, self.prompt_tokens, 1);
        let last = self.prompt_tokens + self.tokens - 1;
        let decode = model.forward_flops(self.prompt_tokens, last, self.tokens - 1);
        self.prompts as f64 * (prefill + self.group as f64 * decode)
    }

    /// Returns the bytes of weights that sampling reads: all of them once for the prompts, and once for
    /// each token after the first.
    pub fn weight_bytes(self, model: Model, precision: ProductPrecision) -> f64 {
        self.tokens as f64 * model.weight_bytes(precision)
    }

    /// Returns prompts with random token ids.
    pub fn prompts(self, model: Model) -> Vec<Prompt> {
        (0..self.prompts)
            .map(|i| Prompt::of_ids(i as u32, random_ids(1, i, self.prompt_tokens, model)))
            .collect()
    }
}

/// Samples all completions in a single batch.
pub fn sampling(model: Model, shape: Shape, precision: ProductPrecision) -> anyhow::Result<Work> {
    let policy = model.build()?.with_product_precision(precision);
    let rollout = rollout(&policy, shape, shape.completions())?;
    let tokens = shape.completions() * shape.tokens;
    let mut work =
        timed_sampling(&policy, rollout, shape.prompts(model), tokens, shape.flops(model));
    let weight_bytes = Some(shape.weight_bytes(model, precision));
    Ok(Box::new(move || Ok(Repetition { weight_bytes, ..work()? })))
}

/// Measures sampling. `tokens` and `flops` are the totals over all completions.
pub fn timed_sampling(
    policy: &Policy,
    rollout: Autoregressive,
    prompts: Vec<Prompt>,
    tokens: usize,
    flops: f64,
) -> Work {
    let policy = Frozen::snapshot(policy);
    let mut key = StepKey { seed: 1, purpose: Purpose::SAMPLING, step: 0, policy_version: 0 };
    Box::new(move || {
        let started = Instant::now();
        let groups = rollout.sample(&policy, &prompts, key)?;
        let repetition = Repetition::since(started, tokens as f64, Some(flops));
        key.step += 1;
        let drawn: usize = groups.iter().flat_map(Group::completions).map(|c| c.actions()).sum();
        anyhow::ensure!(drawn == tokens, "sampled {drawn} tokens; expected {tokens}");
        Ok(repetition)
    })
}

/// Creates a sampler whose completions always have the maximum length.
pub fn rollout(policy: &Policy, shape: Shape, batch_size: usize) -> anyhow::Result<Autoregressive> {
    let plain = SamplingSettings { temperature: 1.0, ..Default::default() };
    let settings = RolloutSettings {
        group_size: shape.group,
        max_new_tokens: shape.tokens,
        end_ids: Vec::new(),
        distribution: plain.checked(policy.vocabulary_size())?,
        batch_size,
    };
    Ok(Autoregressive::new(settings, policy, shape.prompt_tokens)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Size;

    const MODEL: Model = Model { size: Size::Tiny, context: 64 };

    #[test]
    fn every_completion_has_full_length() {
        let shape = Shape { prompts: 2, prompt_tokens: 3, group: 4, tokens: 9 };
        let repetition = sampling(MODEL, shape, ProductPrecision::F32).unwrap()().unwrap();
        assert_eq!(repetition.work, 72.0);
        assert_eq!(repetition.flops, Some(shape.flops(MODEL)));
        let of_a_token = MODEL.weight_bytes(ProductPrecision::F32);
        assert_eq!(repetition.weight_bytes, Some(9.0 * of_a_token));
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
