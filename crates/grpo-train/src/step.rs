//! A single GRPO step: rollout, rewards, advantages, policy updates, reference update.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_data::{Group, Prompt};
use grpo_model::{LanguageModel, WeightsDigest};
use grpo_rewards::{ExternalCalls, RewardRunner};
use grpo_rollout::{Decode, Engine};
use grpo_run::{LedgerRollout, LedgerStep, ReferenceChange};
use grpo_runtime::awake;

use crate::extension::{
    self, Added, Snapshot, StepExtension, StepExtensions, StepSampler, StepScorer, UpdatedStep,
};
use crate::learner::{Compared, LearnResult, Learner};
use crate::micro_batch_state::{ComparedMicroBatch, MicroBatchState};
use crate::probe::{LearnTimes, Probe, entries, timed};
use crate::step_report::{RewardNames, StepReport};
use crate::{GrpoConfig, TrainError};

/// Everything needed to perform training steps.
pub struct Grpo<M> {
    pub(crate) learner: Learner<M>,
    pub(crate) sampler: Arc<dyn Engine<M>>,
    pub(crate) rewards: RewardRunner,
    pub(crate) extensions: StepExtensions<M>,
    pub(crate) decode: Decode,
    /// Number of prompts in one epoch.
    pub(crate) epoch: Option<usize>,
    pub(crate) config: GrpoConfig,
    pub(crate) seed: u64,
    /// Factor applied to learning rates. Less than 1 after a roll-back.
    pub(crate) learning_rate_factor: f64,
    /// Set if the run has been interrupted.
    pub(crate) interrupt: Arc<AtomicBool>,
    /// Hash of the base model, if the policy is an adapter.
    pub(crate) base: Option<WeightsDigest>,
}

impl<M: LanguageModel> Grpo<M> {
    /// Samples groups of completions for `prompts`, scores them, and updates the policy. No samples
    /// are kept for later steps.
    ///
    /// # Errors
    /// Returns an error if there are no prompts, if rewards fail or are not finite, if the sampler and the trainer disagree,
    /// or if a loss or gradient is not finite. It also returns an error if the run is interrupted
    /// before the policy is updated. In all cases, the policy has the weights of the last completed
    /// update. If it was not updated, the extensions are as before the step, which can be repeated.
    pub fn step(&mut self, prompts: &[Prompt], step: u32) -> Result<StepReport, TrainError> {
        if prompts.is_empty() {
            return Err(TrainError::Empty);
        }
        let (marks, version) = (extension::marks(&self.extensions), self.learner.version());
        let report = self.perform(prompts, step);
        if report.is_err() && self.learner.version() == version {
            extension::undo(&mut self.extensions, marks);
        }
        report
    }

    fn perform(&mut self, prompts: &[Prompt], step: u32) -> Result<StepReport, TrainError> {
        let mut probe = Probe::start();
        // o_i ~ π_old(· | q), with their log-probabilities
        let (mut groups, rollout) = self.rollout(prompts, step)?;
        probe.phase_done();
        // r_i
        let mut added = self.score(&mut groups, prompts, step)?;
        probe.phase_done();
        // Â_i, then μ updates of π_θ
        let learning_rate = self.learning_rate_factor * self.config.learning_rate(step);
        self.learner.schedule(step);
        let extensions = &mut self.extensions;
        let learn = || self.learner.learn_with(&mut groups, learning_rate, extensions);
        let mut learned = awake(learn)?;
        // more updates of π_θ, e.g. with the best o so far
        for extension in &mut self.extensions {
            let (learner, learned, added) = (&mut self.learner, &mut learned, &mut added);
            let updated =
                &mut UpdatedStep { step, prompts, learner, learned, learning_rate, added };
            extension.after_updates(updated)?;
        }
        // π_ref
        let reference_updated = self.update_reference(step)?;
        let Added { metrics: extensions, groups: further_groups, calls } = added;
        let extensions = extension::declared(&self.extensions, &extensions)?;
        let ledger = self.ledger(step, rollout, &learned, reference_updated);
        let observed = probe.finish(ExternalCalls::merged(calls), ledger);
        let names = self.reward_names();
        Ok(StepReport {
            step,
            groups,
            extensions,
            further_groups,
            names,
            learned,
            learning_rate,
            reference_updated,
            observed,
        })
    }
}

