//! The policy during training, with its reference and optimizer, and the stages of
//! [`Learner::learn`].

mod result;
mod updates;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::TensorData;
use grpo_core::{AdaptiveKl, EntropyController, LossConfig, weighted_group_advantages};
use grpo_data::{Completion, Group, Sample};
use grpo_model::{Frozen, LanguageModel, StoredTensors, WeightsDigest};
use serde::{Deserialize, Serialize};

pub use result::{LearnResult, SupervisedUpdate, Update};

use crate::collate::micro_batches;
use crate::micro_batch_state::MicroBatchState;
use crate::optimizer::Remembered;
use crate::reward_functions::RewardFunctions;
use crate::{Combined, GrpoConfig, Optimizer, TrainError};

/// The policy during training, its reference and its optimizer.
pub struct Learner<M> {
    /// `None` only while an optimizer step changes the policy in place.
    policy: Option<M>,
    reference: Frozen<M>,
    /// The initial reference, if it can change; a roll-back may need it.
    first_reference: Option<Frozen<M>>,
    /// Whether the reference differs from the initial one.
    reference_moved: bool,
    optimizer: Optimizer,
    config: GrpoConfig,
    loss: LossConfig,
    /// Auxiliary losses, if configured.
    combined: Option<Combined>,
    /// Seed of the order of examples.
    seed: u64,
    progress: LearnerProgress,
    /// Whether samples get token traces.
    is_recording: bool,
}

/// State of a learner that changes from step to step, except weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LearnerProgress {
    /// Optimizer steps done.
    policy_version: u64,
    /// The coefficient of the entropy bonus, if there is one.
    entropy_bonus: Option<EntropyController>,
    /// The coefficient of the KL penalty.
    kl_coef: f64,
    /// Steps since the reference last changed.
    reference_age: u64,
}

/// Numeric state of a learner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LearnerState {
    #[serde(flatten)]
    progress: LearnerProgress,
    /// Optimizer steps of each parameter.
    optimizer_steps: BTreeMap<String, u32>,
}

impl<M: LanguageModel> Learner<M> {
    /// Creates a learner that starts from `policy`.
    ///
    /// # Errors
    /// Returns an error if the settings of the loss are inconsistent.
    pub fn new(policy: M, reference: Frozen<M>, config: &GrpoConfig) -> Result<Self, TrainError> {
        let loss = config.loss.resolve()?;
        Ok(Self {
            optimizer: Optimizer::new(&policy, &config.optimizer),
            loss,
            combined: None,
            seed: 0,
            progress: LearnerProgress {
                policy_version: 0,
                entropy_bonus: loss.entropy_bonus.map(EntropyController::new),
                kl_coef: loss.kl.coef,
                reference_age: 0,
            },
            config: config.clone(),
            is_recording: false,
            policy: Some(policy),
            first_reference: config.can_move_back().then(|| reference.clone()),
            reference,
            reference_moved: false,
        })
    }

    /// Adds auxiliary losses. The order of their examples is a function of `seed`.
    pub fn combine(&mut self, combined: Combined, seed: u64) {
        (self.combined, self.seed) = (Some(combined), seed);
    }

    /// Returns the current policy.
    pub fn policy(&self) -> &M {
        self.policy.as_ref().expect("only an optimizer step takes it, and that cannot fail")
    }

    /// Returns the number of optimizer steps done.
    pub fn version(&self) -> u64 {
        self.progress.policy_version
    }

    /// Returns the state on which the next step depends, except configuration and policy.
    pub(crate) fn remembered(&self) -> (LearnerState, StoredTensors, Option<StoredTensors>) {
        let Remembered { steps, means } = self.optimizer.remembered(self.policy());
        let state = LearnerState { progress: self.progress.clone(), optimizer_steps: steps };
        (state, means, self.reference_moved.then(|| self.reference.stored()))
    }

    /// Restores a saved state together with `policy`, which has the saved weights.
    ///
    /// # Errors
    /// Returns an error if the state belongs to another model or other settings.
    pub(crate) fn restore(
        &mut self,
        policy: M,
        state: LearnerState,
        means: BTreeMap<String, TensorData>,
        reference: Option<(BTreeMap<String, TensorData>, &Path)>,
    ) -> Result<(), String> {
        let LearnerState { progress, optimizer_steps: steps } = state;
        if progress.entropy_bonus.is_some() != self.progress.entropy_bonus.is_some() {
            return Err("it is of another loss: one of the two has an entropy bonus".to_owned());
        }
        // The new policy has other parameter ids.
        let mut optimizer = Optimizer::new(&policy, &self.config.optimizer);
        optimizer.restore(&policy, Remembered { steps, means })?;
        self.reference_moved = reference.is_some();
        if let Some((values, path)) = reference {
            // A changed reference has the parameters of the policy.
            let moved = Frozen::snapshot(&policy).with_values(values, path);
            self.reference = moved.map_err(|error| error.to_string())?;
        } else if let Some(first) = &self.first_reference {
            self.reference = first.clone();
        }
        self.policy = Some(policy);
        self.optimizer = optimizer;
        let kl_coef = progress.kl_coef;
        self.progress = progress;
        self.set_kl_coef(kl_coef);
        Ok(())
    }

