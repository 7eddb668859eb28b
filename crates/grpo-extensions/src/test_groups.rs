//! Completion groups for tests.

use grpo_data::{
    Completion, CompletionParts, Finish, Group, Outcome, Prompt, SampleKey, SampledUnder,
};

/// Creates a group of one-token completions with the given outcomes.
pub(crate) fn group(outcomes: Vec<Outcome>) -> Group {
    let completion = |sample: usize| {
        Completion::new(CompletionParts {
            prefix: Default::default(),
            ids: vec![0, 1],
            action_mask: vec![false, true],
            sampling_logprobs: Some(vec![-1.0]),
            finish: Finish::Length,
            key: SampleKey { seed: 1, step: 0, prompt: 0, sample: sample as u32 },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    };
    let completions = (0..outcomes.len()).map(completion);
    let mut group = Group::new(Prompt::of_ids(0, vec![0]), completions);
    for (sample, outcome) in group.samples.iter_mut().zip(outcomes) {
        sample.outcome = Some(outcome);
    }
    group
}
