//! A micro-batch along with the values that stay constant during a step.

use std::ops::Range;

use burn::tensor::Tensor;
use grpo_core::{
    BatchTotals, KlEstimator, LossConfig, LossInputs, LossOutput, LossTerms, grpo_loss, sequence_kl,
};
use grpo_data::{Completion, Sample, TokenTrace};
use grpo_model::{Forward, Frozen, LanguageModel};

use crate::collate::MicroBatch;
use crate::token_trace::token_traces;
use crate::{SamplerCheck, TrainError};

/// State of a micro-batch. Log-probabilities have the shape `[n]`, one per action.
pub(crate) struct MicroBatchState {
    micro: MicroBatch,
    /// `log π_ref`.
    reference: Vec<f64>,
    /// `log π_old`, i.e. `log π_θ` in the first update.
    old: Option<Vec<f64>>,
    /// Advantage for each completion.
    advantages: Vec<f64>,
    /// Whether each completion is scored.
    is_scored: Vec<bool>,
    /// Loss terms for each update, if recording is enabled.
    updates: Vec<LossTerms>,
}

/// Loss settings for one update, shared by all micro-batches.
#[derive(Clone, Copy)]
pub(crate) struct UpdateLoss<'a> {
    pub(crate) config: &'a LossConfig,
    /// Totals over the whole batch.
    pub(crate) totals: &'a BatchTotals,
    pub(crate) entropy_coef: f64,
}

impl MicroBatchState {
    pub(crate) fn new<M: LanguageModel>(micro: MicroBatch, reference: &Frozen<M>) -> Self {
        let reference = host(micro.score_frozen(reference).logprobs);
        Self { micro, reference, old: None, advantages: vec![], is_scored: vec![], updates: vec![] }
    }

    /// Returns the range of completion indices within the step.
    pub(crate) fn places(&self) -> Range<usize> {
        self.micro.places.clone()
    }

    /// Runs the policy on this micro-batch. See [`MicroBatch::forward`].
    pub(crate) fn forward<M: LanguageModel>(&self, policy: &M, checkpointing: bool) -> Forward<M> {
        self.micro.forward(policy, checkpointing)
    }

    /// Copies the advantages and scored flags from the samples in this step.
    pub(crate) fn set_advantages(&mut self, samples: &[&Sample]) {
        let own = &samples[self.places()];
        self.advantages = own.iter().map(|sample| sample.advantage).collect();
        self.is_scored = own.iter().map(|sample| sample.reward().is_some()).collect();
    }

    /// Records the loss terms of an update.
    pub(crate) fn record(&mut self, terms: LossTerms) {
        self.updates.push(terms);
    }

    /// Returns token traces for a loss with the given weight. Returns an empty vector if nothing
    /// was recorded.
    pub(crate) fn traces(&self, weight: f64) -> Vec<TokenTrace> {
        token_traces(&self.updates, &self.reference, &self.is_scored, weight)
    }

    /// Returns whether the sampler mismatch exceeds the tolerance. See [`SamplerCheck::is_above`].
    ///
    /// [`Self::loss`] must have been called before. `completions` contains all completions in the
    /// step.
    pub(crate) fn is_above(
        &self,
        completions: &[&Completion],
        check: &SamplerCheck,
        loss: &LossConfig,
    ) -> Result<bool, TrainError> {
        let trainer =
            self.old.as_ref().expect("the log-probabilities of the first update are stored");
        check.is_above(&completions[self.places()], trainer, loss)
    }

    /// Returns `Σ_t KL` for each completion. The sampling policy is scored by the trainer, so the
    /// KL is exactly 0 if it is equal to the reference.
    pub(crate) fn sequence_kl<M: LanguageModel>(
        &self,
        policy: &M,
        reference: &Frozen<M>,
        estimator: KlEstimator,
    ) -> Vec<f64> {
        let policy = Frozen::snapshot(policy);
        let exact = estimator.is_exact().then(|| host(self.micro.frozen_kl(&policy, reference)));
        let logprobs = host(self.micro.score_frozen(&policy).logprobs);
        let mut end = 0;
        let sequences = self.micro.sequences.chunk_by(|a, b| a == b);
        sequences
            .map(|actions| {
                let actions = end..end + actions.len();
                end = actions.end;
                let exact = exact.as_ref().map(|exact| &exact[actions.clone()]);
                let reference = &self.reference[actions.clone()];
                sequence_kl(estimator, &logprobs[actions], reference, exact)
            })
            .collect()
    }

    /// Computes the entropy of the policy for each action. It uses the same operations as
    /// [`Self::loss`], because the high-entropy mask compares both results.
    pub(crate) fn entropies<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        estimator: KlEstimator,
    ) -> Vec<f64> {
        host(match estimator.is_exact() {
            true => self.micro.score_frozen_logits(policy).entropies,
            false => self.micro.score_frozen(policy).entropies,
        })
    }

    /// Computes the loss from hidden states returned by [`MicroBatch::forward`].
    pub(crate) fn loss<M: LanguageModel>(
        &mut self,
        policy: &M,
        hidden: &Tensor<2>,
        reference: &Frozen<M>,
        loss: UpdateLoss<'_>,
    ) -> LossOutput {
        let (scores, exact_kl) = match loss.config.kl.estimator.is_exact() {
            true => {
                let (scores, kl) = self.micro.score_against(policy, hidden, reference);
                (scores, Some(kl))
            }
            false => (self.micro.score_policy(policy, hidden), None), // log π_θ
        };
        let inputs = LossInputs {
            logprobs: scores.logprobs,
            rows: &self.micro.sequences,
            advantages: &self.advantages,
            old_logprobs: self.old.as_deref(),
            ref_logprobs: Some(&self.reference),
            sampling_logprobs: Some(&self.micro.sampling_logprobs),
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
