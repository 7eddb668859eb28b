//! A micro-batch and the numbers about it that stay as they are during a step.

use burn::tensor::Tensor;
use grpo_core::{
    BatchTotals, KlEstimator, LossConfig, LossInputs, LossOutput, LossTerms, grpo_loss, sequence_kl,
};
use grpo_data::Completion;
use grpo_model::{Forward, Frozen, LanguageModel};

use crate::collate::MicroBatch;
use crate::token_record::{TokenRecord, token_records};
use crate::{SamplerCheck, TrainError};

/// A micro-batch with its constants; log-probabilities are of actions, `[n]`.
pub(crate) struct MicroBatchState<'a> {
    micro: MicroBatch<'a>,
    /// What the sampler recorded.
    sampling: Vec<f64>,
    /// `log π_ref`.
    reference: Vec<f64>,
    /// `log π_θ` of the first update, which is `log π_old`.
    old: Option<Vec<f64>>,
    /// Â of each completion.
    advantages: Vec<f64>,
    /// Whether each completion has a reward.
    is_scored: Vec<bool>,
    /// What each update computed, if that is recorded.
    updates: Vec<LossTerms>,
}

/// What a loss is, for all micro-batches of an update.
#[derive(Clone, Copy)]
pub(crate) struct UpdateLoss<'a> {
    pub(crate) config: &'a LossConfig,
    /// Of the whole batch.
    pub(crate) totals: &'a BatchTotals,
    pub(crate) entropy_coef: f64,
}

impl<'a> MicroBatchState<'a> {
    pub(crate) fn new<M: LanguageModel>(micro: MicroBatch<'a>, reference: &Frozen<M>) -> Self {
        let reference = host(micro.score_frozen(reference).logprobs);
        Self {
            sampling: micro.sampling_logprobs(),
            micro,
            reference,
            old: None,
            advantages: vec![],
            is_scored: vec![],
            updates: vec![],
        }
    }

    /// What is in it.
    pub(crate) fn completions(&self) -> &[&'a Completion] {
        &self.micro.completions
    }

    /// See [`MicroBatch::forward`].
    pub(crate) fn forward<M: LanguageModel>(&self, policy: &M, checkpointing: bool) -> Forward<M> {
        self.micro.forward(policy, checkpointing)
    }

    /// Picks those of its completions from the advantages of the step, and whether they have a reward.
    pub(crate) fn set_advantages(&mut self, of_step: &[f64], is_scored: &[bool]) {
        self.advantages = self.micro.places.iter().map(|&place| of_step[place]).collect();
        self.is_scored = self.micro.places.iter().map(|&place| is_scored[place]).collect();
    }

    /// Keeps what an update computed.
    pub(crate) fn record(&mut self, terms: LossTerms) {
        self.updates.push(terms);
    }

    /// What was recorded of each completion, in their order; nothing where nothing was.
    pub(crate) fn token_records(&self) -> Vec<TokenRecord> {
        token_records(&self.updates, &self.reference, &self.is_scored)
    }

    /// See [`SamplerCheck::is_above`]; once there was a first [`Self::loss`].
    pub(crate) fn is_above(
        &self,
        check: &SamplerCheck,
        loss: &LossConfig,
    ) -> Result<bool, TrainError> {
        let trainer = self.old.as_ref().expect("the log-probabilities of the first update");
        check.is_above(&self.micro.completions, trainer, loss)
    }

    /// `Σ_t KL` of each completion, with its place in the step. `policy` is the one that sampled; its own
    /// scores count and not the sampler's, so that it is exactly 0 where the policy is the reference.
    pub(crate) fn sequence_kl<M: LanguageModel>(
        &self,
        policy: &M,
        reference: &Frozen<M>,
        estimator: KlEstimator,
    ) -> Vec<(usize, f64)> {
        let policy = Frozen::snapshot(policy);
        let exact = (estimator == KlEstimator::Exact)
            .then(|| host(self.micro.frozen_kl(&policy, reference)));
        let logprobs = host(self.micro.score_frozen(&policy).logprobs);
        let mut start = 0;
        let rows = self.micro.places.iter().zip(&self.micro.completions);
        rows.map(|(&place, completion)| {
            let actions = start..start + completion.actions();
            start = actions.end;
            let exact = exact.as_ref().map(|exact| &exact[actions.clone()]);
            let (logprobs, reference) = (&logprobs[actions.clone()], &self.reference[actions]);
            (place, sequence_kl(estimator, logprobs, reference, exact))
        })
        .collect()
    }

    /// Entropies of the policy at each action, by the same path as those of [`Self::loss`]: the high-entropy
    /// mask compares the two.
    pub(crate) fn entropies<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        estimator: KlEstimator,
    ) -> Vec<f64> {
        host(match estimator {
            KlEstimator::Exact => self.micro.score_frozen_logits(policy).entropies,
            _ => self.micro.score_frozen(policy).entropies,
        })
    }

    /// This micro-batch's part of the loss, made of the `hidden` states of [`MicroBatch::forward`].
    pub(crate) fn loss<M: LanguageModel>(
        &mut self,
        policy: &M,
        hidden: &Tensor<2>,
        reference: &Frozen<M>,
        loss: UpdateLoss<'_>,
    ) -> LossOutput {
        let (scores, exact_kl) = match loss.config.kl.estimator {
            KlEstimator::Exact => {
                let (scores, kl) = self.micro.score_against(policy, hidden, reference);
                (scores, Some(kl))
            }
            _ => (self.micro.score_policy(policy, hidden), None), // log π_θ
        };
        let inputs = LossInputs {
            logprobs: scores.logprobs,
            rows: &self.micro.sequences,
            advantages: &self.advantages,
            old_logprobs: self.old.as_deref(),
            ref_logprobs: Some(&self.reference),
            sampling_logprobs: Some(&self.sampling),
            exact_kl,
            entropies: Some(scores.entropies),
            entropy_coef: loss.entropy_coef,
        };
        let output = grpo_loss(&inputs, loss.config, loss.totals);
        self.old.get_or_insert_with(|| output.terms.tokens().map(|token| token.logprob).collect());
        output
    }
}

fn host(tensor: Tensor<1>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
