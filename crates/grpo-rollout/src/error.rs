//! Errors of sampling.

use grpo_logprob::DistributionError;
use grpo_logprob::NotFinite;

/// Errors of sampling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// Sampling was interrupted.
    #[error("sampling was interrupted")]
    Interrupted,
    /// A count is 0.
    #[error("{name} = 0 would sample nothing; use 1 or more")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// The prompt is empty.
    #[error("a prompt has no tokens; it needs at least the beginning mark")]
    EmptyPrompt,
    /// A stop string is empty.
    #[error("an empty stop string would end every completion after its first token; leave it out")]
    EmptyStop,
    /// The policy has diverged.
    #[error(transparent)]
    Diverged(#[from] NotFinite),
    /// A prompt id is outside of the vocabulary.
    #[error("a prompt has the id {id}, and the vocabulary has {vocabulary} tokens")]
    PromptId {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// The distribution was checked against another vocabulary.
    #[error(
        "the sampling distribution is over {found} tokens and the model's vocabulary has {vocabulary}"
    )]
    Vocabulary {
        /// Size of the distribution's vocabulary.
        found: usize,
        /// Size of the model's vocabulary.
        vocabulary: usize,
    },
    /// An end id or a length does not fit the model.
    #[error("{0}")]
    Unfit(String),
    /// A setting of the distribution is out of range or does not fit the vocabulary.
    #[error(transparent)]
    Sampling(#[from] DistributionError),
    /// An error of another engine.
    #[error(transparent)]
    Engine(Box<dyn std::error::Error + Send + Sync>),
}
