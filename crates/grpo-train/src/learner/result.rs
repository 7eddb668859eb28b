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
    /// Mean over completions of the KL that their rewards lost; `None` unless it is part of the reward.
    pub reward_kl: Option<f64>,
    /// Coefficient of the KL penalty.
    pub kl_coef: f64,
    /// Steps before this one that had the same reference.
    pub reference_age: u64,
    /// Hash of the reference that the policy was held back by.
    pub reference: WeightsDigest,
    /// Whether the sampler was further from the trainer than it may be, so that its tokens were weighed; `None` if
    /// that ends the run.
    pub corrected: Option<bool>,
    /// The optimizer steps on the completions, μ of them.
    pub updates: Vec<Update>,
    /// Those after them that had examples alone.
    pub supervised: Vec<SupervisedUpdate>,
    /// The terms of a combined loss, if it is one.
    pub combined: Option<CombinedTerms>,
    /// Where the time went.
    pub times: LearnTimes,
}

/// The result of one optimizer step.
#[derive(Clone, Debug)]
pub struct Update {
    /// What was minimised, over all micro-batches.
    pub loss: f64,
    /// The part of it that is GRPO's, without its weight in a combined loss; all of it if nothing else is learned.
    pub grpo_loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// Coefficient of the entropy bonus, if there is one.
    pub entropy_coef: Option<f64>,
    /// Mean over the tokens that the entropy bonus is of.
    pub entropy: f64,
    /// Sums over tokens.
    pub tokens: TokenStatistics,
    /// What it used, and what the policy was after it.
    pub ledger: LedgerUpdate,
}

/// An optimizer step that no completion was part of.
#[derive(Clone, Debug)]
pub struct SupervisedUpdate {
    /// Mean cross-entropy of its examples.
    pub loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// What it used, and what the policy was after it.
    pub ledger: LedgerUpdate,
}

impl LearnResult {
    /// Sums over tokens of all updates.
    pub fn tokens(&self) -> TokenStatistics {
        let mut tokens = TokenStatistics::default();
        self.updates.iter().for_each(|update| tokens.merge(&update.tokens));
        tokens
    }

    /// Mean loss of the updates on the completions.
    pub fn loss(&self) -> f64 {
        self.mean(|update| update.loss)
    }

    /// Mean norm of the gradients before clipping, over all optimizer steps.
    pub fn grad_norm(&self) -> f64 {
        let on_completions = self.updates.iter().map(|update| update.grad_norm);
        let supervised = self.supervised.iter().map(|update| update.grad_norm);
        let count = self.updates.len() + self.supervised.len();
        on_completions.chain(supervised).sum::<f64>() / count as f64
    }

    /// Coefficient of the entropy bonus in the last update, and the mean loss of GRPO without the bonus; `None` if there
    /// is none.
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
