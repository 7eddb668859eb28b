//! The loss as plain numbers.

use crate::dual::Dual;
use crate::surrogate::SurrogateLoss;
use crate::token_loss::TokenLoss;
use crate::{BatchTotals, HostInputs, LossConfig, LossTerms};

/// Computes the contribution of these sequences to the loss of the optimizer batch:
/// `Σ w · (surrogate × masks × mismatch + β · KL) − entropy bonus`.
/// See Shao et al. 2024, equations 3 and 4, and [`LossConfig`] for the variants.
///
/// The formulas and their derivatives are evaluated in f64, one token at a time. Very large values of
/// the ratio `π_θ / π_old`, and of `π_ref / π_θ` in k3, are limited to the 0.9th power of
/// [`HostInputs::largest`] (5e34 in f32). Beyond this limit, the gradient is 0.
///
/// This function does not validate `config`. Use [`LossConfig::checked`] to reject invalid
/// combinations such as k1 without bias correction.
///
/// # Panics
/// Panics if a required input is missing or has another length than the tokens, if `rows` is not
/// ascending, or if a sequence has no advantage.
pub fn loss_terms(batch: &HostInputs<'_>, config: &LossConfig, totals: &BatchTotals) -> LossTerms {
    batch.check();
    let high_entropy = config.high_entropy_share.map(|_| batch.high_entropy(totals));
    let mut terms = LossTerms::default();
    for sequence in batch.sequences() {
        let weight = config.reduction.token_weight(sequence.len(), batch.size(), totals);
        let ratios = sequence.ratios(config.ratio_level); // ρ = π_θ / π_old
        let sampling = sequence.sampling(config.mismatch.as_ref()); // π_old / π_sampler
        let surrogates = config.surrogate.losses(&sequence, &ratios, sampling.as_deref());
        let is_off_policy = config.off_policy_threshold.map(|threshold| {
            let distance = sequence.mean_distance(config.mismatch.is_some());
            sequence.advantage < 0.0 && distance > threshold
        });
        let token_loss = |(t, surrogate): (usize, SurrogateLoss)| {
            let is_low_entropy = high_entropy.is_some_and(|kept| kept.drops(sequence.entropy(t)));
            let is_dropped = is_low_entropy || is_off_policy == Some(true);
            let policy = if is_dropped { Dual::default() } else { surrogate.loss };
            let kl = sequence.kl(t, ratios[t], &config.kl);
            let penalty = config.kl.penalty(kl); // β · KL
            TokenLoss {
                surrogate,
                is_low_entropy,
                kl,
                policy: policy * weight,
                kl_penalty: penalty * weight,
                total: (policy + penalty) * weight,
            }
        };
        let losses: Vec<TokenLoss> = surrogates.into_iter().enumerate().map(token_loss).collect();
        terms.push(&sequence, &ratios, sampling, is_off_policy, &losses, config);
    }
    let bonus = batch.entropy_bonus(totals);
    if let Some(bonus) = bonus {
        terms.loss -= bonus * terms.kept_entropies();
    }
    terms
}
