//! Creates engines.

use std::sync::{Arc, Mutex, PoisonError};

use grpo_logprob::SamplingDistribution;
use grpo_model::{Frozen, LanguageModel, Policy};
use grpo_rollout::{Actions, Rollout, RolloutError, RolloutRequest, StopStrings};

use crate::completions::CompletionSettings;
use crate::engine::OnVllm;
use crate::{Servers, Tolerance};

/// Next tokens that are sampled on vLLM servers.
#[derive(Debug)]
pub struct OnServers {
    servers: Arc<Servers>,
    end_ids: Vec<u32>,
    tolerance: Tolerance,
    /// Maximum number of tokens of a prompt and its completion. `None` until the servers have been
    /// checked.
    longest: Mutex<Option<usize>>,
}

impl OnServers {
    /// Creates the action space. Completions end with one of `end_ids`.
    pub fn new(servers: Arc<Servers>, end_ids: Vec<u32>, tolerance: Tolerance) -> Self {
        Self { servers, end_ids, tolerance, longest: Mutex::new(None) }
    }

    /// Checks the servers when the first engine is created.
    fn longest(&self, policy: &Policy, temperature: f32) -> Result<usize, RolloutError> {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(longest) = *longest {
            return Ok(longest);
        }
        let policy = Frozen::snapshot(policy);
        let found = self.servers.connect(&policy)?;
        let adapter = self.servers.adapter(&policy)?;
        self.servers.probe(&policy, &adapter, temperature, self.tolerance)?;
        *longest = Some(found);
        Ok(found)
    }
}

impl Actions<Policy> for OnServers {
    fn rollout(
        &self,
        policy: &Policy,
        request: &RolloutRequest<'_>,
    ) -> Result<Arc<dyn Rollout<Policy>>, RolloutError> {
        let unfit = |message: &str| RolloutError::Unfit(message.to_owned());
        if let (_, None) = policy.parts() {
            return Err(unfit(
                "vLLM servers get the policy as a LoRA adapter, but this run trains all weights; add [lora] or `adapter`, or use rollout.engine = \"local\"",
            ));
        }
        let distribution = request.distribution(policy.vocabulary_size(), &[])?;
        if distribution.is_truncated() {
            return Err(unfit(
                "vLLM servers do not return which tokens top_k, top_p and min_p keep, but the trainer needs them; remove these settings, or use rollout.engine = \"local\"",
            ));
        }
        let settings = settings(request, &distribution, self.end_ids.clone())?;
        let longest =
            self.longest(policy, distribution.temperature())?.min(policy.context_length());
        let tokens = request.longest_prompt.saturating_add(settings.max_tokens);
        if tokens > longest {
            return Err(RolloutError::Unfit(format!(
                "a prompt of {} tokens and sampling.max_new_tokens = {} exceed the {longest} tokens that the vLLM servers and the model accept; lower sampling.max_new_tokens, shorten the prompts, or start vLLM with a larger `--max-model-len`",
                request.longest_prompt, settings.max_tokens
            )));
        }
        Ok(Arc::new(OnVllm {
            servers: Arc::clone(&self.servers),
            settings: Arc::new(settings),
            stop: StopStrings::new(request.stop, Arc::clone(request.decode))?,
            interrupt: Arc::default(),
        }))
    }
}

fn settings(
    request: &RolloutRequest<'_>,
    distribution: &SamplingDistribution,
    end_ids: Vec<u32>,
) -> Result<CompletionSettings, RolloutError> {
    let at_least_one =
        [("group_size", request.group_size), ("max_new_tokens", request.max_new_tokens)];
    if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
        return Err(RolloutError::Zero { name });
    }
    Ok(CompletionSettings {
        count: request.group_size,
        max_tokens: request.max_new_tokens,
        temperature: distribution.temperature(),
        repetition_penalty: distribution.repetition_penalty().unwrap_or(1.0),
        forbidden: distribution.forbidden().to_vec(),
        end_ids,
        stop: request.stop.to_vec(),
    })
}
