//! A micro-batch along with the values that stay constant during a step, first before and then after the
//! advantages are known.

use std::ops::Range;

use burn::tensor::Tensor;
use grpo_core::{
    BatchTotals, KlEstimator, LossConfig, LossInputs, LossOutput, LossTerms, grpo_loss, sequence_kl,
};
use grpo_data::{Sample, TokenTrace};
use grpo_logprob::Scores;
use grpo_model::{Forward, Frozen, LanguageModel};

use crate::collate::MicroBatch;
use crate::token_trace::token_traces;

/// A micro-batch whose advantages are not known yet. Log-probabilities have the shape `[n]`, one per
/// action.
pub(crate) struct MicroBatchState<M> {
    micro: MicroBatch,
    /// `log π_θ` if it was computed before the first update.
    scored: Option<PolicyScores<M>>,
    /// `log π_ref`, or `None` if this step does not measure the KL.
    reference: Option<Vec<f64>>,
}

/// A micro-batch with advantages, which the policy can learn from.
pub(crate) struct ComparedMicroBatch<M> {
    pub(crate) state: MicroBatchState<M>,
    /// Advantage for each completion.
    advantages: Vec<f64>,
    /// Whether each completion is scored.
    is_scored: Vec<bool>,
    /// `log π_old`, i.e. `log π_θ` in the first update.
    old: Option<Vec<f64>>,
    /// Loss terms for each update, if recording is enabled.
    updates: Vec<LossTerms>,
}

/// `log π_θ` with its graph.
struct PolicyScores<M> {
    forward: Forward<M>,
    scores: Scores,
    /// `[n]`, if the KL estimator requires it.
    exact_kl: Option<Tensor<1>>,
}

/// Loss settings for one update, shared by all micro-batches.
#[derive(Clone, Copy)]
pub(crate) struct UpdateLoss<'a> {
    pub(crate) config: &'a LossConfig,
    /// Totals over the whole batch.
    pub(crate) totals: &'a BatchTotals,
    pub(crate) entropy_coef: f64,
    pub(crate) checkpointing: bool,
}

impl<M> MicroBatchState<M> {
    /// Creates the state of a micro-batch from its `log π_ref`, if it was computed.
    pub(crate) fn new(micro: MicroBatch, reference: Option<Vec<f64>>) -> Self {
        Self { micro, reference, scored: None }
    }

    /// Adds the advantages. `samples` contains all samples in the step.
    pub(crate) fn compared(self, samples: &[&Sample]) -> ComparedMicroBatch<M> {
        let own = &samples[self.micro.places.clone()];
        ComparedMicroBatch {
            advantages: own.iter().map(|sample| sample.advantage).collect(),
            is_scored: own.iter().map(|sample| sample.reward().is_some()).collect(),
            old: None,
            updates: Vec::new(),
            state: self,
        }
    }
}

impl MicroBatch {
    /// Computes `log π_ref` for each action.
    pub(crate) fn reference_logprobs<M: LanguageModel>(&self, reference: &Frozen<M>) -> Vec<f64> {
        host(self.score_frozen(reference).logprobs)
    }
}

impl<M: LanguageModel> MicroBatchState<M> {
    /// Computes `log π_θ`, or returns what [`Self::sequence_kl`] has kept.
    fn policy_scores(
        &mut self,
        policy: &M,
        reference: &Frozen<M>,
        estimator: KlEstimator,
        checkpointing: bool,
    ) -> PolicyScores<M> {
        self.scored.take().unwrap_or_else(|| {
            let forward = self.micro.forward(policy, checkpointing);
            let scores = self.micro.score_policy(policy, &forward.hidden);
            let exact_kl = (estimator.is_exact() && self.reference.is_some())
                .then(|| self.micro.exact_kl(policy, &forward.hidden, reference));
            PolicyScores { forward, scores, exact_kl }
        })
    }

