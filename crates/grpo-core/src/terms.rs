//! Terms of a loss, on the host in f64.

/// Terms that [`crate::grpo_loss`] computed for a micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossTerms {
    /// The loss.
    pub loss: f64,
    /// The sequences in order, including those without tokens.
    pub sequences: Vec<SequenceTerms>,
}

/// Terms of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceTerms {
    /// The advantage.
    pub advantage: f64,
    /// Whether the off-policy mask dropped the sequence; `None` without that mask.
    pub is_off_policy: Option<bool>,
    /// φ of the VESPO surrogate; `None` with another one.
    pub vespo_phi: Option<f64>,
    /// Number of neighbouring tokens that share an importance ratio: 1, or all of the sequence.
    pub tokens_per_ratio: usize,
    /// Number of neighbouring tokens that share `π_old / π_sampler`: 1, or all of the sequence.
    pub tokens_per_quotient: usize,
    /// Terms of its tokens.
    pub tokens: Vec<TokenTerms>,
}

/// Terms of a token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTerms {
    /// `log π_θ`, in nats.
    pub logprob: f64,
    /// The importance ratio `π_θ / π_old`.
    pub ratio: f64,
    /// The surrogate with the mismatch correction, before masks and weighting.
    pub surrogate: f64,
    /// Whether the ratio was clipped; `None` unless the surrogate clips.
    pub clipping: Option<Clipping>,
    /// Whether the ratio was capped; `None` unless the surrogate is CISPO.
    pub is_capped: Option<bool>,
    /// Entropy of π_θ in nats, if it was given.
    pub entropy: Option<f64>,
    /// Whether the high-entropy mask dropped the token.
    pub is_low_entropy: bool,
    /// Corrected estimate of the KL to the reference, before weighting; `None` without a reference.
    pub kl: Option<f64>,
    /// Terms of the sampler, if given.
    pub sampling: Option<SamplingTerms>,
    /// ∂loss/∂log π_θ, without the exact KL and the entropy bonus, which are functions of whole
    /// distributions.
    pub gradient: f64,
    /// The same of the surrogate alone.
    pub surrogate_gradient: f64,
    /// ∂loss/∂KL(π_θ ‖ π_ref), 0 unless the penalty is the exact KL.
    pub exact_kl_gradient: f64,
}

/// On which side a ratio was clipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clipping {
    /// Below `1 − ε_low` with a negative advantage.
    pub low: bool,
    /// Above `1 + ε_high` with a positive advantage.
    pub high: bool,
}

/// Log-probability and quotients of the sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingTerms {
    /// `log π_sampler`, in nats.
    pub logprob: f64,
    /// `log π_old − log π_sampler`.
    pub log_quotient: f64,
    /// `π_old / π_sampler` of the token, or of its sequence if the correction is at sequence level.
    pub quotient: f64,
    /// The quotient after the correction; `None` without one.
    pub weight: Option<f64>,
}

impl LossTerms {
    /// Iterates over all tokens, `[n]`.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenTerms> {
        self.sequences.iter().flat_map(|sequence| &sequence.tokens)
    }

    /// Returns the sum of entropies over tokens that the high-entropy mask keeps.
    pub(crate) fn kept_entropies(&self) -> f64 {
        let kept = |sequence: &SequenceTerms| -> f64 {
            let tokens = sequence.tokens.iter().filter(|token| !token.is_low_entropy);
            tokens.filter_map(|token| token.entropy).sum()
        };
        self.sequences.iter().map(kept).sum()
    }
}
