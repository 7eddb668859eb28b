//! Optimizer steps.

use std::ops::Range;
use std::time::Instant;

use grpo_core::{BatchTotals, HighEntropy, LossConfig, LossTerms, TokenStatistics};
use grpo_data::{Completion, Group};
use grpo_model::{Frozen, LanguageModel, weights_digest};
use grpo_run::{LedgerCompletion, LedgerUpdate};

use super::{FurtherUpdate, LearnResult, Learner, Update, completions};
use crate::distributed_gradients::DistributedGradients;
use crate::error::finite;
use crate::extension::{PolicyUpdate, StepExtension};
use crate::micro_batch_state::{ComparedMicroBatch, UpdateLoss};
use crate::probe::LearnTimes;
use crate::sampler_check::TRUNCATED;
use crate::supervised::{Cut, GradientSum};
use crate::{Optimizer, TrainError};

/// Loss and gradients, accumulated over all micro-batches.
pub(crate) struct Pass {
    /// Minimised loss.
    loss: f64,
    /// GRPO loss before weighting.
    grpo_loss: f64,
    policy_loss: f64,
    kl_penalty: f64,
    gradients: GradientSum,
    entropy_coef: Option<f64>,
    tokens: TokenStatistics,
    /// Whether the sampler mismatch exceeds the tolerance.
    pub(crate) is_above: bool,
    /// Loss terms for each micro-batch, if recording is enabled.
    recorded: Vec<LossTerms>,
}

/// Checks whether the sampler mismatch of the completions at these indices exceeds the tolerance, given
/// `log π_old` for each of their actions.
type IsAbove<'a> = &'a dyn Fn(Range<usize>, &[f64], &LossConfig) -> Result<bool, TrainError>;

impl<M: LanguageModel> Learner<M> {
    /// Computes the loss and gradients of all micro-batches. If a sampler mismatch is found in the
    /// first update, `loss` is replaced by a corrected loss for the rest of the step.
    pub(crate) fn gradients(
        &self,
        groups: &[Group],
        batches: &mut [ComparedMicroBatch<M>],
        loss: &mut LossConfig,
        times: &mut LearnTimes,
    ) -> Result<Pass, TrainError> {
        let started = Instant::now();
        let completions = completions(groups);
        let totals = self.totals(&completions, batches)?;
        let check = |places: Range<usize>, old: &[f64], loss: &LossConfig| {
            self.config.sampler_check.is_above(&completions[places], old, loss)
        };
        let mut pass = self.pass(batches, loss, &totals, &check)?;
        if pass.is_above && loss.mismatch.is_none() {
            // The policy hasn't changed yet, so the recorded π_old is still valid.
            loss.mismatch = Some(TRUNCATED);
            pass = self.pass(batches, loss, &totals, &check)?;
        }
        let recorded = batches.iter_mut().zip(pass.recorded.drain(..));
        recorded.for_each(|(batch, terms)| batch.record(terms));
        times.add(started.elapsed(), pass.gradients.backward());
        Ok(pass)
    }

    /// Returns the denominators of the loss, which must be computed over the whole batch.
    fn totals(
        &self,
        completions: &[&Completion],
        batches: &[ComparedMicroBatch<M>],
    ) -> Result<BatchTotals, TrainError> {
        let max_new_tokens = self.config.sampling.max_new_tokens;
        Ok(BatchTotals {
            sequences: completions.len(),
            tokens: completions.iter().map(|completion| completion.actions()).sum(),
            max_completion_length: max_new_tokens.saturating_mul(self.max_turns),
            high_entropy: self.high_entropy(batches)?,
        })
    }

    /// Updates the policy with replayed completions. Their advantages are relative to the completions that
    /// were sampled in the step. No sampler mismatch is computed for them.
    ///
    /// # Errors
    /// Returns an error if a loss or gradient is not finite.
    pub fn replay(
        &mut self,
        groups: &mut [Group],
        sampled: &LearnResult,
        learning_rate: f64,
    ) -> Result<Update, TrainError> {
        let batches = self.micro_batches(groups)?;
        // A controller may have changed the coefficient since the others were compared.
        let mut loss = self.loss();
        loss.kl.coef = sampled.kl_coef;
        let mut batches = self.compare_with(&sampled.objectives, groups, batches, loss.kl)?;
        let completions = completions(groups);
        let totals = self.totals(&completions, &batches)?;
        let pass = self.pass(&mut batches, &loss, &totals, &|_, _, _| Ok(false))?;
        let replayed = LedgerUpdate::replayed(completions.iter().map(|of| of.action_ids()));
        let mut update = self.apply(pass, Vec::new(), learning_rate)?;
        update.ledger.replayed = Some(replayed);
        Ok(update)
    }