    /// Returns the hash of the current reference.
    pub fn reference_digest(&self) -> WeightsDigest {
        self.reference.digest()
    }

    /// Sets whether samples get token traces. Learning is bit-identical either way.
    pub fn set_recording(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
    }

    /// Returns the reference policy.
    pub fn reference(&self) -> &Frozen<M> {
        &self.reference
    }

    /// Returns the number of steps since the reference last changed.
    pub fn reference_age(&self) -> u64 {
        self.progress.reference_age
    }

    /// Moves the reference towards the policy; see [`Frozen::mixed`].
    ///
    /// # Errors
    /// Returns an error if its parameters differ from the policy's. The reference is then the
    /// policy.
    pub fn update_reference(&mut self, mix: f64) -> Result<(), TrainError> {
        // Taken out so that its memory is freed parameter by parameter. The placeholder shares the
        // policy's memory.
        let stand_in = Frozen::snapshot(self.policy());
        let reference = std::mem::replace(&mut self.reference, stand_in);
        self.reference = reference.mixed(self.policy(), mix)?;
        self.progress.reference_age = 0;
        self.reference_moved = true;
        Ok(())
    }

    /// Returns the coefficient of the KL penalty in the next step.
    pub fn kl_coef(&self) -> f64 {
        self.progress.kl_coef
    }

    /// Sets the coefficient of the KL penalty, within the bounds of the controller if there is one.
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

    pub(crate) fn config(&self) -> &GrpoConfig {
        &self.config
    }

    /// Returns the loss of the next step.
    pub(crate) fn loss(&self) -> LossConfig {
        let mut loss = self.loss;
        loss.kl.coef = self.progress.kl_coef;
        loss
    }

    /// Returns whether sampler mismatches are corrected.
    pub(crate) fn corrects(&self) -> bool {
        self.config.sampler_check.corrects(&self.loss)
    }

    /// Packs the completions into micro-batches with `log π_ref` of each action. The split affects
    /// only memory.
    pub(crate) fn micro_batches(&self, groups: &[Group]) -> Vec<MicroBatchState> {
        let tokens = self.config.train.micro_batch_tokens;
        let micro = micro_batches(&completions(groups), tokens, self.policy().vocabulary_size());
        micro.into_iter().map(|micro| MicroBatchState::new(micro, &self.reference)).collect()
    }

    /// Sets the advantage of each sample from its reward and bonus, minus `β · Σ_t KL` if the
    /// penalty is part of the reward. Returns the fraction of completions in groups with zero
    /// deviation, and the mean KL.
    pub(crate) fn set_advantages(
        &self,
        groups: &mut [Group],
        batches: &mut [MicroBatchState],
    ) -> Result<(f64, Option<f64>), TrainError> {
        let mut rewards = RewardFunctions::new(groups, self.config.advantage.aggregation);
        let kl = self.loss().kl;
        let reward_kl = kl.in_reward().then(|| {
            let sums = |batch: &MicroBatchState| {
                batch.sequence_kl(self.policy(), &self.reference, kl.estimator)
            };
            let sums: Vec<f64> = batches.iter().flat_map(sums).collect();
            rewards.subtract(kl.coef, &sums);
            sums.iter().sum::<f64>() / sums.len() as f64
        });
        let config = self.config.advantages()?;
        let advantages = weighted_group_advantages(&rewards.rewards, &rewards.weights, &config)?;
        for (group, advantages) in groups.iter_mut().zip(advantages.groups) {
            let samples = group.samples.iter_mut().zip(advantages);
            samples.for_each(|(sample, advantage)| sample.advantage = advantage);
        }
        let samples: Vec<&Sample> = groups.iter().flat_map(|group| &group.samples).collect();
        batches.iter_mut().for_each(|batch| batch.set_advantages(&samples));
        Ok((advantages.zero_std_share, reward_kl))
    }

    /// Sets the token trace of each sample, if recorded.
    pub(crate) fn set_traces(&self, groups: &mut [Group], batches: &[MicroBatchState]) {
        let traces = batches.iter().flat_map(|batch| batch.traces(self.grpo_weight()));
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        samples.zip(traces).for_each(|(sample, trace)| sample.trace = Some(trace));
    }

    /// Updates the state after a step.
    pub(crate) fn step_done(&mut self, result: &LearnResult, groups: &[Group]) {
        self.progress.reference_age += 1;
        if let (Some(controller), Some(kl)) = (self.config.kl_controller, result.tokens().kl()) {
            let mut adaptive = AdaptiveKl::new(controller, self.progress.kl_coef);
            adaptive.observe(kl, completions(groups).len());
            self.progress.kl_coef = adaptive.coef();
        }
    }
}

fn completions(groups: &[Group]) -> Vec<&Completion> {
    groups.iter().flat_map(Group::completions).collect()
}
