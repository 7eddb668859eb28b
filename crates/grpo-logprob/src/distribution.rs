//! Sampling distribution.

/// A validated sampling distribution, created by
/// [`SamplingSettings::checked`](crate::SamplingSettings::checked).
///
/// The settings are applied in the same order as in transformers, where processors (repetition
/// penalty) come before warpers (temperature, top-k, top-p, min-p):
///
/// 1. **Repetition penalty** θ (Keskar et al. 2019, arXiv:1909.05858, as in transformers): if a
///    token occurs in the prompt or completion, its logit is divided by θ if positive and
///    multiplied by θ otherwise. The penalty is applied once, no matter how often the token occurs.
/// 2. **Forbidden** ids are removed.
/// 3. **Temperature**: logits are divided by the temperature.
/// 4. **Top-k** (Fan et al. 2018, arXiv:1805.04833): keeps the k most probable ids. In case of a
///    tie, the lower id is kept.
/// 5. **Top-p** (Holtzman et al. 2020, arXiv:1904.09751): keeps the smallest set of most probable
///    ids whose total probability, after a softmax over the remaining ids, is at least p. In case
///    of a tie, the lower id is kept.
/// 6. **Min-p** (Nguyen et al. 2024, arXiv:2407.01082): keeps ids whose probability is at least
///    min_p times the largest probability.
///
/// Tokens are sampled from a softmax over the ids that are kept. An id whose logit is −∞ has
/// probability 0 and is never kept.
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
    /// Returns the softmax temperature.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Returns the maximum number of ids to keep, or `None` if there is no limit. Always less than
    /// the vocabulary size.
    pub fn top_k(&self) -> Option<usize> {
        self.top_k
    }

    /// Returns the total probability of the ids to keep, or `None` if there is no limit. Always
    /// between 0 and 1, exclusive.
    pub fn top_p(&self) -> Option<f32> {
        self.top_p
    }

    /// Returns the minimum probability as a fraction of the largest, or `None` if there is no
    /// limit. Always between 0 and 1, exclusive.
    pub fn min_p(&self) -> Option<f32> {
        self.min_p
    }

    /// Returns the repetition penalty, or `None` if it is 1.
    pub fn repetition_penalty(&self) -> Option<f32> {
        self.repetition_penalty
    }

    /// Returns the ids that are never sampled, sorted and without duplicates.
    pub fn forbidden(&self) -> &[u32] {
        &self.forbidden
    }

    /// Returns the vocabulary size, including forbidden ids.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Returns whether the set of kept ids depends on the logits (top-k, top-p, min-p). If so, the
    /// kept ids at each position are required for scoring.
    pub fn is_truncated(&self) -> bool {
        self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some()
    }

    /// Applies the repetition penalty and the temperature to a logit. The result is finite for
    /// every finite logit. `seen` indicates whether the token occurs in the sequence.
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