impl<M: LanguageModel> Learner<M> {
    /// Computes advantages for scored samples and updates the policy. No samples are kept for later
    /// steps.
    ///
    /// # Errors
    /// Returns an error if there are no completions, if the advantages cannot be computed, if the
    /// sampler and the trainer disagree, or if a loss or gradient is not finite. In all cases, the policy has the weights
    /// of the last completed update.
    pub fn learn(
        &mut self,
        groups: &mut [Group],
        learning_rate: f64,
    ) -> Result<LearnResult, TrainError> {
        self.learn_with(groups, learning_rate, &mut [])
    }

    /// Like [`Self::learn`], with the auxiliary loss of an extension.
    fn learn_with(
        &mut self,
        groups: &mut [Group],
        learning_rate: f64,
        extensions: &mut [Box<dyn StepExtension<M>>],
    ) -> Result<LearnResult, TrainError> {
        if groups.iter().all(|group| group.samples.is_empty()) {
            return Err(TrainError::Empty);
        }
        self.refuse_unsampled(groups)?;
        let mut times = LearnTimes::default();
        // log π_ref for each action, in micro-batches that fit into memory
        let batches = timed(&mut times.reference, || self.micro_batches(groups))?;
        let reused = reused(&batches);
        // Â_i = (r_i − mean) / std within each group
        let compare = || self.compare_groups(groups, batches);
        let Compared { mut batches, zero_std_share, reward_kl, objectives } =
            timed(&mut times.forward, compare)?;
        let mut loss = self.loss();
        let (mut updates, mut is_above) = (Vec::new(), false);
        for _update in 0..self.config().train.updates_per_rollout {
            // L(θ) and ∇L(θ), summed over micro-batches
            let mut pass = self.gradients(groups, &mut batches, &mut loss, &mut times)?;
            self.add_auxiliary(extensions, groups, &mut pass, &mut times)?;
            is_above |= pass.is_above;
            // θ ← AdamW(θ, ∇L)
            let completions = entries(groups);
            let update = || self.update(pass, completions, learning_rate);
            updates.push(timed(&mut times.optimizer, update)?);
            batches.iter_mut().for_each(ComparedMicroBatch::forget_activations);
        }
        self.set_traces(groups, &batches);
        let result = LearnResult {
            zero_std_share,
            reward_kl,
            objectives,
            kl_coef: loss.kl.coef,
            reference_age: self.reference_age(),
            reference: self.reference_digest(),
            corrected: self.corrects().then_some(is_above),
            updates,
            further: Vec::new(),
            reused,
            times,
        };
        self.step_done(&result, groups);
        Ok(result)
    }
}

/// Returns the fraction of tokens whose activations are known from the rollout.
fn reused<M: LanguageModel>(batches: &[MicroBatchState<M>]) -> f64 {
    let counts = batches.iter().map(MicroBatchState::known_tokens);
    let [all, known] = counts.fold([0, 0], |[a, b], [all, known]| [a + all, b + known]);
    known as f64 / all.max(1) as f64
}

impl<M: LanguageModel> Grpo<M> {
    /// Enables or disables token traces. See [`Learner::set_recording`].
    pub fn set_recording(&mut self, is_recording: bool) {
        self.learner.set_recording(is_recording);
    }

    /// Returns the weight α of the policy in the reference update after `step`, counted from 0.
    /// Returns `None` if no update is due.
    pub fn reference_due(&self, step: u32) -> Option<f64> {
        self.config.reference.due(step + 1, self.config.train.prompts_per_step, self.epoch)
    }

    /// Returns the names of reward terms and components.
    pub fn reward_names(&self) -> RewardNames {
        let mut terms = self.rewards.term_names();
        if let Some(bonus) = extension::with_bonus(&self.extensions) {
            if terms.is_empty() {
                terms.push("reward".into());
            }
            terms.push(bonus.into());
        }
        let bonus = extension::bonus_metrics(&self.extensions);
        RewardNames { terms, parts: self.rewards.parts(), bonus }
    }

    /// Samples completions, unless an extension does. The policy snapshot is dropped before returning, so
    /// that the optimizer can update the policy in place.
    fn rollout(
        &mut self,
        prompts: &[Prompt],
        step: u32,
    ) -> Result<(Vec<Group>, LedgerRollout), TrainError> {
        self.refuse_interrupt()?;
        let group_size = self.config.train.group_size;
        let (extensions, sampler) = self.sampler_of(prompts, step);
        for extension in extensions {
            if let Some(sampled) = extension.rollout(&sampler)? {
                let (policy_version, weights) = (sampled.policy_version, sampled.weights.clone());
                let groups = sampled.into_groups(prompts, group_size).map_err(|fault| {
                    let source = format!("it sampled {fault}").into();
                    TrainError::Extension { name: extension.name(), source }
                })?;
                let completions = entries(&groups);
                return Ok((groups, LedgerRollout { policy_version, weights, completions }));
            }
        }
        let Snapshot { policy, weights, key } = sampler.snapshot();
        let groups = self.sampler.sample(&policy, prompts, key)?;
        self.refuse_interrupt()?;
        self.refuse_other_weights(weights, step)?;
        let (policy_version, completions) = (key.policy_version, entries(&groups));
        Ok((groups, LedgerRollout { policy_version, weights: weights.into(), completions }))
    }

