//! Token losses and their derivatives with respect to log-probabilities.

use crate::LossConfig;
use crate::dual::{Dual, Variable};
use crate::host_inputs::Sequence;
use crate::mismatch::tokens_per_quotient;
use crate::surrogate::SurrogateLoss;
use crate::terms::{LossTerms, SamplingTerms, SequenceTerms, TokenTerms};

/// Loss of one token, later converted to [`TokenTerms`].
pub(crate) struct TokenLoss {
    pub(crate) surrogate: SurrogateLoss,
    pub(crate) is_low_entropy: bool,
    pub(crate) kl: Option<Dual>,
    /// Weighted surrogate loss after masking.
    pub(crate) policy: Dual,
    /// Weighted KL penalty.
    pub(crate) kl_penalty: Dual,
    /// Sum of `policy` and `kl_penalty`.
    pub(crate) total: Dual,
}

impl LossTerms {
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
        self.policy_loss += losses.iter().map(|loss| loss.policy.value).sum::<f64>();
        self.kl_penalty += losses.iter().map(|loss| loss.kl_penalty.value).sum::<f64>();
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

/// Returns the derivative with respect to `log π_θ` for each token. If tokens share a ratio, its
/// derivative is divided equally between them.
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
