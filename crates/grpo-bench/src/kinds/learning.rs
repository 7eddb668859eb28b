//! `Learner::learn` on completions of given lengths: what ragged ones cost beside equal ones.

use std::time::Instant;

use grpo_data::{
    Completion, CompletionParts, CounterRng, Finish, Group, Outcome, Prompt, Purpose, SampleKey,
    SampledUnder, Scored,
};
use grpo_model::{Frozen, Policy};
use grpo_train::{GrpoConfig, Learner};

use crate::case::{Measured, Repetition};
use crate::kinds::lengths::{LONGEST, Lengths};
use crate::kinds::sampling::Shape;
use crate::kinds::step;
use crate::models::Model;

pub(crate) struct Learning {
    learner: Learner<Policy>,
    groups: Vec<Group>,
    tokens: f64,
    flops: f64,
}

impl Learning {
    pub(crate) fn new(
        model: Model,
        prompts: usize,
        group: usize,
        lengths: Lengths,
    ) -> anyhow::Result<Self> {
        let shape = Shape { prompts, prompt_tokens: 1, group, tokens: LONGEST };
        let policy = model.build()?;
        let reference = Frozen::snapshot(&policy);
        let mut config: GrpoConfig = serde_json::from_value(step::config(shape))?;
        // Nobody sampled these.
        config.sampler_check.tolerance = f64::MAX;
        let lengths = lengths.of(shape.completions());
        let groups = shape.prompts(model).into_iter().zip(lengths.chunks(group));
        let mut groups: Vec<Group> =
            groups.map(|(prompt, lengths)| group_of(model, prompt, lengths)).collect();
        // Rewards of 0 and 1 in turn.
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        for (sample, reward) in samples.zip([0.0, 1.0].into_iter().cycle()) {
            sample.outcome = Some(Outcome::Scored(Scored::new(vec![(1.0, reward)], vec![])));
        }
        let flops = |&tokens: &usize| {
            model.forward_flops(0, tokens, tokens) + model.training_flops(tokens, tokens)
        };
        Ok(Self {
            learner: Learner::new(policy, reference, &config)?,
            groups,
            tokens: lengths.iter().sum::<usize>() as f64,
            flops: lengths.iter().map(flops).sum(),
        })
    }
}

/// Completions of random ids.
fn group_of(model: Model, prompt: Prompt, lengths: &[usize]) -> Group {
    let rng = CounterRng::new(4, Purpose::Evaluation);
    let vocabulary = model.size.vocabulary();
    let completion = |(sample, &length): (usize, &usize)| {
        let sample = sample as u32;
        let id = |t: usize| rng.below([t as u32, sample, prompt.index, 0], vocabulary as u64);
        let ids = prompt.ids.iter().copied().chain((0..length).map(|t| id(t) as u32)).collect();
        Completion::new(CompletionParts {
            ids,
            action_mask: (0..prompt.ids.len() + length).map(|t| t >= prompt.ids.len()).collect(),
            sampling_logprobs: vec![-(vocabulary as f32).ln(); length],
            finish: Finish::Length,
            key: SampleKey { seed: 4, step: 0, prompt: prompt.index, sample },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    };
    let completions: Vec<Completion> = lengths.iter().enumerate().map(completion).collect();
    Group::new(prompt, completions)
}

impl Measured for Learning {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let started = Instant::now();
        self.learner.learn(&mut self.groups, 1e-6)?;
        Ok(Repetition::since(started, self.tokens, Some(self.flops)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Size;

    #[test]
    fn both_are_learned_from() {
        let model = Model { size: Size::Tiny, context: 256 };
        let mut work = Vec::new();
        for lengths in [Lengths::Ragged, Lengths::Equal] {
            let repetition = Learning::new(model, 1, 4, lengths).unwrap().run().unwrap();
            assert!(repetition.seconds > 0.0);
            work.push(repetition.work);
        }
        assert_eq!(work[0], work[1]);
    }
}