    /// Returns `Σ_t KL` for each completion. The sampling policy is scored by the trainer, so the
    /// KL is exactly 0 if it is equal to the reference. The first update uses the same graph, which
    /// remains in memory until then, unless it is discarded.
    pub(crate) fn sequence_kl(
        &mut self,
        policy: &M,
        reference: &Frozen<M>,
        estimator: KlEstimator,
        checkpointing: bool,
    ) -> Vec<f64> {
        let scored = self.policy_scores(policy, reference, estimator, checkpointing);
        let exact = scored.exact_kl.as_ref().map(|kl| host(kl.clone()));
        let reference =
            self.reference.as_deref().expect("a KL penalty in the reward requires a reference");
        let logprobs = host(scored.scores.logprobs.clone());
        self.scored = Some(scored);
        let mut end = 0;
        let sequences = self.micro.sequences.chunk_by(|a, b| a == b);
        sequences
            .map(|actions| {
                let actions = end..end + actions.len();
                end = actions.end;
                let exact = exact.as_ref().map(|exact| &exact[actions.clone()]);
                let reference = &reference[actions.clone()];
                sequence_kl(estimator, &logprobs[actions], reference, exact)
            })
            .collect()
    }

    /// See [`MicroBatch::known_tokens`].
    pub(crate) fn known_tokens(&self) -> [usize; 2] {
        self.micro.known_tokens()
    }

    /// Frees the graph that [`Self::sequence_kl`] has kept.
    pub(crate) fn discard_scores(&mut self) {
        self.scored = None;
    }
}

impl<M: LanguageModel> ComparedMicroBatch<M> {
    /// Returns the range of completion indices within the step.
    pub(crate) fn places(&self) -> Range<usize> {
        self.state.micro.places.clone()
    }

    /// Records the loss terms of an update.
    pub(crate) fn record(&mut self, terms: LossTerms) {
        self.updates.push(terms);
    }

    /// Returns token traces for a loss with the given weight. Returns an empty vector if nothing
    /// was recorded.
    pub(crate) fn traces(&self, weight: f64) -> Vec<TokenTrace> {
        let reference = self.state.reference.as_deref().unwrap_or_default();
        token_traces(&self.updates, reference, &self.is_scored, weight)
    }

    /// Forgets the activations of the rollout, because the policy has changed.
    pub(crate) fn forget_activations(&mut self) {
        self.state.micro.forget_activations();
    }

    /// Computes the entropy of the policy for each action. It uses the same operations as
    /// [`Self::loss`], because the high-entropy mask compares both results.
    pub(crate) fn entropies(&self, policy: &Frozen<M>) -> Vec<f64> {
        host(self.state.micro.score_frozen(policy).entropies)
    }

    /// Returns `log π_old`, which is that of the first update. `terms` are those of the current one.
    pub(crate) fn old_logprobs(&mut self, terms: &LossTerms) -> &[f64] {
        self.old.get_or_insert_with(|| terms.tokens().map(|token| token.logprob).collect())
    }

    /// Computes the loss and returns it with the forward pass.
    pub(crate) fn loss(
        &mut self,
        policy: &M,
        reference: &Frozen<M>,
        loss: UpdateLoss<'_>,
    ) -> (Forward<M>, LossOutput) {
        let estimator = loss.config.kl.estimator;
        let PolicyScores { forward, scores, exact_kl } =
            self.state.policy_scores(policy, reference, estimator, loss.checkpointing); // log π_θ
        let inputs = LossInputs {
            logprobs: scores.logprobs,
            rows: &self.state.micro.sequences,
            advantages: &self.advantages,
            old_logprobs: self.old.as_deref(),
            ref_logprobs: self.state.reference.as_deref(),
            sampling_logprobs: self.state.micro.sampling_logprobs.as_deref(),
            exact_kl,
            entropies: Some(scores.entropies),
            entropy_coef: loss.entropy_coef,
        };
        (forward, grpo_loss(&inputs, loss.config, loss.totals))
    }
}

fn host(tensor: Tensor<1>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
