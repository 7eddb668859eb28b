//! The engine: completions of groups.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{
    Completion, CompletionParts, CounterRng, Finish, Group, Prompt, SampleKey, SampledUnder,
};
use grpo_model::{Frozen, Policy};
use grpo_rollout::{Engine, RolloutError, StepKey, StopRule, StopStrings, TurnRequest};

use super::Servers;
use super::completions::{Choice, CompletionRequest, CompletionSettings};

/// Samples groups on vLLM servers.
#[derive(Clone)]
pub(crate) struct OnVllm {
    pub(crate) servers: Arc<Servers>,
    pub(crate) settings: Arc<CompletionSettings>,
    pub(crate) stop: Option<StopStrings>,
    pub(crate) interrupt: Arc<AtomicBool>,
}

impl Engine<Policy> for OnVllm {
    fn sample(
        &self,
        policy: &Frozen<Policy>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        prompts.iter().try_for_each(refuse_prompt)?;
        let target = self.servers.target(policy, self.settings.temperature)?;
        let request = |prompt: &Prompt| CompletionRequest {
            settings: Arc::clone(&self.settings),
            model: target.adapter.name.clone(),
            prompt: prompt.ids.clone(),
            seed: self.servers.config.seeds.then(|| seed(prompt, key)),
        };
        let requests = prompts.iter().map(request).collect();
        let answers = self.servers.complete(&target, requests, &self.interrupt)?;
        let groups = prompts.iter().zip(answers).map(|(prompt, choices)| {
            let completions = choices.into_iter().zip(0..).map(|(choice, sample)| {
                let key_of_sample =
                    SampleKey { seed: key.seed, step: key.step, prompt: prompt.index, sample };
                self.completion(prompt, choice, key_of_sample, key.policy_version)
            });
            Ok(Group::new(prompt.clone(), completions.collect::<Result<Vec<_>, RolloutError>>()?))
        });
        groups.collect()
    }

    fn take_turns(
        &self,
        policy: &Frozen<Policy>,
        requests: &[TurnRequest<'_>],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let target = self.servers.target(policy, self.settings.temperature)?;
        let settings = Arc::new(CompletionSettings { count: 1, ..(*self.settings).clone() });
        let request = |request: &TurnRequest<'_>| CompletionRequest {
            settings: Arc::clone(&settings),
            model: target.adapter.name.clone(),
            prompt: request.context.ids.clone(),
            seed: self.servers.config.seeds.then(|| seed_of_turn(request, key)),
        };
        let of_servers = requests.iter().map(request).collect();
        let answers = self.servers.complete(&target, of_servers, &self.interrupt)?;
        let turns = requests.iter().zip(answers.into_iter().flatten()).map(|(request, choice)| {
            let TurnRequest { context, sample, .. } = *request;
            let key_of_sample =
                SampleKey { seed: key.seed, step: key.step, prompt: context.index, sample };
            self.completion(context, choice, key_of_sample, key.policy_version)
        });
        turns.collect()
    }

    /// Always an error: a server may round differently each time.
    fn again(
        &self,
        _policy: &Frozen<Policy>,
        _prompt: &Prompt,
        _sample: u32,
        _key: StepKey,
    ) -> Result<Completion, RolloutError> {
        Err(RolloutError::Unfit(
            "completions of vLLM servers cannot be sampled again bit for bit".to_owned(),
        ))
    }

    fn interrupted_by(&self, interrupt: Arc<AtomicBool>) -> Arc<dyn Engine<Policy>> {
        Arc::new(Self { interrupt, ..self.clone() })
    }
}

impl OnVllm {
    /// Converts a completion of a server. It ends where the local engine would end it.
    fn completion(
        &self,
        prompt: &Prompt,
        choice: Choice,
        key: SampleKey,
        policy_version: u64,
    ) -> Result<Completion, RolloutError> {
        let Choice { mut ids, mut logprobs, is_stopped } = choice;
        let finish = self.finish(&mut ids, is_stopped, &key)?;
        logprobs.truncate(ids.len());
        let settings = &self.settings;
        let tokens = prompt.ids.len() + ids.len();
        let completion = Completion::try_from(CompletionParts {
            prefix: prompt.prefix.clone(),
            action_mask: (0..tokens).map(|token| token >= prompt.ids.len()).collect(),
            ids: [prompt.ids.clone(), ids].concat(),
            sampling_logprobs: Some(logprobs),
            finish,
            key,
            policy_version,
            sampled_under: SampledUnder {
                temperature: settings.temperature,
                repetition_penalty: settings.repetition_penalty,
                forbidden: settings.forbidden.clone(),
                kept: None,
                mask_id: None,
            },
        });
        completion.map_err(|fault| RolloutError::Unfit(format!("a vLLM server: {fault}")))
    }

    /// Shortens a completion to the token after which it ends, and returns why it ends there.
    fn finish(
        &self,
        ids: &mut Vec<u32>,
        is_stopped: bool,
        key: &SampleKey,
    ) -> Result<Finish, RolloutError> {
        for length in 1..=ids.len() {
            let so_far = &ids[..length];
            let finish = if self.settings.end_ids.contains(&so_far[length - 1]) {
                Finish::EndToken
            } else if self.stop.as_ref().is_some_and(|stop| stop.ends(so_far, key)) {
                Finish::Stop
            } else {
                continue;
            };
            ids.truncate(length);
            return Ok(finish);
        }
        if is_stopped {
            let message = "a vLLM server ended a completion where neither an end token nor a stop string is; check that it has the same tokenizer as the model folder";
            return Err(RolloutError::Unfit(message.to_owned()));
        }
        Ok(Finish::Length)
    }
}

/// Refuses prompts that cannot be sent.
fn refuse_prompt(prompt: &Prompt) -> Result<(), RolloutError> {
    if prompt.ids.is_empty() {
        return Err(RolloutError::EmptyPrompt);
    }
    if !prompt.prefix.is_empty() {
        let message = "vLLM servers have no vectors of conditions; use rollout.engine = \"local\"";
        return Err(RolloutError::Unfit(message.to_owned()));
    }
    Ok(())
}

/// Returns the seed of a group, less than 2⁶³. vLLM adds the index of each completion to it.
fn seed(prompt: &Prompt, key: StepKey) -> u64 {
    // No token has this position.
    seed_at([u32::MAX, 0, prompt.index, key.step], key)
}

/// Returns the seed of a turn after the first.
fn seed_of_turn(request: &TurnRequest<'_>, key: StepKey) -> u64 {
    let TurnRequest { context, sample, turn } = *request;
    seed_at([u32::MAX - turn as u32, sample, context.index, key.step], key)
}

fn seed_at(counter: [u32; 4], key: StepKey) -> u64 {
    let [low, high, _, _] = CounterRng::new(key.seed, key.purpose).bits(counter);
    (u64::from(high) << 32 | u64::from(low)) >> 1
}

impl fmt::Debug for OnVllm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnVllm").field("servers", &self.servers).finish_non_exhaustive()
    }
}
