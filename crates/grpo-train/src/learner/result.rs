//! Result of learning from the samples in one step.

use grpo_core::TokenStatistics;
use grpo_data::statistics::mean;
use grpo_model::WeightsDigest;
use grpo_run::LedgerUpdate;

use crate::probe::LearnTimes;

/// Result of learning from the samples in one step.
#[derive(Clone, Debug)]
pub struct LearnResult {
    /// See [`grpo_core::Advantages::zero_std_share`].
    pub zero_std_share: f64,
    /// Mean KL penalty per completion, or `None` if the penalty is not part of the reward.
    pub reward_kl: Option<f64>,
    /// For each completion, what its advantage was computed from: the reward plus the bonus, minus the KL
    /// penalty if it is part of the reward. See [`grpo_core::Advantages::objectives`].
    pub objectives: Vec<Option<f64>>,
    /// KL coefficient.
    pub kl_coef: f64,
    /// Number of steps since the last reference update.
    pub reference_age: u64,
    /// Hash of the reference weights.
    pub reference: WeightsDigest,
    /// Whether a sampler mismatch was corrected, or `None` if mismatches are treated as errors.
    pub corrected: Option<bool>,
    /// The μ optimizer steps that used the completions.
    pub updates: Vec<Update>,
    /// Optimizer steps of extensions.
    pub further: Vec<FurtherUpdate>,
    /// Fraction of the tokens whose activations the first update took from the rollout.
    pub reused: f64,
    /// Time spent in each part of the update.
    pub times: LearnTimes,
}

/// Result of one optimizer step.
#[derive(Clone, Debug)]
pub struct Update {
    /// Minimised loss, summed over all micro-batches.
    pub loss: f64,
    /// Surrogate part of the GRPO loss.
    pub policy_loss: f64,
    /// KL part of the GRPO loss.
    pub kl_penalty: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Entropy bonus coefficient, if enabled.
    pub entropy_coef: Option<f64>,
    /// Token statistics.
    pub tokens: TokenStatistics,
    /// Ledger entry.
    pub ledger: LedgerUpdate,
}

/// An optimizer step of an extension.
#[derive(Clone, Debug)]
pub struct FurtherUpdate {
    /// Gradient norm before clipping if [`LearnResult::grad_norm`] includes it, or `None` if the extension
    /// has a metric of its own for it.
    pub grad_norm: Option<f64>,
    /// Ledger entry.
    pub ledger: LedgerUpdate,
}

impl LearnResult {
    /// Returns token statistics aggregated over all updates.
    pub fn tokens(&self) -> TokenStatistics {
        let mut tokens = TokenStatistics::default();
        self.updates.iter().for_each(|update| tokens.merge(&update.tokens));
        tokens
    }

    /// Returns the mean loss over updates that used completions.
    pub fn loss(&self) -> f64 {
        self.mean(|update| update.loss)
    }

    /// Returns the gradient norm before clipping, averaged over all optimizer steps.
    pub fn grad_norm(&self) -> f64 {
        let on_completions = self.updates.iter().map(|update| update.grad_norm);
        let further = self.further.iter().filter_map(|update| update.grad_norm);
        mean(&on_completions.chain(further).collect::<Vec<f64>>())
    }

    /// Returns the mean surrogate part of the GRPO loss.
    pub fn policy_loss(&self) -> f64 {
        self.mean(|update| update.policy_loss)
    }

    /// Returns the mean KL part of the GRPO loss.
    pub fn kl_penalty(&self) -> f64 {
        self.mean(|update| update.kl_penalty)
    }

    /// Returns the entropy coefficient of the last update, if there is an entropy bonus.
    pub fn entropy_coef(&self) -> Option<f64> {
        self.updates.last()?.entropy_coef
    }

    fn mean(&self, of: impl Fn(&Update) -> f64) -> f64 {
        self.updates.iter().map(of).sum::<f64>() / self.updates.len() as f64
    }
}
