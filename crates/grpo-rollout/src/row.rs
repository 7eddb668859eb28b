//! State of a completion during sampling.

use grpo_data::TokenSet;
use grpo_data::{
    Completion, CompletionParts, Finish, Prefix, Prompt, Purpose, SampleKey, SampledUnder,
};
use grpo_logprob::Draw;

use crate::{Autoregressive, StepKey};

/// State of a completion during sampling.
pub(crate) struct Row {
    prefix: Prefix,
    /// Prompt ids followed by sampled ids.
    pub(crate) ids: Vec<u32>,
    prompt_length: usize,
    key: SampleKey,
    purpose: Purpose,
    logprobs: Vec<f32>,
    /// Ids kept for each sampled token, if the distribution is truncated.
    kept: Vec<TokenSet>,
    finish: Option<Finish>,
}

impl Row {
    pub(crate) fn new(prompt: &Prompt, sample: u32, key: StepKey) -> Self {
        Self {
            prefix: prompt.prefix.clone(),
            ids: prompt.ids.clone(),
            prompt_length: prompt.ids.len(),
            key: SampleKey { seed: key.seed, step: key.step, prompt: prompt.index, sample },
            purpose: key.purpose,
            logprobs: Vec::new(),
            kept: Vec::new(),
            finish: None,
        }
    }

    /// Returns the random number for the next token.
    pub(crate) fn uniform(&self) -> f64 {
        self.key.uniform(self.purpose, self.ids.len() as u32)
    }

    /// Appends a token and checks whether the completion ends there.
    pub(crate) fn push(&mut self, draw: Draw, engine: &Autoregressive) {
        self.ids.push(draw.id);
        self.logprobs.push(draw.logprob);
        self.kept.extend(draw.kept);
        let completion = &self.ids[self.prompt_length..];
        let settings = engine.settings();
        let stops = engine.stop().is_some_and(|stop| stop.ends(completion, &self.key));
        self.finish = if settings.end_ids.contains(&draw.id) {
            Some(Finish::EndToken)
        } else if stops {
            Some(Finish::Stop)
        } else if completion.len() == settings.max_new_tokens {
            Some(Finish::Length)
        } else {
            None
        };
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Returns the latest token.
    pub(crate) fn last_id(&self) -> u32 {
        self.ids[self.ids.len() - 1]
    }

    pub(crate) fn completion(self, key: StepKey, engine: &Autoregressive) -> Completion {
        let distribution = &engine.settings().distribution;
        Completion::new(CompletionParts {
            prefix: self.prefix,
            action_mask: (0..self.ids.len()).map(|t| t >= self.prompt_length).collect(),
            ids: self.ids,
            sampling_logprobs: Some(self.logprobs),
            finish: self.finish.expect("the row has finished sampling"),
            key: self.key,
            policy_version: key.policy_version,
            sampled_under: SampledUnder {
                temperature: distribution.temperature(),
                repetition_penalty: distribution.repetition_penalty().unwrap_or(1.0),
                forbidden: distribution.forbidden().to_vec(),
                kept: distribution.is_truncated().then_some(self.kept),
                mask_id: None,
            },
        })
    }
}
