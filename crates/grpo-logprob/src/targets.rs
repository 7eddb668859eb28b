//! Tokens to score and their sampling distributions.

use std::sync::Arc;

use grpo_data::TokenSet;

/// Sampled tokens, one for each of `n` positions, and the distributions that they were sampled
/// from.
///
/// Each distribution is a softmax of `logits / temperature` over the ids that could be sampled at
/// that position. Completions store all of this information, so that tokens are scored under the
/// same distribution that was used for sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    ids: Arc<[u32]>,
    vocabulary: usize,
    temperature: f32,
    forbidden: Vec<u32>,
    kept: Option<Arc<[TokenSet]>>,
    penalty: Option<RepetitionPenalty>,
}

/// Repetition penalty. If an id occurred earlier, its logit is divided by `factor` if it is
/// positive and multiplied by `factor` otherwise (Keskar et al. 2019, "CTRL", §4.1).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RepetitionPenalty {
    pub(crate) factor: f32,
    /// Ids that occurred before each position.
    pub(crate) seen: Arc<[TokenSet]>,
}

impl Targets {
    /// Creates targets that are scored under the unmodified distribution over `vocabulary` tokens.
    ///
    /// # Panics
    /// Panics if an id is outside the vocabulary.
    pub fn new(ids: Vec<u32>, vocabulary: usize) -> Self {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            panic!("token id {id} is outside the vocabulary of {vocabulary} tokens");
        }
        Self {
            ids: ids.into(),
            vocabulary,
            temperature: 1.0,
            forbidden: Vec::new(),
            kept: None,
            penalty: None,
        }
    }

    /// Sets the temperature by which logits are divided.
    ///
    /// # Panics
    /// Panics if `temperature` is not positive and finite.
    #[must_use]
    pub fn at_temperature(mut self, temperature: f32) -> Self {
        assert!(
            temperature > 0.0 && temperature.is_finite(),
            "temperature {temperature} is out of range"
        );
        self.temperature = temperature;
        self
    }

    /// Excludes `ids` from all distributions.
    ///
    /// # Panics
    /// Panics if an id is outside the vocabulary.
    #[must_use]
    pub fn without(mut self, ids: &[u32]) -> Self {
        self.forbidden = ids.to_vec();
        self.forbidden.sort_unstable();
        self.forbidden.dedup();
        let largest = self.forbidden.last().map_or(0, |&id| id as usize);
        assert!(largest < self.vocabulary, "forbidden id outside the vocabulary");
        self
    }

    /// Restricts the distribution at each position to the ids that were kept by truncated sampling.
    ///
    /// # Panics
    /// Panics if the number of sets differs from the number of positions, or if a set has a
    /// different vocabulary size.
    #[must_use]
    pub fn within(mut self, kept: Vec<TokenSet>) -> Self {
        self.check_sets(&kept, "kept");
        self.kept = Some(kept.into());
        self
    }

    /// Removes the restriction added by [`Self::within`].
    #[must_use]
    pub(crate) fn untruncated(self) -> Self {
        Self { kept: None, ..self }
    }

    /// Applies a repetition penalty to the ids in `seen`, which contains one set per position.
    ///
    /// # Panics
    /// Panics if `factor` is not positive and finite, if the number of sets differs from the number
    /// of positions, or if a set has a different vocabulary size.
    #[must_use]
    pub fn with_repetition_penalty(mut self, factor: f32, seen: Vec<TokenSet>) -> Self {
        assert!(factor > 0.0 && factor.is_finite(), "repetition penalty {factor} is out of range");
        self.check_sets(&seen, "seen");
        self.penalty = Some(RepetitionPenalty { factor, seen: seen.into() });
        self
    }

    fn check_sets(&self, sets: &[TokenSet], what: &str) {
        assert_eq!(sets.len(), self.ids.len(), "expected one set of {what} ids per position");
        let fits = sets.iter().all(|set| set.vocabulary() == self.vocabulary);
        assert!(fits, "sets of {what} ids must use the vocabulary of {} tokens", self.vocabulary);
    }

    /// Returns the token ids, `[n]`.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the vocabulary size.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    pub(crate) fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Returns the forbidden ids in ascending order.
    pub(crate) fn forbidden(&self) -> &[u32] {
        &self.forbidden
    }

    pub(crate) fn kept(&self) -> Option<&[TokenSet]> {
        self.kept.as_deref()
    }

    pub(crate) fn penalty(&self) -> Option<&RepetitionPenalty> {
        self.penalty.as_ref()
    }
}
