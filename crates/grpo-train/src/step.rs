//! A single GRPO step: rollout, rewards, advantages, policy updates, reference update.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_data::{Group, Prompt, Purpose, Sample};
use grpo_model::{Frozen, LanguageModel, WeightPrecision, WeightsDigest, weights_digest};
use grpo_rewards::{ExternalCalls, PartName, RewardRunner};
use grpo_rollout::{Decode, Engine, StepKey};
use grpo_run::{LedgerRollout, LedgerStep, LedgerUpdate, ReferenceChange};
use grpo_runtime::awake;

use crate::ahead::Ahead;
use crate::extension::{self, Added, StepExtensions, StepScorer, UpdatedStep};
use crate::learner::{Compared, LearnResult, Learner};
use crate::micro_batch_state::{ComparedMicroBatch, MicroBatchState};
use crate::probe::{LearnTimes, Observed, Probe, entries, timed};
use crate::{GrpoConfig, RolloutAhead, TrainError};

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
    /// Rollouts of later steps, if `train.staleness` allows them.
    pub(crate) ahead: Option<Ahead<M>>,
    /// Hash of the base model, if the policy is an adapter.
    pub(crate) base: Option<WeightsDigest>,
}

/// Result of one step.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Step number, counted from 0.
    pub step: u32,
    /// Samples with rewards, advantages and optional token traces.
    pub groups: Vec<Group>,
    /// Metrics of the extensions.
    pub extensions: Vec<(&'static str, f64)>,
    /// Groups that extensions scored in addition.
    pub further_groups: Vec<Group>,
    /// Names of reward terms and components.
    pub names: RewardNames,
    /// Result of the policy updates.
    pub learned: LearnResult,
    /// Learning rate used for the policy updates.
    pub learning_rate: f64,
    /// Weight α that was used to update the reference, or `None` if it was not updated.
    pub reference_updated: Option<f64>,
    /// Number of optimizer steps between the policy that sampled the completions and the one that
    /// learned from them. `None` if rollouts are not sampled ahead.
    pub staleness: Option<u64>,
    /// Time, memory and ledger entry.
    pub observed: Observed,
}

/// Names of reward terms and components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewardNames {
    /// Reward terms if there is more than one, including the bonus as the last term.
    pub terms: Vec<PartName>,
    /// All components that the reward function may return.
    pub parts: Vec<PartName>,
    /// Name of the bonus, if an extension sets it.
    pub bonus: Option<&'static str>,
    /// All metrics of the extensions.
    pub extensions: Vec<String>,
}

impl<M: LanguageModel> Grpo<M> {
    /// Samples groups of completions for `prompts`, scores them, and updates the policy. No samples
    /// are kept for later steps.
    ///
    /// # Errors
    /// Returns an error if there are no prompts, if rewards fail or are not finite, if the sampler and the trainer disagree,
    /// or if a loss or gradient is not finite. It also returns an error if the run is interrupted
    /// before the policy is updated. In all cases, the policy has the weights of the last completed
    /// update.
    pub fn step(&mut self, prompts: &[Prompt], step: u32) -> Result<StepReport, TrainError> {
        if prompts.is_empty() {
            return Err(TrainError::Empty);
        }
        let mut probe = Probe::start();
        // o_i ~ π_old(· | q), with their log-probabilities
        let (mut groups, rollout) = self.rollout(prompts, step)?;
        let staleness =
            self.ahead.is_some().then(|| self.learner.version() - rollout.policy_version);
        probe.phase_done();
        // r_i
        let mut added = self.score(&mut groups, prompts, step)?;
        probe.phase_done();
        // Â_i, then μ updates of π_θ
        let learning_rate = self.learning_rate_factor * self.config.learning_rate(step);
        self.learner.schedule(step);
        let learned = awake(|| self.learner.learn(&mut groups, learning_rate))?;
        // more updates of π_θ, e.g. with the best o so far
        for extension in &mut self.extensions {
            let (learner, learned, added) = (&mut self.learner, &learned, &mut added);
            let updated =
                &mut UpdatedStep { step, prompts, learner, learned, learning_rate, added };
            extension.after_updates(updated)?;
        }
        // π_ref
        let reference_updated = self.update_reference(step)?;
        let Added { metrics: extensions, groups: further_groups, calls, ledger } = added;
        let ledger = self.ledger(step, rollout, (&learned, ledger), reference_updated);
        let observed = probe.finish(ExternalCalls::merged(calls.into_iter()), ledger);
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
            staleness,
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
        if groups.iter().all(|group| group.samples.is_empty()) {
            return Err(TrainError::Empty);
        }
        let mut times = LearnTimes::default();
        // log π_ref for each action, in micro-batches that fit into memory
        let batches = timed(&mut times.reference, || self.micro_batches(groups))?;
        let reused = reused(&batches);
        // Â_i = (r_i − mean) / std within each group
        let compare = || self.compare_groups(groups, batches);
        let Compared { mut batches, zero_std_share, reward_kl, objectives } =
            timed(&mut times.forward, compare)?;
        let mut loss = self.loss();
        let (mut updates, mut combined, mut is_above) = (Vec::new(), None, false);
        for _update in 0..self.config().train.updates_per_rollout {
            // L(θ) and ∇L(θ), summed over micro-batches
            let mut pass = self.gradients(groups, &mut batches, &mut loss, &mut times)?;
            combined = self.add_combined(groups, &mut pass, &mut times)?;
            is_above |= pass.is_above;
            // θ ← AdamW(θ, ∇L)
            let completions = entries(groups);
            let update = || self.update(pass, completions, learning_rate);
            updates.push(timed(&mut times.optimizer, update)?);
            batches.iter_mut().for_each(ComparedMicroBatch::forget_activations);
        }
        let supervised = self.supervised_updates(learning_rate, &mut combined, &mut times)?;
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
            supervised,
            combined,
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
        let bonus = extension::with_bonus(&self.extensions);
        if let Some(bonus) = bonus {
            if terms.is_empty() {
                terms.push("reward".into());
            }
            terms.push(bonus.into());
        }
        let extensions = extension::metrics(&self.extensions);
        RewardNames { terms, parts: self.rewards.parts(), bonus, extensions }
    }

