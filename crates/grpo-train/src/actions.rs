//! The engine that samples a run's completions.

use std::sync::Arc;

use grpo_model::LanguageModel;
use grpo_rollout::{Actions, Rollout, RolloutRequest};

use crate::{Decode, GrpoConfig, SamplingConfig, TrainError};

impl GrpoConfig {
    /// How the completions of a step are sampled.
    ///
    /// # Errors
    /// Settings that do not fit the model.
    pub fn sampler<M: LanguageModel>(
        &self,
        policy: &M,
        actions: &dyn Actions<M>,
        group_size: usize,
        longest_prompt: usize,
        decode: &Decode,
    ) -> Result<Arc<dyn Rollout<M>>, TrainError> {
        let SamplingConfig { max_new_tokens, batch_size, ref stop, .. } = self.sampling;
        let sampling = &self.sampling.settings(&[]);
        let request = RolloutRequest {
            group_size,
            longest_prompt,
            sampling,
            max_new_tokens,
            batch_size,
            stop,
            decode,
        };
        Ok(actions.rollout(policy, &request)?)
    }
}
