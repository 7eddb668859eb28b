//! Creates engines.

use std::sync::Arc;

use grpo_logprob::SamplingDistribution;
use grpo_model::{Frozen, LanguageModel, Policy};
use grpo_rollout::{Engine, EngineFactory, EngineRequest, RolloutError, StopStrings};

use super::Servers;
use super::completions::CompletionSettings;
use super::engine::OnVllm;

/// Next tokens that are sampled on vLLM servers.
#[derive(Debug)]
pub struct OnServers {
    servers: Arc<Servers>,
    end_ids: Vec<u32>,
}

impl OnServers {
    /// Creates the action space. Completions end with one of `end_ids`.
    pub fn new(servers: Arc<Servers>, end_ids: Vec<u32>) -> Self {
        Self { servers, end_ids }
    }
}

impl EngineFactory<Policy> for OnServers {
    fn create(
        &self,
        policy: &Policy,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<Policy>>, RolloutError> {
        let unfit = |message: &str| RolloutError::Unfit(message.to_owned());
        let (_, Some(adapter)) = policy.parts() else {
            return Err(unfit(
                "vLLM servers get the policy as a LoRA adapter, but this run trains all weights; add [lora] or `adapter`, or use rollout.engine = \"local\"",
            ));
        };
        if let Some(setting) = adapter.beyond_lora() {
            return Err(RolloutError::Unfit(format!(
                "vLLM servers read plain LoRA adapters of the blocks, but this adapter has {setting}; train one without it, or use rollout.engine = \"local\""
            )));
        }
        let distribution = request.distribution(policy.vocabulary_size(), &[])?;
        if distribution.is_truncated() {
            return Err(unfit(
                "vLLM servers do not return which tokens top_k, top_p and min_p keep, but the trainer needs them; remove these settings, or use rollout.engine = \"local\"",
            ));
        }
        let settings = settings(request, &distribution, &self.end_ids)?;
        let tokens = request.longest_prompt.saturating_add(settings.max_tokens);
        let context = policy.context_length();
        if tokens > context {
            return Err(RolloutError::Unfit(format!(
                "a prompt of {} tokens and sampling.max_new_tokens = {} exceed the model's context of {context} tokens; lower sampling.max_new_tokens, or shorten the prompts",
                request.longest_prompt, settings.max_tokens
            )));
        }
        let policy = Frozen::snapshot(policy);
        let target = self.servers.target(&policy, settings.temperature)?;
        self.servers.connect(&target, tokens)?;
        Ok(Arc::new(OnVllm {
            servers: Arc::clone(&self.servers),
            settings: Arc::new(settings),
            stop: StopStrings::new(request.stop, Arc::clone(request.decode))?,
            interrupt: Arc::default(),
        }))
    }
}

fn settings(
    request: &EngineRequest<'_>,
    distribution: &SamplingDistribution,
    end_ids: &[u32],
) -> Result<CompletionSettings, RolloutError> {
    let at_least_one =
        [("group_size", request.group_size), ("max_new_tokens", request.max_new_tokens)];
    if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
        return Err(RolloutError::Zero { name });
    }
    Ok(CompletionSettings {
        count: request.group_size,
        max_tokens: request.max_new_tokens,
        vocabulary: distribution.vocabulary(),
        temperature: distribution.temperature(),
        repetition_penalty: distribution.repetition_penalty().unwrap_or(1.0),
        forbidden: distribution.forbidden().to_vec(),
        end_ids: end_ids.to_vec(),
        stop: request.stop.to_vec(),
    })
}
