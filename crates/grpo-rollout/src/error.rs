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
    #[error("{name} = 0 would sample nothing; use 1 or more")]
    Zero {
        /// Name of the setting.
        name: &'static str,
    },
    /// A prompt contains no tokens.
    #[error("a prompt has no tokens; it needs at least the beginning mark")]
    EmptyPrompt,
    /// A stop string is empty.
    #[error("an empty stop string would end every completion after its first token; leave it out")]
    EmptyStop,
    /// The policy has diverged.
    #[error(transparent)]
    Diverged(#[from] NotFinite),
    /// A prompt contains an id outside the vocabulary.
    #[error("a prompt has the id {id}, and the vocabulary has {vocabulary} tokens")]
    PromptId {
        /// Token id.
        id: u32,
        /// Vocabulary size.
        vocabulary: usize,
    },
    /// The distribution was created for a different vocabulary size.
    #[error(
        "the sampling distribution is over {found} tokens and the model's vocabulary has {vocabulary}"
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
    /// An error returned by a different engine.
    #[error(transparent)]
    Engine(Box<dyn std::error::Error + Send + Sync>),
}
