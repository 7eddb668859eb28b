//! Sampling errors.

use grpo_logprob::DistributionError;
use grpo_logprob::NotFinite;

/// Errors that can occur during sampling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// Sampling was interrupted.
    #[error("sampling was interrupted")]
    Interrupted,
    /// A setting is 0 but must be at least 1.
    #[error("{name} = 0 is out of range; expected 1 or more")]
    Zero {
        /// Name of the setting.
        name: &'static str,
    },
    /// A prompt contains no tokens.
    #[error("a prompt has no tokens; expected at least the begin token")]
    EmptyPrompt,
    /// A stop string is empty.
    #[error(
        "stop string is empty, which would end every completion after its first token; remove it"
    )]
    EmptyStop,
    /// The policy has diverged.
    #[error(transparent)]
    Diverged(#[from] NotFinite),
    /// A prompt contains an id outside the vocabulary.
    #[error("prompt token id {id} is outside the vocabulary of {vocabulary} tokens")]
    PromptId {
        /// Token id.
        id: u32,
        /// Vocabulary size.
        vocabulary: usize,
    },
    /// The distribution was created for a different vocabulary size.
    #[error(
        "the sampling distribution has {found} tokens, but the model's vocabulary has {vocabulary}"
    )]
    Vocabulary {
        /// Vocabulary size of the distribution.
        found: usize,
        /// Vocabulary size of the model.
        vocabulary: usize,
    },
    /// An end id or a length is incompatible with the model.
    #[error("{0}")]
    Unfit(String),
    /// A setting of the distribution is out of range or incompatible with the vocabulary.
    #[error(transparent)]
    Sampling(#[from] DistributionError),
    /// An engine returned something other than what was requested.
    #[error("the engine {engine} returned {fault}; this is a bug of the engine")]
    Broken {
        /// Name of its type.
        engine: String,
        /// What it returned, and what was expected.
        fault: String,
    },
    /// An error returned by a different engine.
    #[error(transparent)]
    Engine(Box<dyn std::error::Error + Send + Sync>),
}
