//! Policy, reference and optimizer during training, and the stages of [`Learner::learn`].

mod result;
#[cfg(test)]
mod tests;
mod updates;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::TensorData;
use grpo_core::{
    AdaptiveKl, EntropyController, KlConfig, LossConfig, REFERENCE_METRICS, advantages_against,
    weighted_group_advantages,
};
use grpo_data::{Bonus, Completion, ConfigFault, Group, Sample};
use grpo_model::{
    Frozen, LanguageModel, ModelSetting, ProductPrecision, RolloutActivations, StoredTensors,
    WeightPrecision, WeightsDigest,
};
use grpo_runtime::Ranks;
use serde::{Deserialize, Serialize};

pub use result::{FurtherUpdate, LearnResult, Update};

use crate::collate::micro_batches;
use crate::error::supported;
use crate::guard_config::{GuardAction, GuardConfig};
use crate::micro_batch_state::{ComparedMicroBatch, MicroBatchState};
use crate::optimizer::Remembered;
use crate::reward_functions::RewardFunctions;
use crate::schedule_config::CoefFactors;
use crate::{GrpoConfig, Optimizer, TrainConfig, TrainError};

/// One of this many steps does not use activations of the rollout.
const COMPUTED_EVERY: u32 = 10;

/// One of this many steps measures the KL if nothing depends on it.
const KL_MEASURED_EVERY: u32 = 10;

/// Policy, reference and optimizer during training.
pub struct Learner<M> {
    /// `None` only while the optimizer updates the policy in place.
    policy: Option<M>,
    reference: Frozen<M>,
    /// Initial reference, which a roll-back may need. `None` if the reference never changes.
    first_reference: Option<Frozen<M>>,
    /// Whether the reference is different from the initial one.
    reference_moved: bool,
    optimizer: Optimizer,
    config: GrpoConfig,
    loss: LossConfig,
    /// Weight of the GRPO loss.
    grpo_weight: f64,
    /// Maximum number of turns of a completion.
    max_turns: usize,
    progress: LearnerProgress,
    /// Factors of the schedule for the next step.
    coef_factors: CoefFactors,
    /// Whether the next step is one of those that measure the KL even if nothing depends on it.
    is_kl_due: bool,
    /// Whether to attach token traces to samples.
    is_recording: bool,
    /// Ranks that micro-batches are distributed over.
    ranks: Ranks,
    /// Activations of the rollout, if they are kept.
    activations: Option<RolloutActivations>,
    /// Number of steps since the learner was created or restored.
    steps: u32,
}

/// Learner state that changes in each step. Does not include weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LearnerProgress {
    /// Number of optimizer steps so far.
    policy_version: u64,
    /// Controller for the entropy bonus coefficient.
    entropy_bonus: Option<EntropyController>,
    /// Current KL coefficient.
    kl_coef: f64,
    /// Number of steps since the last reference update.
    reference_age: u64,
}

/// Learner state without tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LearnerState {
    #[serde(flatten)]
    progress: LearnerProgress,
    /// Number of optimizer steps for each parameter.
    optimizer_steps: BTreeMap<String, u32>,
}

impl<M: LanguageModel> Learner<M> {
    /// Creates a learner with `policy` as the initial policy.
    ///
    /// # Errors
    /// Returns an error if the loss settings are inconsistent, or if the model does not support a
    /// setting.
    pub fn new(policy: M, reference: Frozen<M>, config: &GrpoConfig) -> Result<Self, TrainError> {
        let loss = config.loss.resolve()?;
        let TrainConfig { activation_checkpointing: checkpointing, precision, .. } = config.train;
        supported(
            &policy,
            "train.activation_checkpointing",
            ModelSetting::Checkpointing,
            checkpointing,
        )?;
        let is_rounded = precision != ProductPrecision::default();
        supported(&policy, "train.precision", ModelSetting::ProductPrecision, is_rounded)?;
        let is_rounded = config.sampling.weights != WeightPrecision::default();
        supported(&policy, "sampling.weights", ModelSetting::WeightPrecision, is_rounded)?;
        let (policy, reference) =
            (policy.with_product_precision(precision), reference.with_product_precision(precision));
        Ok(Self {
            optimizer: Optimizer::new(&policy, &config.optimizer),
            loss,
            grpo_weight: 1.0,
            max_turns: 1,
            progress: LearnerProgress {
                policy_version: 0,
                entropy_bonus: loss.entropy_bonus.map(EntropyController::new),
                kl_coef: loss.kl.coef,
                reference_age: 0,
            },
            coef_factors: config.schedule.coef_factors(0, config.train.steps, &loss),
            is_kl_due: true,
            config: config.clone(),
            is_recording: false,
            ranks: Ranks::alone(),
            activations: None,
            steps: 0,
            policy: Some(policy),
            first_reference: config.can_move_back().then(|| reference.clone()),
            reference,
            reference_moved: false,
        })
    }

