//! Compares a server's log-probabilities with those of this program before training.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_model::{Frozen, Policy, score_completions};

use crate::adapters::AdapterOnDisk;
use crate::completions::{Choice, CompletionRequest, CompletionSettings};
use crate::{Servers, VllmError};

/// How far log-probabilities of servers may be from those of the trainer, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// For each token.
    Each(f64),
    /// On average. For runs that correct differences.
    Mean(f64),
}

/// Number of prompts per server.
const PROMPTS: usize = 4;
/// Number of tokens of each prompt and of each completion.
const TOKENS: usize = 8;

/// A server's log-probabilities next to those of the trainer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Difference {
    largest: f64,
    mean: f64,
}

impl Servers {
    /// Samples a few tokens on each server and scores them here.
    ///
    /// # Errors
    /// Returns an error if they differ by more than `tolerance`.
    pub(crate) fn probe(
        self: &Arc<Self>,
        policy: &Frozen<Policy>,
        adapter: &AdapterOnDisk,
        temperature: f32,
        tolerance: Tolerance,
    ) -> Result<(), VllmError> {
        let settings = Arc::new(CompletionSettings {
            count: 1,
            max_tokens: TOKENS,
            temperature,
            repetition_penalty: 1.0,
            forbidden: Vec::new(),
            end_ids: Vec::new(),
            stop: Vec::new(),
        });
        let vocabulary = policy.vocabulary_size();
        let id = |token: usize| ((token + 1) * vocabulary / (PROMPTS * TOKENS + 1)) as u32;
        let prompts: Vec<Vec<u32>> = (0..PROMPTS)
            .map(|prompt| (0..TOKENS).map(|token| id(prompt * TOKENS + token)).collect())
            .collect();
        for member in &self.members {
            let request = |prompt: &Vec<u32>| CompletionRequest {
                settings: Arc::clone(&settings),
                model: adapter.name.clone(),
                prompt: prompt.clone(),
                seed: None,
            };
            let stop = AtomicBool::new(false);
            let answers =
                prompts.iter().map(|prompt| member.server.request(&request(prompt), &stop));
            let choices: Vec<Choice> = answers.collect::<Result<Vec<_>, _>>()?.concat();
            refuse(member.server.url(), policy, &prompts, &choices, temperature, tolerance)?;
        }
        Ok(())
    }
}

fn refuse(
    url: &str,
    policy: &Frozen<Policy>,
    prompts: &[Vec<u32>],
    choices: &[Choice],
    temperature: f32,
    tolerance: Tolerance,
) -> Result<(), VllmError> {
    let refused = |what: String, fix| Err(VllmError::Server { url: url.to_owned(), what, fix });
    let vocabulary = policy.vocabulary_size();
    if let Some(id) =
        choices.iter().flat_map(|choice| &choice.ids).find(|id| **id as usize >= vocabulary)
    {
        let what = format!("it sampled the token {id}, but the model has {vocabulary} tokens");
        return refused(what, "start vLLM with the model of this run");
    }
    let difference = |temperature: f32| {
        let rows: Vec<(&[u32], &[u32])> =
            prompts.iter().zip(choices).map(|(prompt, choice)| (&**prompt, &*choice.ids)).collect();
        let own = score_completions(policy, &rows, temperature);
        let own = own.iter().flat_map(|scores| &scores.logprobs);
        let theirs = choices.iter().flat_map(|choice| &choice.logprobs);
        let mut differences: Vec<f64> =
            own.zip(theirs).map(|(own, theirs)| (own - f64::from(*theirs)).abs()).collect();
        // NaN is the largest.
        differences.sort_by(f64::total_cmp);
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        Difference { largest: differences[differences.len() - 1], mean }
    };
    let is_within = |Difference { largest, mean }: Difference| match tolerance {
        Tolerance::Each(most) => largest <= most,
        Tolerance::Mean(most) => mean <= most,
    };
    let found = difference(temperature);
    if is_within(found) {
        return Ok(());
    }
    if temperature != 1.0 && is_within(difference(1.0)) {
        let what =
            format!("its log-probabilities are those at temperature 1 instead of {temperature}");
        return refused(what, "start vLLM with `--logprobs-mode processed_logprobs`");
    }
    let what = format!(
        "its log-probabilities differ from those of this program by up to {:.4} nats, {:.4} on average",
        found.largest, found.mean
    );
    match tolerance {
        Tolerance::Each(_) => refused(
            what,
            "start vLLM with the model of this run, `--dtype float32` and `--logprobs-mode processed_logprobs`, or set sampler_check.above = \"correct\"",
        ),
        Tolerance::Mean(_) => refused(what, "start vLLM with the model of this run"),
    }
}