    /// Samples completions, or takes those that were sampled ahead. The policy snapshot is dropped
    /// before returning, so that the optimizer can update the policy in place.
    fn rollout(
        &self,
        prompts: &[Prompt],
        step: u32,
    ) -> Result<(Vec<Group>, LedgerRollout), TrainError> {
        self.refuse_interrupt()?;
        if let Some(ahead) = &self.ahead
            && let Some(found) = ahead.take(step, &self.interrupt)?
        {
            let RolloutAhead { policy_version, weights, completions, .. } = found;
            let groups = prompts.iter().cloned().zip(completions);
            let groups: Vec<Group> =
                groups.map(|(prompt, completions)| Group::new(prompt, completions)).collect();
            let completions = entries(&groups);
            return Ok((groups, LedgerRollout { policy_version, weights, completions }));
        }
        let (policy, key) = self.snapshot(step);
        let groups = self.sampler.sample(&policy, prompts, key)?;
        let digest = self.digest(&policy);
        let policy_version = key.policy_version;
        self.refuse_interrupt()?;
        self.refuse_other_weights(digest, step)?;
        let completions = entries(&groups);
        Ok((groups, LedgerRollout { policy_version, weights: digest.into(), completions }))
    }

    /// Returns the prompts of the `next` step, and starts to sample this step and those after it as far
    /// as `train.staleness` allows. Prompts of later steps are kept in `upcoming`.
    pub(crate) fn look_ahead(
        &self,
        next: u32,
        upcoming: &mut VecDeque<Vec<Prompt>>,
        prompts: &mut impl FnMut(u32) -> Result<Vec<Prompt>, TrainError>,
    ) -> Result<Vec<Prompt>, TrainError> {
        let config = &self.config.train;
        let last = next.saturating_add(config.staleness).min(config.steps.max(next + 1) - 1);
        for step in next + upcoming.len() as u32..=last {
            let of_step = prompts(step)?;
            self.sample_ahead(&of_step, step);
            upcoming.push_back(of_step);
        }
        Ok(upcoming.pop_front().expect("the next step is among them"))
    }

    /// Starts to sample a step with the current policy if `train.staleness` allows it. Its completions
    /// are returned when the step is performed.
    fn sample_ahead(&self, prompts: &[Prompt], step: u32) {
        let Some(ahead) = self.ahead.as_ref().filter(|ahead| !ahead.has(step)) else { return };
        let (policy, key) = self.snapshot(step);
        let digest = self.digest(&policy);
        ahead.start(policy, digest.into(), prompts, key);
    }

    /// Returns what samples a step.
    fn snapshot(&self, step: u32) -> (Frozen<M>, StepKey) {
        let policy = Frozen::snapshot_in(self.learner.policy(), self.config.sampling.weights);
        let (seed, policy_version) = (self.seed, self.learner.version());
        (policy, StepKey { seed, purpose: Purpose::SAMPLING, step, policy_version })
    }

    /// Returns the hash of the current policy. `snapshot` must be a snapshot of it.
    fn digest(&self, snapshot: &Frozen<M>) -> WeightsDigest {
        match self.config.sampling.weights {
            WeightPrecision::F32 => snapshot.digest(),
            // The weights of the snapshot are rounded.
            _ => weights_digest(self.learner.policy()),
        }
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
        (learned, further): (&LearnResult, Vec<LedgerUpdate>),
        reference_updated: Option<f64>,
    ) -> LedgerStep {
        let on_completions = learned.updates.iter().map(|update| &update.ledger);
        let supervised = learned.supervised.iter().map(|update| &update.ledger);
        LedgerStep {
            step: u64::from(step) + 1,
            rollout,
            updates: on_completions.chain(supervised).cloned().chain(further).collect(),
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

impl StepReport {
    /// Returns an iterator over the samples in all groups.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.groups.iter().flat_map(|group| &group.samples)
    }

    /// Returns the number of action tokens in all completions.
    pub fn actions(&self) -> usize {
        self.samples().map(|sample| sample.completion.actions()).sum()
    }
}
