//! The sampling distribution.

/// A checked sampling distribution; see
/// [`SamplingSettings::checked`](crate::SamplingSettings::checked).
///
/// The steps have the order of transformers, whose processors (repetition penalty) precede its
/// warpers (temperature, top-k, top-p, min-p):
///
/// 1. **Repetition penalty** θ (Keskar et al. 2019, arXiv:1909.05858, as in transformers): a raw logit of a token that
///    occurs in the prompt or completion is divided by θ if it is positive, else multiplied by θ. It applies once per
///    token, regardless of its number of occurrences.
/// 2. **Forbidden** ids are removed.
/// 3. **Temperature**: logits are divided by it.
/// 4. **Top-k** (Fan et al. 2018, arXiv:1805.04833): keeps the k most probable ids; ties keep the lower id.
/// 5. **Top-p** (Holtzman et al. 2020, arXiv:1904.09751): keeps the fewest most probable ids whose probabilities, in the
///    softmax over the remaining ids, sum to at least p; ties keep the lower id.
/// 6. **Min-p** (Nguyen et al. 2024, arXiv:2407.01082): keeps ids with at least min_p times the largest probability.
///
/// Tokens are drawn from the softmax over the kept ids. An id with a logit of −∞ has probability 0
/// and is never kept.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingDistribution {
    pub(crate) temperature: f32,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: Option<f32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) forbidden: Vec<u32>,
    pub(crate) vocabulary: usize,
}

impl SamplingDistribution {
    /// Returns the divisor of the logits.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Returns the largest number of kept ids, if limited; smaller than the vocabulary.
    pub fn top_k(&self) -> Option<usize> {
        self.top_k
    }

    /// Returns the probability mass to keep, if limited; above 0 and below 1.
    pub fn top_p(&self) -> Option<f32> {
        self.top_p
    }

    /// Returns the smallest kept probability as a fraction of the largest, if limited; above 0 and
    /// below 1.
    pub fn min_p(&self) -> Option<f32> {
        self.min_p
    }

    /// Returns the repetition penalty, unless it is 1.
    pub fn repetition_penalty(&self) -> Option<f32> {
        self.repetition_penalty
    }

    /// Returns the ids that are never drawn, ascending and distinct.
    pub fn forbidden(&self) -> &[u32] {
        &self.forbidden
    }

    /// Returns the size of the vocabulary, including forbidden ids.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Returns whether the kept ids depend on the logits (top-k, top-p, min-p). Scoring then needs
    /// the kept ids of each position.
    pub fn is_truncated(&self) -> bool {
        self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some()
    }

    /// Returns the scaled logit (steps 1 and 3), which is finite for every finite logit. `seen`
    /// says whether the sequence contains the token.
    pub fn scaled(&self, logit: f32, seen: bool) -> f64 {
        let logit = f64::from(logit);
        let penalised = match self.repetition_penalty.filter(|_| seen).map(f64::from) {
            Some(penalty) if logit > 0.0 => logit / penalty,
            Some(penalty) => logit * penalty,
            None => logit,
        };
        penalised / f64::from(self.temperature)
    }
}
