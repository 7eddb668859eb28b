//! How completions are sampled: checked settings.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_data::Purpose;
use grpo_logprob::SamplingDistribution;
use grpo_model::LanguageModel;

use crate::{Decode, RolloutError, StopRule, StopStrings};

/// How completions are sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutSettings {
    /// Completions of each prompt (k).
    pub group_size: usize,
    /// Longest completion, in tokens, its end mark among them.
    pub max_new_tokens: usize,
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
    /// What tokens are drawn from.
    pub distribution: SamplingDistribution,
    /// Completions sampled at the same time.
    pub batch_size: usize,
}

impl RolloutSettings {
    /// Whether a prompt of `prompt` tokens can be continued in a context of `context`.
    pub(crate) fn fits(&self, prompt: usize, context: usize) -> Result<(), RolloutError> {
        let max_new_tokens = self.max_new_tokens;
        if prompt == 0 {
            return Err(RolloutError::EmptyPrompt);
        }
        // The last token is drawn, but never fed.
        if prompt.saturating_add(max_new_tokens - 1) > context {
            return Err(RolloutError::TooLong { prompt, max_new_tokens, context });
        }
        Ok(())
    }
}

/// Which step of which run is sampled: the coordinates of its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKey {
    /// The run's seed.
    pub seed: u64,
    /// Training or evaluation, which share no random numbers.
    pub purpose: Purpose,
    /// The step, from 0.
    pub step: u32,
    /// Optimizer steps that the policy has behind it.
    pub policy_version: u64,
}

/// Checked settings for one kind of model.
#[derive(Clone)]
pub struct Rollout {
    settings: RolloutSettings,
    stop: Option<Arc<dyn StopRule>>,
    interrupt: Arc<AtomicBool>,
}

impl Rollout {
    /// Checks the settings against the model and the longest prompt.
    ///
    /// # Errors
    /// Nothing to sample; an end id that the model lacks; a distribution over another vocabulary; a prompt and
    /// completion that do not fit into the model's context.
    pub fn new<M: LanguageModel>(
        settings: RolloutSettings,
        model: &M,
        longest_prompt: usize,
    ) -> Result<Self, RolloutError> {
        let at_least_one = [
            ("group_size", settings.group_size),
            ("max_new_tokens", settings.max_new_tokens),
            ("batch_size", settings.batch_size),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Err(RolloutError::Zero { name });
        }
        let vocabulary = model.vocabulary_size();
        if let Some(&id) = settings.end_ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(RolloutError::EndId { id, vocabulary });
        }
        let found = settings.distribution.vocabulary();
        if found != vocabulary {
            return Err(RolloutError::Vocabulary { found, vocabulary });
        }
        settings.fits(longest_prompt, model.context_length())?;
        Ok(Self { settings, stop: None, interrupt: Arc::default() })
    }

    /// With a rule that ends completions, besides the end ids and the limit of tokens.
    #[must_use]
    pub fn stopping(self, rule: impl StopRule + 'static) -> Self {
        Self { stop: Some(Arc::new(rule)), ..self }
    }

    /// Sampling ends with [`RolloutError::Interrupted`] within a token once `flag` is true.
    #[must_use]
    pub fn interrupted_by(self, flag: Arc<AtomicBool>) -> Self {
        Self { interrupt: flag, ..self }
    }

    /// With strings that end completions where their text has one; without any, as it is.
    ///
    /// # Errors
    /// [`RolloutError::EmptyStop`].
    pub fn stopping_at(self, strings: &[String], decode: &Decode) -> Result<Self, RolloutError> {
        let rule = StopStrings::new(strings, Arc::clone(decode))?;
        Ok(match rule {
            Some(rule) => self.stopping(rule),
            None => self,
        })
    }

    pub(crate) fn settings(&self) -> &RolloutSettings {
        &self.settings
    }

    pub(crate) fn refuse_interrupt(&self) -> Result<(), RolloutError> {
        refuse_interrupt(&self.interrupt)
    }

    pub(crate) fn stop(&self) -> Option<&dyn StopRule> {
        self.stop.as_deref()
    }
}

impl fmt::Debug for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rollout").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// An error once the flag is set.
pub(crate) fn refuse_interrupt(flag: &AtomicBool) -> Result<(), RolloutError> {
    if flag.load(Ordering::Relaxed) { Err(RolloutError::Interrupted) } else { Ok(()) }
}