    fn pass(
        &self,
        batches: &mut [ComparedMicroBatch<M>],
        config: &LossConfig,
        totals: &BatchTotals,
        is_above: IsAbove<'_>,
    ) -> Result<Pass, TrainError> {
        let scheduled = self.coef_factors.entropy;
        let entropy_coef = self.progress.entropy_bonus.map(|bonus| bonus.coef() * scheduled);
        let checkpointing = self.config.train.activation_checkpointing;
        let update =
            UpdateLoss { config, totals, entropy_coef: entropy_coef.unwrap_or(0.0), checkpointing };
        let policy = self.policy();
        let mut pass = Pass {
            loss: 0.0,
            grpo_loss: 0.0,
            policy_loss: 0.0,
            kl_penalty: 0.0,
            gradients: GradientSum::default(),
            entropy_coef,
            tokens: TokenStatistics::default(),
            is_above: false,
            recorded: Vec::new(),
        };
        let (mut gradients, mut terms) = (DistributedGradients::new(&self.ranks), Vec::new());
        // Each rank computes one micro-batch of a round.
        for round in batches.chunks_mut(self.ranks.count()) {
            if let Some(batch) = round.get_mut(self.ranks.rank()) {
                let (forward, output) = batch.loss(policy, &self.reference, update);
                gradients.compute(forward, output.loss * self.grpo_weight, policy);
                terms.push(output.terms);
            }
            gradients.add_round(policy)?;
        }
        pass.gradients = gradients.finish(policy)?;
        for (batch, terms) in batches.iter_mut().zip(self.ranks.interleave(terms)?) {
            pass.is_above |= is_above(batch.places(), batch.old_logprobs(&terms), config)?;
            pass.grpo_loss += finite(terms.loss)?;
            pass.policy_loss += terms.policy_loss;
            pass.kl_penalty += terms.kl_penalty;
            pass.tokens.add(&terms);
            pass.recorded.extend(self.is_recording.then_some(terms));
        }
        pass.loss = pass.grpo_loss;
        Ok(pass)
    }

    /// Performs an optimizer step that uses the completions of a step.
    pub(crate) fn update(
        &mut self,
        pass: Pass,
        completions: Vec<LedgerCompletion>,
        learning_rate: f64,
    ) -> Result<Update, TrainError> {
        let update = self.apply(pass, completions, learning_rate)?;
        if let Some(bonus) = &mut self.progress.entropy_bonus {
            bonus.observe(update.tokens.kept_entropy().unwrap_or(0.0));
        }
        Ok(update)
    }

    fn apply(
        &mut self,
        pass: Pass,
        completions: Vec<LedgerCompletion>,
        learning_rate: f64,
    ) -> Result<Update, TrainError> {
        let Pass { loss, policy_loss, kl_penalty, gradients, entropy_coef, tokens, .. } = pass;
        let (grad_norm, ledger) = self.move_by(gradients, completions, learning_rate)?;
        Ok(Update { loss, policy_loss, kl_penalty, grad_norm, entropy_coef, tokens, ledger })
    }

    /// Adds the auxiliary loss of an extension, if one has it.
    pub(crate) fn add_auxiliary(
        &self,
        extensions: &mut [Box<dyn StepExtension<M>>],
        groups: &[Group],
        pass: &mut Pass,
        times: &mut LearnTimes,
    ) -> Result<(), TrainError> {
        let mut losses = extensions.iter_mut().filter_map(|extension| extension.auxiliary_loss());
        let Some(auxiliary) = losses.next() else { return Ok(()) };
        let (started, before) = (Instant::now(), pass.gradients.backward());
        pass.loss = auxiliary.add(&mut PolicyUpdate {
            policy: self.policy(),
            version: self.version(),
            groups,
            grpo_loss: pass.grpo_loss,
            cut: self.cut(),
            gradients: &mut pass.gradients,
        })?;
        times.add(started.elapsed(), pass.gradients.backward() - before);
        Ok(())
    }

    /// Performs an optimizer step with gradients of an extension, e.g. of examples.
    ///
    /// # Errors
    /// Returns an error if a gradient is not finite. The policy is then unchanged.
    pub fn update_by(
        &mut self,
        gradients: GradientSum,
        learning_rate: f64,
    ) -> Result<FurtherUpdate, TrainError> {
        let (grad_norm, ledger) = self.move_by(gradients, Vec::new(), learning_rate)?;
        Ok(FurtherUpdate { grad_norm: Some(grad_norm), ledger })
    }

    /// Performs an optimizer step. Returns the gradient norm before clipping and the ledger entry.
    fn move_by(
        &mut self,
        gradients: GradientSum,
        completions: Vec<LedgerCompletion>,
        learning_rate: f64,
    ) -> Result<(f64, LedgerUpdate), TrainError> {
        let admitted = Optimizer::admit(self.policy(), gradients.finish())?;
        let grad_norm = admitted.norm;
        let policy = self.policy.take();
        self.policy = policy.map(|policy| self.optimizer.apply(policy, admitted, learning_rate));
        self.progress.policy_version += 1;
        let weights = weights_digest(self.policy()).into();
        let version = self.version();
        let replayed = None;
        Ok((grad_norm, LedgerUpdate { version, weights, learning_rate, completions, replayed }))
    }

    /// Returns how examples are split into micro-batches.
    pub fn cut(&self) -> Cut {
        let train = &self.config.train;
        let tokens = Some(train.micro_batch_tokens);
        Cut { tokens, checkpointing: train.activation_checkpointing }
    }

    /// Returns the high-entropy mask, whose threshold is computed over all micro-batches. This
    /// requires an additional forward pass.
    fn high_entropy(
        &self,
        batches: &[ComparedMicroBatch<M>],
    ) -> Result<Option<HighEntropy>, TrainError> {
        let Some(share) = self.loss.high_entropy_share else { return Ok(None) };
        let policy = Frozen::snapshot(self.policy());
        let of_batch = |index: usize| batches[index].entropies(&policy);
        let entropies = self.ranks.map(batches.len(), of_batch)?.concat();
        if let Some(&value) = entropies.iter().find(|entropy| !entropy.is_finite()) {
            return Err(TrainError::Diverged { what: "entropy", value });
        }
        Ok(Some(HighEntropy::of(entropies, share)))
    }
}