    /// Sets the weight of the GRPO loss, which is 1 unless there is an auxiliary loss.
    pub(crate) fn weigh(&mut self, grpo_weight: f64) {
        self.grpo_weight = grpo_weight;
    }

    /// Sets the maximum number of turns of a completion, each of which can have `sampling.max_new_tokens`
    /// actions. It is 1 by default.
    pub fn allow_turns(&mut self, max_turns: usize) {
        self.max_turns = max_turns;
    }

    /// Distributes micro-batches over `ranks`. All of them must have the same policy and learn from
    /// the same completions.
    pub fn distribute_over(&mut self, ranks: Ranks) {
        self.ranks = ranks;
    }

    /// Uses activations of the rollout in the first update after it, where they are kept. Every tenth
    /// step, beginning with the first one, computes everything. Results are bit for bit the same.
    pub fn reuse(&mut self, activations: RolloutActivations) {
        self.activations = Some(activations);
    }

    /// Lowers the memory for activations of the rollout to this number of bytes.
    pub fn limit_reuse(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.activations.iter().for_each(|activations| activations.limit(bytes));
    }

    /// Returns the ranks that micro-batches are distributed over.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Returns the current policy.
    pub fn policy(&self) -> &M {
        self.policy
            .as_ref()
            .expect("the policy is only taken during an optimizer step, which cannot fail")
    }

    /// Returns the number of optimizer steps so far.
    pub fn version(&self) -> u64 {
        self.progress.policy_version
    }

    /// Returns all state that the next step depends on, except for the configuration and the
    /// policy.
    pub(crate) fn remembered(&self) -> (LearnerState, StoredTensors, Option<StoredTensors>) {
        let Remembered { steps, means } = self.optimizer.remembered(self.policy());
        let state = LearnerState { progress: self.progress.clone(), optimizer_steps: steps };
        (state, means, self.reference_moved.then(|| self.reference.stored()))
    }

    /// Restores a saved state. `policy` must already contain the saved weights.
    ///
    /// # Errors
    /// Returns an error if the state was saved with a different model or different settings.
    pub(crate) fn restore(
        &mut self,
        policy: M,
        state: LearnerState,
        means: BTreeMap<String, TensorData>,
        reference: Option<(BTreeMap<String, TensorData>, &Path)>,
    ) -> Result<(), String> {
        let LearnerState { progress, optimizer_steps: steps } = state;
        if progress.entropy_bonus.is_some() != self.progress.entropy_bonus.is_some() {
            return Err("it belongs to a different loss: only one of the two has an entropy bonus"
                .to_owned());
        }
        let policy = policy.with_product_precision(self.config.train.precision);
        // Parameter ids in the new policy are different, so a new optimizer is needed.
        let mut optimizer = Optimizer::new(&policy, &self.config.optimizer);
        optimizer.restore(&policy, Remembered { steps, means })?;
        self.reference_moved = reference.is_some();
        if let Some((values, path)) = reference {
            // A reference that has been updated has the same parameters as the policy.
            let moved = Frozen::snapshot(&policy).with_values(values, path);
            self.reference = moved.map_err(|error| error.to_string())?;
        } else if let Some(first) = &self.first_reference {
            self.reference = first.clone();
        }
        self.policy = Some(policy);
        self.optimizer = optimizer;
        // After a roll-back, versions are used again.
        self.activations.iter().for_each(RolloutActivations::forget);
        self.steps = 0;
        let kl_coef = progress.kl_coef;
        self.progress = progress;
        self.set_kl_coef(kl_coef);
        Ok(())
    }

    /// Returns the hash of the current reference weights.
    pub fn reference_digest(&self) -> WeightsDigest {
        self.reference.digest()
    }

    /// Enables or disables token traces. The training result is bit-for-bit the same either way.
    pub fn set_recording(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
    }

    /// Returns the reference policy.
    pub fn reference(&self) -> &Frozen<M> {
        &self.reference
    }

    /// Returns the number of steps since the last reference update.
    pub fn reference_age(&self) -> u64 {
        self.progress.reference_age
    }

    /// Moves the reference towards the policy. See [`Frozen::mixed`].
    ///
    /// # Errors
    /// Returns an error if the reference and the policy have different parameters. The policy is
    /// used as the reference in this case.
    pub fn update_reference(&mut self, mix: f64) -> Result<(), TrainError> {
        // Take the reference out of `self` so that its memory can be freed one parameter at a time.
        // The placeholder shares memory with the policy.
        let stand_in = Frozen::snapshot(self.policy());
        let reference = std::mem::replace(&mut self.reference, stand_in);
        self.reference = reference.mixed(self.policy(), mix)?;
        self.progress.reference_age = 0;
        self.reference_moved = true;
        Ok(())
    }