    /// Returns the prompts of the `next` step, and tells the extensions those of this step and of as many
    /// after it as one of them has to know. Prompts of later steps are kept in `upcoming`.
    pub(crate) fn look_ahead(
        &mut self,
        next: u32,
        upcoming: &mut VecDeque<Vec<Prompt>>,
        prompts: &mut impl FnMut(u32) -> Result<Vec<Prompt>, TrainError>,
    ) -> Result<Vec<Prompt>, TrainError> {
        let ahead = self.extensions.iter().map(|extension| extension.looks_ahead()).max();
        let last = next.saturating_add(ahead.unwrap_or(0));
        for step in
            next + upcoming.len() as u32..=last.min(self.config.train.steps.max(next + 1) - 1)
        {
            let of_step = prompts(step)?;
            let (extensions, sampler) = self.sampler_of(&of_step, step);
            extensions.iter_mut().for_each(|extension| extension.upcoming(&sampler));
            upcoming.push_back(of_step);
        }
        Ok(upcoming.pop_front().expect("the next step is among them"))
    }

    /// Returns the extensions and what they can sample a step with.
    fn sampler_of<'a>(
        &'a mut self,
        prompts: &'a [Prompt],
        step: u32,
    ) -> (&'a mut StepExtensions<M>, StepSampler<'a, M>) {
        let sampler = StepSampler {
            learner: &self.learner,
            engine: &self.sampler,
            weights: self.config.sampling.weights,
            seed: self.seed,
            interrupt: &self.interrupt,
            step,
            prompts,
        };
        (&mut self.extensions, sampler)
    }

    /// Computes the reward for each sample and calls the extensions. Returns what they add.
    fn score(
        &mut self,
        groups: &mut [Group],
        prompts: &[Prompt],
        step: u32,
    ) -> Result<Added, TrainError> {
        let scorer = StepScorer {
            rewards: &self.rewards,
            decode: &self.decode,
            ranks: self.learner.ranks(),
            interrupt: &self.interrupt,
            step: step + 1,
            max_failed: self.config.train.max_failed_rewards,
        };
        extension::score(&mut self.extensions, prompts, groups, &scorer)
    }

    fn update_reference(&mut self, step: u32) -> Result<Option<f64>, TrainError> {
        let mix = self.reference_due(step);
        mix.map_or(Ok(()), |mix| self.learner.update_reference(mix))?;
        Ok(mix)
    }

    fn ledger(
        &self,
        step: u32,
        rollout: LedgerRollout,
        learned: &LearnResult,
        reference_updated: Option<f64>,
    ) -> LedgerStep {
        let on_completions = learned.updates.iter().map(|update| &update.ledger);
        let further = learned.further.iter().map(|update| &update.ledger);
        LedgerStep {
            step: u64::from(step) + 1,
            rollout,
            updates: on_completions.chain(further).cloned().collect(),
            reference: learned.reference.into(),
            reference_changed: reference_updated.map(|mix| ReferenceChange {
                mix,
                weights: self.learner.reference_digest().into(),
            }),
            base: self.base.map(String::from),
            recorded: None,
            previous: None,
        }
    }

    /// Checks that all ranks have the same policy. A rank with another kind of processor can round
    /// differently.
    fn refuse_other_weights(&self, own: WeightsDigest, step: u32) -> Result<(), TrainError> {
        let ranks = self.learner.ranks();
        if ranks.is_alone() {
            return Ok(());
        }
        let digests = ranks.gather(String::from(own))?;
        match digests.iter().position(|digest| *digest != digests[0]) {
            Some(rank) => Err(TrainError::OtherWeights { rank, step: u64::from(step) + 1 }),
            None => Ok(()),
        }
    }

    /// Fails on all ranks if any of them was interrupted.
    pub(crate) fn refuse_interrupt(&self) -> Result<(), TrainError> {
        match self.learner.ranks().any(self.interrupt.load(Ordering::Relaxed))? {
            true => Err(TrainError::Interrupted),
            false => Ok(()),
        }
    }
}
