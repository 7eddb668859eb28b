//! What a loss was made of, on the host in f64.

use crate::LossConfig;
use crate::dual::{Dual, Variable};
use crate::loss_inputs::Sequence;
use crate::mismatch::tokens_per_quotient;
use crate::surrogate::SurrogateLoss;

/// What [`crate::grpo_loss`] computed for a micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossTerms {
    /// The loss.
    pub loss: f64,
    /// The sequences in their order, those without a token among them.
    pub sequences: Vec<SequenceTerms>,
}

/// What was computed for a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceTerms {
    /// Â.
    pub advantage: f64,
    /// Whether the off-policy mask dropped it; `None` without that mask.
    pub is_off_policy: Option<bool>,
    /// φ of the VESPO surrogate; `None` with another one.
    pub vespo_phi: Option<f64>,
    /// Neighbouring tokens that share one importance ratio: 1, or all of the sequence.
    pub tokens_per_ratio: usize,
    /// Neighbouring tokens that share one `π_old / π_sampler`: 1, or all of the sequence.
    pub tokens_per_quotient: usize,
    /// Its tokens.
    pub tokens: Vec<TokenTerms>,
}

/// What was computed for a token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTerms {
    /// `log π_θ`, in nats.
    pub logprob: f64,
    /// The importance ratio `π_θ / π_old`.
    pub ratio: f64,
    /// The surrogate with the mismatch correction, before masks and its weight in the loss.
    pub surrogate: f64,
    /// On which side the ratio was clipped; `None` unless the surrogate clips.
    pub clipping: Option<Clipping>,
    /// Whether the ratio was capped; `None` unless the surrogate is CISPO.
    pub is_capped: Option<bool>,
    /// Entropy of π_θ in nats, if it was given.
    pub entropy: Option<f64>,
    /// Whether the high-entropy mask dropped it.
    pub is_low_entropy: bool,
    /// Estimate of the KL to the reference with its correction, before its weight; `None` without a reference.
    pub kl: Option<f64>,
    /// What the sampler recorded, if it was given.
    pub sampling: Option<SamplingTerms>,
    /// ∂loss/∂log π_θ. The exact KL and the entropy bonus are functions of whole distributions and not part of it.
    pub gradient: f64,
    /// The same of the surrogate alone, without the KL penalty.
    pub surrogate_gradient: f64,
    /// ∂loss/∂KL(π_θ ‖ π_ref), 0 unless the penalty is the exact KL.
    pub exact_kl_gradient: f64,
}

/// Where the ratio of a token lay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clipping {
    /// Below `1 − ε_low` with a negative advantage.
    pub low: bool,
    /// Above `1 + ε_high` with a positive advantage.
    pub high: bool,
}

/// The sampler's view of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingTerms {
    /// `log π_sampler`, in nats.
    pub logprob: f64,
    /// `log π_old − log π_sampler`.
    pub log_quotient: f64,
    /// `π_old / π_sampler` of the token, or of its sequence where the correction is of that level.
    pub quotient: f64,
    /// The quotient after the correction; `None` without one.
    pub weight: Option<f64>,
}

/// The loss of a token on its way to [`TokenTerms`].
pub(crate) struct TokenLoss {
    pub(crate) surrogate: SurrogateLoss,
    pub(crate) is_low_entropy: bool,
    pub(crate) kl: Option<Dual>,
    /// The surrogate after masks, weighted.
    pub(crate) policy: Dual,
    /// The same with the penalty.
    pub(crate) total: Dual,
}

impl LossTerms {
    /// All tokens, `[n]`.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenTerms> {
        self.sequences.iter().flat_map(|sequence| &sequence.tokens)
    }

    /// The sum of entropies over tokens that the high-entropy mask keeps.
    pub(crate) fn kept_entropies(&self) -> f64 {
        let kept = |sequence: &SequenceTerms| -> f64 {
            let tokens = sequence.tokens.iter().filter(|token| !token.is_low_entropy);
            tokens.filter_map(|token| token.entropy).sum()
        };
        self.sequences.iter().map(kept).sum()
    }

    pub(crate) fn push(
        &mut self,
        sequence: &Sequence<'_>,
        ratios: &[Dual],
        sampling: Option<Vec<SamplingTerms>>,
        is_off_policy: Option<bool>,
        losses: &[TokenLoss],
        config: &LossConfig,
    ) {
        self.loss += losses.iter().map(|loss| loss.total.value).sum::<f64>();
        let tokens_per_ratio = config.ratio_level.tokens_sharing(sequence.len());
        let gradients = by_logprob(losses, |loss| loss.total, tokens_per_ratio);
        let surrogate_gradients = by_logprob(losses, |loss| loss.policy, tokens_per_ratio);
        let token = |(t, loss): (usize, &TokenLoss)| TokenTerms {
            logprob: sequence.logprobs[t],
            ratio: ratios[t].value,
            surrogate: loss.surrogate.loss.value,
            clipping: loss.surrogate.clipping,
            is_capped: loss.surrogate.is_capped,
            entropy: sequence.entropy(t),
            is_low_entropy: loss.is_low_entropy,
            kl: loss.kl.map(|kl| kl.value),
            sampling: sampling.as_ref().map(|sampling| sampling[t]),
            gradient: gradients[t],
            surrogate_gradient: surrogate_gradients[t],
            exact_kl_gradient: loss.total.by(Variable::ExactKl),
        };
        self.sequences.push(SequenceTerms {
            advantage: sequence.advantage,
            is_off_policy,
            vespo_phi: losses.first().and_then(|loss| loss.surrogate.vespo_phi),
            tokens_per_ratio,
            tokens_per_quotient: tokens_per_quotient(config.mismatch.as_ref(), sequence.len()),
            tokens: losses.iter().enumerate().map(token).collect(),
        });
    }
}

/// Derivatives by `log π_θ` of each token: a ratio is made of all tokens that share it, each to the same part.
fn by_logprob(
    losses: &[TokenLoss],
    part: fn(&TokenLoss) -> Dual,
    tokens_per_ratio: usize,
) -> Vec<f64> {
    let shared = losses.chunks(tokens_per_ratio).flat_map(|tokens| {
        let sum: f64 = tokens.iter().map(|token| part(token).by(Variable::LogRatio)).sum();
        std::iter::repeat_n(sum / tokens.len() as f64, tokens.len())
    });
    losses
        .iter()
        .zip(shared)
        .map(|(loss, shared)| part(loss).by(Variable::Logprob) + shared)
        .collect()
}
