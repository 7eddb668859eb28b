//! Loss terms, on the host in f64.

use serde::{Deserialize, Serialize};

/// Terms computed by [`crate::grpo_loss`] for one micro-batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossTerms {
    /// Loss: `policy_loss + kl_penalty − entropy bonus`.
    pub loss: f64,
    /// Surrogate part of the loss, after masks and weights.
    pub policy_loss: f64,
    /// KL part of the loss, including β and the weights.
    pub kl_penalty: f64,
    /// Sequences in their original order, including those without tokens.
    pub sequences: Vec<SequenceTerms>,
}

/// Loss terms for one sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceTerms {
    /// Advantage.
    pub advantage: f64,
    /// Whether the off-policy mask dropped the sequence, or `None` if the mask is disabled.
    pub is_off_policy: Option<bool>,
    /// VESPO weight φ, or `None` if a different surrogate is used.
    pub vespo_phi: Option<f64>,
    /// Number of consecutive tokens that share an importance ratio: 1 or the whole sequence.
    pub tokens_per_ratio: usize,
    /// Number of consecutive tokens that share `π_old / π_sampler`: 1 or the whole sequence.
    pub tokens_per_quotient: usize,
    /// Loss terms for each token.
    pub tokens: Vec<TokenTerms>,
}

/// Loss terms for one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenTerms {
    /// `log π_θ` in nats.
    pub logprob: f64,
    /// Importance ratio `π_θ / π_old`.
    pub ratio: f64,
    /// Surrogate loss including the mismatch correction, before masks and weights are applied.
    pub surrogate: f64,
    /// Whether the ratio was clipped, or `None` if the surrogate does not clip.
    pub clipping: Option<Clipping>,
    /// Whether the ratio was capped, or `None` if the surrogate is not CISPO.
    pub is_capped: Option<bool>,
    /// Entropy of π_θ in nats, if available.
    pub entropy: Option<f64>,
    /// Whether the high-entropy mask dropped the token.
    pub is_low_entropy: bool,
    /// Estimated KL to the reference with bias correction, before weighting. `None` if there is no
    /// reference.
    pub kl: Option<f64>,
    /// Sampler terms, if available.
    pub sampling: Option<SamplingTerms>,
    /// ∂loss/∂log π_θ. Excludes the exact KL and the entropy bonus, which depend on the whole
    /// distribution.
    pub gradient: f64,
    /// Like [`Self::gradient`], but for the surrogate only.
    pub surrogate_gradient: f64,
    /// ∂loss/∂KL(π_θ ‖ π_ref). 0 unless the penalty uses the exact KL.
    pub exact_kl_gradient: f64,
}

/// A number of a token, from its terms in all updates of a step and the weight of the GRPO loss.
pub type TokenColumn = (&'static str, fn(&[&TokenTerms], f64) -> f64);

impl TokenTerms {
    /// Numbers that are recorded for each token, by the names of their columns. What is added here is
    /// recorded and explained without further code.
    pub const COLUMNS: [TokenColumn; 4] = [
        // log π_old and the entropy of the policy in the first update, in nats
        ("logprobs", |updates, _| updates[0].logprob),
        ("entropies", |updates, _| updates[0].entropy.expect("entropies were computed")),
        // ∂loss/∂log π_θ, summed over all updates: if negative, the step makes the token more probable.
        // The exact KL penalty and the entropy bonus depend on the whole distribution and are not
        // included.
        ("gradients", |updates, weight| weight * sum(updates, |token| token.gradient)),
        // the same of the surrogate alone
        ("surrogate_gradients", |updates, weight| {
            weight * sum(updates, |token| token.surrogate_gradient)
        }),
    ];
}

fn sum(updates: &[&TokenTerms], of: fn(&TokenTerms) -> f64) -> f64 {
    updates.iter().map(|token| of(token)).sum()
}

/// Whether a ratio was clipped at the lower or the upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clipping {
    /// Below `1 − ε_low` with a negative advantage.
    pub low: bool,
    /// Above `1 + ε_high` with a positive advantage.
    pub high: bool,
}

/// Log-probability and probability quotients from the sampler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingTerms {
    /// `log π_sampler` in nats.
    pub logprob: f64,
    /// `log π_old − log π_sampler`.
    pub log_quotient: f64,
    /// `π_old / π_sampler` for the token, or for its sequence if the correction is at sequence
    /// level.
    pub quotient: f64,
    /// Quotient after correction, or `None` without a correction.
    pub weight: Option<f64>,
}

impl LossTerms {
    /// Returns an iterator over all tokens, `[n]`.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenTerms> {
        self.sequences.iter().flat_map(|sequence| &sequence.tokens)
    }

    /// Returns the sum of the entropies of tokens kept by the high-entropy mask.
    pub(crate) fn kept_entropies(&self) -> f64 {
        let kept = |sequence: &SequenceTerms| -> f64 {
            let tokens = sequence.tokens.iter().filter(|token| !token.is_low_entropy);
            tokens.filter_map(|token| token.entropy).sum()
        };
        self.sequences.iter().map(kept).sum()
    }
}
