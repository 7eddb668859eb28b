//! A micro-batch and the numbers about it that stay as they are during a step.

use burn::tensor::{Tensor, TensorData};
use grpo_core::{
    BatchTotals, HostTokens, KlEstimator, LossConfig, LossInputs, TokenStatistics, grpo_loss,
    sequence_kl,
};
use grpo_data::Completion;
use grpo_model::{Forward, Frozen, LanguageModel};

use crate::collate::MicroBatch;
use crate::token_record::{TokenRecord, UpdateRecord, fold};
use crate::{SamplerCheck, TrainError};

/// A micro-batch with its constants; log-probabilities are of actions, `[n]`.
pub(crate) struct Frame<'a> {
    micro: MicroBatch<'a>,
    /// What the sampler recorded.
    sampling: Vec<f64>,
    /// `log π_ref`.
    reference: Vec<f64>,
    /// `log π_θ` of the first update, which is `log π_old`.
    old: Option<Vec<f64>>,
    /// Â of each completion.
    advantages: Vec<f64>,
    /// Whether something scored each completion.
    is_scored: Vec<bool>,
    /// What the last [`Self::loss`] computed for each token, where that is wanted.
    last: Option<UpdateRecord>,
    /// The same of the updates that were made.
    updates: Vec<UpdateRecord>,
}

/// What a loss is, for all micro-batches of an update.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) config: &'a LossConfig,
    /// Of the whole batch.
    pub(crate) totals: &'a BatchTotals,
    pub(crate) entropy_coef: f64,
    /// Whether what is computed for each token is kept.
    pub(crate) is_recorded: bool,
}

impl<'a> Frame<'a> {
    pub(crate) fn new<M: LanguageModel>(micro: MicroBatch<'a>, reference: &Frozen<M>) -> Self {
        let reference = host(micro.score_frozen(reference).logprobs);
        Self {
            sampling: micro.sampling_logprobs(),
            micro,
            reference,
            old: None,
            advantages: vec![],
            is_scored: vec![],
            last: None,
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

    /// Picks those of its completions from the advantages of the step, and whether something scored them.
    pub(crate) fn set_advantages(&mut self, of_step: &[f64], is_scored: &[bool]) {
        self.advantages = self.micro.places.iter().map(|&place| of_step[place]).collect();
        self.is_scored = self.micro.places.iter().map(|&place| is_scored[place]).collect();
    }

    /// Keeps what the last [`Self::loss`] recorded: the policy moves by it.
    pub(crate) fn keep_record(&mut self) {
        self.updates.extend(self.last.take());
    }

    /// What was kept of each completion, in their order; nothing where nothing was.
    pub(crate) fn token_records(&self) -> Vec<TokenRecord> {
        let lengths = self.micro.completions.iter().map(|completion| completion.actions());
        fold(&self.updates, &self.reference, lengths)
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

    /// This micro-batch's part of the loss, `[1]`, made of the `hidden` states of [`MicroBatch::forward`]; adds its
    /// tokens to `statistics`.
    pub(crate) fn loss<M: LanguageModel>(
        &mut self,
        policy: &M,
        hidden: &Tensor<2>,
        reference: &Frozen<M>,
        terms: Terms<'_>,
        statistics: &mut TokenStatistics,
    ) -> Tensor<1> {
        let Terms { config, totals, entropy_coef, is_recorded } = terms;
        let micro = &self.micro;
        let (scores, exact_kl) = match config.kl.estimator {
            KlEstimator::Exact => {
                let (scores, kl) = micro.score_against(policy, hidden, reference);
                (scores, Some(kl))
            }
            _ => (micro.score_policy(policy, hidden), None), // log π_θ
        };
        let logprobs = host(scores.logprobs.clone());
        let spread = |values: &[f64]| micro.spread_host(values);
        let of_host = [&logprobs, &self.reference, &self.sampling].map(|values| spread(values));
        let old_of_host = self.old.as_deref().map(spread);
        let kl_of_host = exact_kl.clone().map(|kl| spread(&host(kl)));
        let tokens = HostTokens {
            logprobs: &of_host[0],
            old_logprobs: old_of_host.as_deref(),
            ref_logprobs: Some(&of_host[1]),
            sampling_logprobs: Some(&of_host[2]),
            exact_kl: kl_of_host.as_deref(),
            entropies: &spread(&host(scores.entropies.clone())),
            mask: &micro.mask,
            advantages: &self.advantages,
        };
        statistics.add(&tokens, config, totals);
        let device = policy.device().inner();
        let constant = |values: &[f64]| -> Tensor<2> {
            let values: Vec<f32> = spread(values).into_iter().map(|value| value as f32).collect();
            Tensor::from_data(TensorData::new(values, micro.shape()), &device)
        };
        let advantages: Vec<f32> = self.advantages.iter().map(|&a| a as f32).collect();
        let advantages = TensorData::new(advantages, [micro.shape()[0], 1]);
        let inputs = LossInputs {
            logprobs: micro.spread(scores.logprobs),
            mask: micro.mask_tensor(&device),
            advantages: Tensor::from_data(advantages, &device),
            old_logprobs: self.old.as_deref().map(constant),
            ref_logprobs: Some(constant(&self.reference)),
            sampling_logprobs: Some(constant(&self.sampling)),
            exact_kl: exact_kl.map(|kl| micro.spread(kl)),
            entropies: config.needs_entropies().then(|| micro.spread(scores.entropies)),
            entropy_coef,
        };
        self.last = is_recorded.then(|| {
            let (is_scored, device) = (&self.is_scored, policy.device());
            UpdateRecord::of(&tokens, is_scored, &inputs, micro.actions(), config, totals, &device)
        });
        self.old.get_or_insert(logprobs);
        grpo_loss(inputs, config, totals)
    }
}

fn host(tensor: Tensor<1>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
