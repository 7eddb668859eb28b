//! What cannot be sampled from.

/// A distribution that cannot be sampled.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum DistributionError {
    /// The temperature is zero, negative, too large or not a number.
    #[error(
        "a temperature of {0} cannot be sampled; use 0.001 to 1000 (1 is the model's own distribution)"
    )]
    Temperature(f32),
    /// `top_k` would keep nothing.
    #[error("top_k = 0 would leave no token to draw; use 1 or more, or leave it out to keep all")]
    TopKOfZero,
    /// `top_p` is no part of the whole.
    #[error(
        "top_p = {0} is no probability to reach; use a number above 0 and at most 1 (1 keeps all tokens)"
    )]
    TopP(f32),
    /// `min_p` is no part of the largest probability, or is all of it.
    #[error(
        "min_p = {0} is no part of the largest probability; use 0 or more and less than 1 (0 keeps all tokens)"
    )]
    MinP(f32),
    /// The repetition penalty is not finite, not positive, or far from 1.
    #[error("a repetition penalty of {0} cannot be sampled; use 0.01 to 100 (1 changes nothing)")]
    RepetitionPenalty(f32),
    /// A forbidden id that the vocabulary does not have.
    #[error("the forbidden id {id} is outside the vocabulary of {vocabulary} tokens")]
    OutsideVocabulary {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// Nothing is left to draw.
    #[error("every token is forbidden, so none can be drawn")]
    AllForbidden,
}

impl DistributionError {
    /// The field of [`SamplingSettings`](crate::SamplingSettings) that is at fault.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Temperature(_) => "temperature",
            Self::TopKOfZero => "top_k",
            Self::TopP(_) => "top_p",
            Self::MinP(_) => "min_p",
            Self::RepetitionPenalty(_) => "repetition_penalty",
            Self::OutsideVocabulary { .. } | Self::AllForbidden => "forbidden",
        }
    }
}
