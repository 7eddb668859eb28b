//! The distribution that tokens are drawn from.

/// How logits become the probabilities of a draw; made by
/// [`SamplingSettings::checked`](crate::SamplingSettings::checked).
///
/// In this order, which is that of transformers (its repetition penalty is a processor, and those come before
/// the warpers temperature, top-k, top-p, min-p):
///
/// 1. **Repetition penalty** θ (Keskar et al. 2019, arXiv:1909.05858, as transformers has it):
///    the raw logit of a token that the sequence has already, in prompt or completion, is divided by θ where
///    it is positive and multiplied by θ where it is not. Once, however often the token was seen.
/// 2. **Forbidden** ids are taken out.
/// 3. **Temperature**: logits are divided by it.
/// 4. **Top-k** (Fan et al. 2018, arXiv:1805.04833): the k most probable ids stay; of equal ones the lower.
/// 5. **Top-p** (Holtzman et al. 2020, arXiv:1904.09751): of the softmax over what is left, the fewest most
///    probable ids whose probabilities sum to p or more stay; of equal ones the lower, and one at least.
/// 6. **Min-p** (Nguyen et al. 2024, arXiv:2407.01082): ids with at least min_p times the largest probability
///    stay.
///
/// The draw is from the softmax over the ids that stayed. An id with a logit of −∞ has probability 0 and
/// never stays.
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
    /// What logits are divided by.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// How many ids a draw is cut to, where it is; below the size of the vocabulary.
    pub fn top_k(&self) -> Option<usize> {
        self.top_k
    }

    /// Probability that the kept ids reach together, where a draw is cut to it; above 0 and below 1.
    pub fn top_p(&self) -> Option<f32> {
        self.top_p
    }

    /// Part of the largest probability that a kept id has at least, where a draw is cut to it; above 0 and
    /// below 1.
    pub fn min_p(&self) -> Option<f32> {
        self.min_p
    }

    /// What positive logits of seen tokens are divided by and others multiplied by, where it is not 1.
    pub fn repetition_penalty(&self) -> Option<f32> {
        self.repetition_penalty
    }

    /// Ids that are never drawn, ascending, each once.
    pub fn forbidden(&self) -> &[u32] {
        &self.forbidden
    }

    /// Tokens in the vocabulary, the forbidden among them.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Whether the ids that can be drawn hang on the logits (top-k, top-p, min-p), so that scoring needs the
    /// kept set of each position.
    pub fn is_truncated(&self) -> bool {
        self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some()
    }

    /// The number that the softmax is taken of, for one logit of the model: steps 1 and 3. `seen` says whether
    /// the sequence has its token already. Finite for every finite logit.
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
