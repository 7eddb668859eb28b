//! The distribution that tokens are drawn from.

/// How logits become the probabilities of a draw.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingDistribution {
    temperature: f32,
    top_k: Option<usize>,
    forbidden: Vec<u32>,
}

impl SamplingDistribution {
    /// `softmax(logits / temperature)` over the ids that are not `forbidden`, cut to the `top_k` most
    /// probable ones where that is given (of equal ones the lower id stays).
    ///
    /// # Errors
    /// A temperature outside 0.001..1000; a `top_k` of 0; an id named here that a vocabulary of
    /// `vocabulary` tokens lacks; every id forbidden.
    pub fn new(
        temperature: f32,
        top_k: Option<usize>,
        mut forbidden: Vec<u32>,
        vocabulary: usize,
    ) -> Result<Self, DistributionError> {
        // Beyond these, logits divided by it leave the range of f32.
        if !(1e-3..=1e3).contains(&temperature) {
            return Err(DistributionError::Temperature(temperature));
        }
        if top_k == Some(0) {
            return Err(DistributionError::TopKOfZero);
        }
        forbidden.sort_unstable();
        forbidden.dedup();
        if let Some(&id) = forbidden.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(DistributionError::OutsideVocabulary { id, vocabulary });
        }
        if forbidden.len() == vocabulary {
            return Err(DistributionError::AllForbidden);
        }
        Ok(Self { temperature, top_k: top_k.filter(|&k| k < vocabulary), forbidden })
    }

    /// What the logits are divided by.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// How many ids a draw is cut to, where it is.
    pub fn top_k(&self) -> Option<usize> {
        self.top_k
    }

    /// Ids that are never drawn, ascending.
    pub fn forbidden(&self) -> &[u32] {
        &self.forbidden
    }
}

/// A distribution that cannot be sampled.
#[derive(Debug, thiserror::Error, PartialEq)]
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