    /// Returns the KL coefficient for the next step, without the schedule.
    pub fn kl_coef(&self) -> f64 {
        self.progress.kl_coef
    }

    /// Sets the KL coefficient. If there is a controller, the value is clamped to its bounds.
    pub fn set_kl_coef(&mut self, coef: f64) {
        self.progress.kl_coef = match self.config.kl_controller {
            Some(controller) => {
                let mut adaptive = AdaptiveKl::new(controller, coef);
                adaptive.set_coef(coef);
                adaptive.coef()
            }
            None => coef,
        };
    }

    /// Sets the coefficients of the KL penalty and the entropy bonus to their scheduled values in
    /// `step`, counted from 0. Until this is called, they have their initial values, and each step
    /// measures the KL.
    pub fn schedule(&mut self, step: u32) {
        let GrpoConfig { schedule, train, .. } = &self.config;
        self.coef_factors = schedule.coef_factors(step, train.steps, &self.loss);
        let done = step.saturating_add(1);
        self.is_kl_due = step == 0 || done == train.steps || done.is_multiple_of(KL_MEASURED_EVERY);
    }

    /// Returns whether the next step computes `log π_ref`. Without a KL penalty, it only serves the
    /// KL metrics, and takes 15 to 23 % of the time of a step.
    fn measures_kl(&self) -> bool {
        let has_penalty = self.loss.kl.coef != 0.0 || self.progress.kl_coef != 0.0;
        let acts = |guard: &GuardConfig| {
            guard.action != GuardAction::Warn
                && REFERENCE_METRICS.iter().any(|metric| metric.name == guard.watch)
        };
        has_penalty
            || self.is_kl_due
            || self.is_recording
            || self.config.kl_controller.is_some()
            || self.config.guards.iter().flatten().any(acts)
    }

    pub(crate) fn config(&self) -> &GrpoConfig {
        &self.config
    }

    /// Returns the loss settings for the next step.
    pub(crate) fn loss(&self) -> LossConfig {
        let mut loss = self.loss;
        loss.kl.coef = self.progress.kl_coef * self.coef_factors.kl;
        loss
    }

    /// Returns whether a sampler mismatch is corrected.
    pub(crate) fn corrects(&self) -> bool {
        self.config.sampler_check.corrects(&self.loss)
    }

    /// Refuses completions without log-probabilities of the sampler, e.g. of an engine that reads them from a
    /// file, if differences to the sampler are corrected.
    pub(crate) fn refuse_unsampled(&self, groups: &[Group]) -> Result<(), TrainError> {
        let is_unsampled = |completion: &Completion| completion.sampling_logprobs().is_none();
        let needs_them = self.loss.mismatch.is_some() || self.corrects();
        if needs_them && groups.iter().flat_map(Group::completions).any(is_unsampled) {
            let message = "the engine gives no log-probabilities of the completions, which loss.mismatch and sampler_check.above = \"correct\" need";
            return Err(ConfigFault::new(
                "rollout.engine",
                message,
                "remove them, or use another engine",
            )
            .into());
        }
        Ok(())
    }

