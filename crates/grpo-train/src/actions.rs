//! What a policy chooses, and the sampler for it.

use grpo_model::LanguageModel;
use grpo_rollout::{Infilling, InfillingSettings, Rollout, RolloutSettings, Sampler};

use crate::{Decode, GrpoConfig, TrainError};

/// What a policy chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actions {
    /// The next token, until one of these ids ends the completion.
    Next {
        /// Ids that end a completion.
        end_ids: Vec<u32>,
    },
    /// What stands in the blanks of a text, all at once.
    Blanks {
        /// The id in the place of each blank.
        mask_id: u32,
        /// Ids that are never put into one, the mask among them.
        forbidden: Vec<u32>,
    },
}

impl GrpoConfig {
    /// How the completions of a step are sampled.
    ///
    /// # Errors
    /// Settings that do not fit the model.
    pub fn sampler<M: LanguageModel>(
        &self,
        policy: &M,
        actions: &Actions,
        group_size: usize,
        longest_prompt: usize,
        decode: &Decode,
    ) -> Result<Sampler, TrainError> {
        let vocabulary = policy.vocabulary_size();
        match actions {
            Actions::Next { end_ids } => {
                let settings = RolloutSettings {
                    group_size,
                    max_new_tokens: self.sampling.max_new_tokens,
                    end_ids: end_ids.clone(),
                    distribution: self.sampling.distribution(vocabulary, &[])?,
                    batch_size: self.sampling.batch_size,
                };
                let rollout = Rollout::new(settings, policy, longest_prompt)?;
                Ok(Sampler::Continuation(rollout.stopping_at(&self.sampling.stop, decode)?))
            }
            Actions::Blanks { mask_id, forbidden } => {
                let distribution = self.sampling.distribution(vocabulary, forbidden)?;
                let settings = InfillingSettings { group_size, mask_id: *mask_id, distribution };
                Ok(Sampler::Infilling(Infilling::new(settings, policy, longest_prompt)?))
            }
        }
    }
}
