//! Autoregressive engine, which extends prompts one token at a time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_logprob::SamplingDistribution;
use grpo_model::{LanguageModel, RolloutActivations};

use crate::{Decode, Report, RolloutError, StopRule, StopStrings};

/// Settings for the autoregressive engine. Unlike an [`EngineRequest`](crate::EngineRequest), they have been
/// checked against a model: the distribution is over its vocabulary, and the end ids are its own.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutSettings {
    /// Number of completions per prompt (k).
    pub group_size: usize,
    /// Maximum completion length in tokens, including the end token.
    pub max_new_tokens: usize,
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
    /// Sampling distribution.
    pub distribution: SamplingDistribution,
    /// Number of completions sampled at the same time.
    pub batch_size: usize,
}

impl RolloutSettings {
    /// Checks that `prompt` prompt tokens and a completion fit into a context of `context` tokens.
    pub(crate) fn fits(&self, prompt: usize, context: usize) -> Result<(), RolloutError> {
        let max_new_tokens = self.max_new_tokens;
        if prompt == 0 {
            return Err(RolloutError::EmptyPrompt);
        }
        // The last token is sampled but never passed to the model.
        if prompt.saturating_add(max_new_tokens - 1) > context {
            let at_most = match prompt > context {
                true => format!("shorten the prompt to at most {context}"),
                false => format!("set max_new_tokens to at most {}", context + 1 - prompt),
            };
            return Err(RolloutError::Unfit(format!(
                "a prompt of {} with max_new_tokens = {max_new_tokens} exceeds the model's context of {context} tokens; {at_most}",
                grpo_data::counted(prompt, "token")
            )));
        }
        Ok(())
    }
}

/// Action space of a causal language model: each action is the next token. A completion ends with
/// one of the end ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextTokens {
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
}

/// Autoregressive engine with validated settings.
#[derive(Clone)]
pub struct Autoregressive {
    settings: RolloutSettings,
    stop: Option<Arc<dyn StopRule>>,
    interrupt: Arc<AtomicBool>,
    activations: Option<RolloutActivations>,
    report: Option<Report>,
}

impl Autoregressive {
    /// Creates an engine. The settings are validated against the model and the longest prompt.
    ///
    /// # Errors
    /// Returns an error if there is nothing to sample, if an end id is outside the vocabulary, if
    /// the distribution has a different vocabulary size, or if a prompt and its completion exceed
    /// the context length.
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
                "end id {id} is outside the vocabulary of {vocabulary} tokens"
            )));
        }
        let found = settings.distribution.vocabulary();
        if found != vocabulary {
            return Err(RolloutError::Vocabulary { found, vocabulary });
        }
        settings.fits(longest_prompt, model.context_length())?;
        Ok(Self {
            settings,
            stop: None,
            interrupt: Arc::default(),
            activations: None,
            report: None,
        })
    }

    /// Adds a rule that ends completions, in addition to end ids and the length limit.
    #[must_use]
    pub fn stopping(self, rule: impl StopRule + 'static) -> Self {
        Self { stop: Some(Arc::new(rule)), ..self }
    }

    /// Ends completions whose text contains one of `strings`. Has no effect if `strings` is empty.
    ///
    /// # Errors
    /// Returns [`RolloutError::EmptyStop`] if a string is empty.
    pub fn stopping_at(self, strings: &[String], decode: &Decode) -> Result<Self, RolloutError> {
        let rule = StopStrings::new(strings, Arc::clone(decode))?;
        Ok(match rule {
            Some(rule) => self.stopping(rule),
            None => self,
        })
    }

    pub(crate) fn with_activations(self, activations: RolloutActivations) -> Self {
        Self { activations: Some(activations), ..self }
    }

    pub(crate) fn activations(&self) -> Option<&RolloutActivations> {
        self.activations.as_ref()
    }

    pub(crate) fn with_report(self, report: Report) -> Self {
        Self { report: Some(report), ..self }
    }

    /// Reports a finished completion.
    pub(crate) fn report(&self) {
        self.report.iter().for_each(|report| report());
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

/// Checks the interrupt flag.
///
/// # Errors
/// Returns [`RolloutError::Interrupted`] if the flag is set.
pub fn refuse_interrupt(flag: &AtomicBool) -> Result<(), RolloutError> {
    if flag.load(Ordering::Relaxed) { Err(RolloutError::Interrupted) } else { Ok(()) }
}
