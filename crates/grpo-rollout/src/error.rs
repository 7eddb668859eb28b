//! What cannot be sampled.

use grpo_logprob::DistributionError;
use grpo_logprob::NotFinite;

/// Settings that cannot be sampled with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// Whoever asked for completions does not want them any more.
    #[error("sampling was interrupted")]
    Interrupted,
    /// A count of 0.
    #[error("{name} = 0 would sample nothing; use 1 or more")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// There is nothing to continue.
    #[error("a prompt has no tokens; it needs at least the beginning mark")]
    EmptyPrompt,
    /// What every text has in it.
    #[error("an empty stop string would end every completion after its first token; leave it out")]
    EmptyStop,
    /// The policy cannot be sampled any more.
    #[error(transparent)]
    Diverged(#[from] NotFinite),
    /// A prompt of another vocabulary.
    #[error("a prompt has the id {id}, and the vocabulary has {vocabulary} tokens")]
    PromptId {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A distribution that was checked against another vocabulary than the model's.
    #[error(
        "the sampling distribution is over {found} tokens and the model's vocabulary has {vocabulary}"
    )]
    Vocabulary {
        /// Tokens of the distribution.
        found: usize,
        /// Tokens in the model's vocabulary.
        vocabulary: usize,
    },
    /// An end id or a length that the model cannot have, in one sentence.
    #[error("{0}")]
    Unfit(String),
    /// Settings of the distribution that are out of range or do not fit the vocabulary.
    #[error(transparent)]
    Sampling(#[from] DistributionError),
    /// What another engine cannot sample.
    #[error(transparent)]
    Engine(Box<dyn std::error::Error + Send + Sync>),
}
