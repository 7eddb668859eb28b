//! The autoregressive engine, which extends a prompt token by token.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_logprob::SamplingDistribution;
use grpo_model::LanguageModel;

use crate::{Decode, RolloutError, StopRule, StopStrings};

/// Settings of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutSettings {
    /// Completions per prompt (k).
    pub group_size: usize,
    /// Largest length of a completion in tokens, including the end mark.
    pub max_new_tokens: usize,
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
    /// The sampling distribution.
    pub distribution: SamplingDistribution,
    /// Completions sampled at the same time.
    pub batch_size: usize,
}

impl RolloutSettings {
    /// Checks that a prompt of `prompt` tokens and a completion fit into a context of `context`
    /// tokens.
    pub(crate) fn fits(&self, prompt: usize, context: usize) -> Result<(), RolloutError> {
        let max_new_tokens = self.max_new_tokens;
        if prompt == 0 {
            return Err(RolloutError::EmptyPrompt);
        }
        // The last token is drawn but never read.
        if prompt.saturating_add(max_new_tokens - 1) > context {
            let at_most = match prompt > context {
                true => format!("a prompt may have at most {context}"),
                false => format!("max_new_tokens may be at most {}", context + 1 - prompt),
            };
            return Err(RolloutError::Unfit(format!(
                "a prompt of {prompt} tokens and max_new_tokens = {max_new_tokens} do not fit into the model's context of {context} tokens; {at_most}"
            )));
        }
        Ok(())
    }
}

/// The actions of a causal policy: next tokens, until one of the end ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextTokens {
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
}

/// Settings that were checked against a model.
#[derive(Clone)]
pub struct Autoregressive {
    settings: RolloutSettings,
    stop: Option<Arc<dyn StopRule>>,
    interrupt: Arc<AtomicBool>,
}

impl Autoregressive {
    /// Checks the settings against the model and the longest prompt.
    ///
    /// # Errors
    /// Returns an error if there is nothing to sample, if an end id is outside of the vocabulary,
    /// if the distribution has another vocabulary, or if prompt and completion do not fit into the
    /// context.
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
            return Err(RolloutError::Unfit(format!(
                "the end id {id} is outside the vocabulary of {vocabulary} tokens"
            )));
        }
        let found = settings.distribution.vocabulary();
        if found != vocabulary {
            return Err(RolloutError::Vocabulary { found, vocabulary });
        }
        settings.fits(longest_prompt, model.context_length())?;
        Ok(Self { settings, stop: None, interrupt: Arc::default() })
    }

    /// Adds a rule that ends completions, in addition to end ids and length limit.
    #[must_use]
    pub fn stopping(self, rule: impl StopRule + 'static) -> Self {
        Self { stop: Some(Arc::new(rule)), ..self }
    }

    /// Ends completions whose text contains one of `strings`; does nothing without strings.
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

    pub(crate) fn with_interrupt(self, interrupt: Arc<AtomicBool>) -> Self {
        Self { interrupt, ..self }
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

impl fmt::Debug for Autoregressive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Autoregressive").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Returns an error if the interrupt flag is set.
///
/// # Errors
/// [`RolloutError::Interrupted`].
pub fn refuse_interrupt(flag: &AtomicBool) -> Result<(), RolloutError> {
    if flag.load(Ordering::Relaxed) { Err(RolloutError::Interrupted) } else { Ok(()) }
}
