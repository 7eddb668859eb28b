//! Which tokens are scored, and under which distribution.

use std::sync::Arc;

use grpo_data::TokenSet;

/// Tokens that were drawn, one for each of `n` positions, and the distribution that each was drawn from.
///
/// A softmax of `logits / temperature`, over the ids that could be drawn at that position. Everything here
/// travels with a completion, so that a token is scored under the distribution that it was sampled from.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    ids: Arc<[u32]>,
    vocabulary: usize,
    temperature: f32,
    forbidden: Vec<u32>,
    kept: Option<Arc<[TokenSet]>>,
    penalty: Option<RepetitionPenalty>,
}

/// Raw logits of ids that came before are divided by `factor` where they are positive and multiplied by it
/// elsewhere (Keskar et al. 2019, "CTRL", §4.1).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RepetitionPenalty {
    pub(crate) factor: f32,
    /// For each position, the ids before it.
    pub(crate) seen: Arc<[TokenSet]>,
}

impl Targets {
    /// The model's own distribution over `vocabulary` tokens.
    ///
    /// # Panics
    /// Where an id is outside the vocabulary.
    pub fn new(ids: Vec<u32>, vocabulary: usize) -> Self {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            panic!("the id {id} cannot be scored over a vocabulary of {vocabulary} tokens");
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

    /// Divides logits by `temperature`.
    ///
    /// # Panics
    /// Where it is not positive and finite.
    #[must_use]
    pub fn at_temperature(mut self, temperature: f32) -> Self {
        assert!(temperature > 0.0 && temperature.is_finite(), "a temperature of {temperature}");
        self.temperature = temperature;
        self
    }

    /// Leaves `ids` out of every distribution.
    ///
    /// # Panics
    /// Where an id is outside the vocabulary.
    #[must_use]
    pub fn without(mut self, ids: &[u32]) -> Self {
        self.forbidden = ids.to_vec();
        self.forbidden.sort_unstable();
        self.forbidden.dedup();
        let largest = self.forbidden.last().map_or(0, |&id| id as usize);
        assert!(largest < self.vocabulary, "a forbidden id outside the vocabulary");
        self
    }

    /// Restricts the distribution of each position to the ids that truncated sampling kept there.
    ///
    /// # Panics
    /// Where there is not one set for each position, or one is of another vocabulary.
    #[must_use]
    pub fn within(mut self, kept: Vec<TokenSet>) -> Self {
        self.check_sets(&kept, "kept");
        self.kept = Some(kept.into());
        self
    }

    /// Without what [`Self::within`] restricts.
    #[must_use]
    pub(crate) fn untruncated(self) -> Self {
        Self { kept: None, ..self }
    }

    /// Penalises at each position the ids of `seen`.
    ///
    /// # Panics
    /// Where `factor` is not positive and finite, there is not one set for each position, or one is of
    /// another vocabulary.
    #[must_use]
    pub fn with_repetition_penalty(mut self, factor: f32, seen: Vec<TokenSet>) -> Self {
        assert!(factor > 0.0 && factor.is_finite(), "a repetition penalty of {factor}");
        self.check_sets(&seen, "seen");
        self.penalty = Some(RepetitionPenalty { factor, seen: seen.into() });
        self
    }

    fn check_sets(&self, sets: &[TokenSet], what: &str) {
        assert_eq!(sets.len(), self.ids.len(), "one set of {what} ids for each position");
        let fits = sets.iter().all(|set| set.vocabulary() == self.vocabulary);
        assert!(fits, "sets of {what} ids are of the vocabulary of {} tokens", self.vocabulary);
    }

    /// The tokens, `[n]`.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Tokens that there are logits for.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    pub(crate) fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Ascending.
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