    /// Packs completions into micro-batches and computes `log π_ref` for each action if it is needed
    /// ([`Self::measures_kl`]). How completions are split only affects memory usage.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub(crate) fn micro_batches(
        &self,
        groups: &[Group],
    ) -> Result<Vec<MicroBatchState<M>>, TrainError> {
        let tokens = self.config.train.micro_batch_tokens;
        let mut micro =
            micro_batches(&completions(groups), tokens, self.policy().vocabulary_size());
        // In some steps, everything is computed, so that the sampler check compares independent results.
        let is_checked = self.steps.is_multiple_of(COMPUTED_EVERY);
        if let (Some(activations), false) = (&self.activations, is_checked) {
            micro.iter_mut().for_each(|micro| micro.look_up(activations, self.version()));
        }
        if !self.measures_kl() {
            return Ok(micro.into_iter().map(|micro| MicroBatchState::new(micro, None)).collect());
        }
        let logprobs = |index: usize| micro[index].reference_logprobs(&self.reference);
        let reference = self.ranks.map(micro.len(), logprobs)?;
        let states = micro.into_iter().zip(reference);
        Ok(states.map(|(micro, reference)| MicroBatchState::new(micro, Some(reference))).collect())
    }

    /// Collects rewards and bonuses. If the KL penalty is part of the reward, `kl.coef · Σ_t KL` is
    /// subtracted. Returns them with the mean of `Σ_t KL`.
    fn penalized_rewards(
        &self,
        groups: &[Group],
        batches: &mut [MicroBatchState<M>],
        kl: KlConfig,
    ) -> Result<(RewardFunctions, Option<f64>), TrainError> {
        let mut rewards = RewardFunctions::new(groups, self.config.advantage.aggregation);
        // The metric also exists when the schedule has reached a coefficient of 0.
        if !self.loss.kl.in_reward() {
            return Ok((rewards, None));
        }
        let checkpointing = self.config.train.activation_checkpointing;
        let is_single = batches.len() == 1;
        let sums = self.ranks.map(batches.len(), |index| {
            let batch = &mut batches[index];
            let sums =
                batch.sequence_kl(self.policy(), &self.reference, kl.estimator, checkpointing);
            // The graphs of several micro-batches may not fit into memory together.
            if !is_single {
                batch.discard_scores();
            }
            sums
        })?;
        let sums = sums.concat();
        rewards.subtract(kl.coef, &sums);
        Ok((rewards, Some(sums.iter().sum::<f64>() / sums.len() as f64)))
    }

    /// Computes advantages within each group.
    pub(crate) fn compare_groups(
        &self,
        groups: &mut [Group],
        mut batches: Vec<MicroBatchState<M>>,
    ) -> Result<Compared<M>, TrainError> {
        let (rewards, reward_kl) = self.penalized_rewards(groups, &mut batches, self.loss().kl)?;
        let config = self.config.advantages()?;
        let advantages = weighted_group_advantages(&rewards.rewards, &rewards.weights, &config)?;
        let batches = compared(groups, batches, &advantages.groups.concat());
        // Replayed completions have no bonus and are not filtered.
        let samples = groups.iter().flat_map(|group| &group.samples);
        let bonuses = samples.map(|sample| sample.bonus.map_or(0.0, Bonus::total));
        let with_bonus = advantages.objectives.concat();
        let objectives = with_bonus.into_iter().zip(bonuses);
        let objectives = objectives.map(|(objective, bonus)| Some(objective? - bonus)).collect();
        let zero_std_share = advantages.zero_std_share;
        Ok(Compared { batches, zero_std_share, reward_kl, objectives })
    }

    /// Computes advantages relative to the objectives of sampled completions.
    pub(crate) fn compare_with(
        &self,
        sampled: &[Option<f64>],
        groups: &mut [Group],
        mut batches: Vec<MicroBatchState<M>>,
        kl: KlConfig,
    ) -> Result<Vec<ComparedMicroBatch<M>>, TrainError> {
        let (functions, _) = self.penalized_rewards(groups, &mut batches, kl)?;
        let RewardFunctions { rewards, weights } = functions;
        let config = self.config.advantages()?;
        let advantages = advantages_against(sampled, &rewards.concat(), &weights, &config)?;
        Ok(compared(groups, batches, &advantages))
    }

    /// Attaches token traces to samples if recording is enabled.
    pub(crate) fn set_traces(&self, groups: &mut [Group], batches: &[ComparedMicroBatch<M>]) {
        let traces = batches.iter().flat_map(|batch| batch.traces(self.grpo_weight));
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        samples.zip(traces).for_each(|(sample, trace)| sample.trace = Some(trace));
    }

    /// Updates the learner state after a step.
    pub(crate) fn step_done(&mut self, result: &LearnResult, groups: &[Group]) {
        self.steps = self.steps.wrapping_add(1);
        self.progress.reference_age += 1;
        if let (Some(controller), Some(kl)) = (self.config.kl_controller, result.tokens().kl()) {
            let mut adaptive = AdaptiveKl::new(controller, self.progress.kl_coef);
            adaptive.observe(kl, completions(groups).len());
            self.progress.kl_coef = adaptive.coef();
        }
    }
}

/// Result of comparing the completions of each group.
pub(crate) struct Compared<M> {
    /// The micro-batches with their advantages.
    pub(crate) batches: Vec<ComparedMicroBatch<M>>,
    /// Fraction of completions in groups without reward variance.
    pub(crate) zero_std_share: f64,
    /// Mean KL if it is part of the reward.
    pub(crate) reward_kl: Option<f64>,
    /// See [`LearnResult::objectives`].
    pub(crate) objectives: Vec<Option<f64>>,
}

/// Sets one advantage per completion, in the groups and in the micro-batches.
fn compared<M>(
    groups: &mut [Group],
    batches: Vec<MicroBatchState<M>>,
    advantages: &[f64],
) -> Vec<ComparedMicroBatch<M>> {
    let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
    samples.zip(advantages).for_each(|(sample, advantage)| sample.advantage = *advantage);
    let samples: Vec<&Sample> = groups.iter().flat_map(|group| &group.samples).collect();
    batches.into_iter().map(|batch| batch.compared(&samples)).collect()
}

fn completions(groups: &[Group]) -> Vec<&Completion> {
    groups.iter().flat_map(Group::completions).collect()
}
