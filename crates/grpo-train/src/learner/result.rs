//! The result of learning from the samples of a step.

use grpo_core::TokenStatistics;
use grpo_model::WeightsDigest;
use grpo_run::LedgerUpdate;

use crate::CombinedTerms;
use crate::probe::LearnTimes;

/// The result of learning from the samples of a step.
#[derive(Clone, Debug)]
pub struct LearnResult {
    /// See [`grpo_core::Advantages::zero_std_share`].
    pub zero_std_share: f64,
    /// Mean KL penalty per completion; `None` unless it is part of the reward.
    pub reward_kl: Option<f64>,
    /// Coefficient of the KL penalty.
    pub kl_coef: f64,
    /// Steps since the reference last changed.
    pub reference_age: u64,
    /// Hash of the reference.
    pub reference: WeightsDigest,
    /// Whether a sampler mismatch was corrected; `None` if a mismatch ends the run.
    pub corrected: Option<bool>,
    /// The μ optimizer steps on the completions.
    pub updates: Vec<Update>,
    /// Optimizer steps on examples alone.
    pub supervised: Vec<SupervisedUpdate>,
    /// Terms of the combined loss, if configured.
    pub combined: Option<CombinedTerms>,
    /// Durations.
    pub times: LearnTimes,
}

/// The result of one optimizer step.
#[derive(Clone, Debug)]
pub struct Update {
    /// The minimised loss over all micro-batches.
    pub loss: f64,
    /// The unweighted GRPO loss; equal to `loss` without auxiliary losses.
    pub grpo_loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Coefficient of the entropy bonus, if there is one.
    pub entropy_coef: Option<f64>,
    /// Mean entropy of the tokens in the entropy bonus.
    pub entropy: f64,
    /// Sums over tokens.
    pub tokens: TokenStatistics,
    /// Ledger entry.
    pub ledger: LedgerUpdate,
}

/// An optimizer step on examples alone.
#[derive(Clone, Debug)]
pub struct SupervisedUpdate {
    /// Mean cross-entropy of its examples.
    pub loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Ledger entry.
    pub ledger: LedgerUpdate,
}

impl LearnResult {
    /// Returns the sums over tokens of all updates.
    pub fn tokens(&self) -> TokenStatistics {
        let mut tokens = TokenStatistics::default();
        self.updates.iter().for_each(|update| tokens.merge(&update.tokens));
        tokens
    }

    /// Returns the mean loss of the updates on completions.
    pub fn loss(&self) -> f64 {
        self.mean(|update| update.loss)
    }

    /// Returns the mean gradient norm before clipping over all optimizer steps.
    pub fn grad_norm(&self) -> f64 {
        let on_completions = self.updates.iter().map(|update| update.grad_norm);
        let supervised = self.supervised.iter().map(|update| update.grad_norm);
        let count = self.updates.len() + self.supervised.len();
        on_completions.chain(supervised).sum::<f64>() / count as f64
    }

    /// Returns the entropy coefficient of the last update and the mean GRPO loss without the bonus,
    /// or `None` without a bonus.
    pub fn entropy_bonus(&self) -> Option<(f64, f64)> {
        let coef = self.updates.last()?.entropy_coef?;
        let without = |update: &Update| {
            update.grpo_loss + update.entropy_coef.unwrap_or(0.0) * update.entropy
        };
        Some((coef, self.mean(without)))
    }

    fn mean(&self, of: impl Fn(&Update) -> f64) -> f64 {
        self.updates.iter().map(of).sum::<f64>() / self.updates.len() as f64
    }
}
