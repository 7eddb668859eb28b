//! A policy in training with its reference and its optimizer, and the stages of [`Learner::learn`].

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

/// A policy in training, its reference, and what the two are trained with.
pub struct Learner<M> {
    /// There except while an optimizer step changes it in place.
    policy: Option<M>,
    reference: Frozen<M>,
    /// The reference of the start, if it can become another one: a run may go back to before it did.
    first_reference: Option<Frozen<M>>,
    /// Whether the reference is another one than at the start.
    reference_moved: bool,
    optimizer: Optimizer,
    config: GrpoConfig,
    loss: LossConfig,
    /// Auxiliary losses, if configured.
    combined: Option<Combined>,
    /// Of the order of examples.
    seed: u64,
    progress: LearnerProgress,
    /// Whether samples get a trace of what was computed for each token.
    is_recording: bool,
}

/// What changes in a learner from step to step, besides weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LearnerProgress {
    /// Optimizer steps done.
    policy_version: u64,
    /// The coefficient of the entropy bonus, if there is one.
    entropy_bonus: Option<EntropyController>,
    /// The coefficient of the KL penalty.
    kl_coef: f64,
    /// Steps that were learned with the reference as it is.
    reference_age: u64,
}

/// The part of a learner's state that is numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LearnerState {
    #[serde(flatten)]
    progress: LearnerProgress,
    /// Steps that the optimizer has done with each parameter.
    optimizer_steps: BTreeMap<String, u32>,
}

impl<M: LanguageModel> Learner<M> {
    /// A learner that starts from `policy`.
    ///
    /// # Errors
    /// Settings of the loss that do not fit together.
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

    /// From now on, adds auxiliary losses; the order of their examples is a function of `seed`.
    pub fn combine(&mut self, combined: Combined, seed: u64) {
        (self.combined, self.seed) = (Some(combined), seed);
    }

    /// The policy as it is now.
    pub fn policy(&self) -> &M {
        self.policy.as_ref().expect("only an optimizer step takes it, and that cannot fail")
    }

    /// Optimizer steps done.
    pub fn version(&self) -> u64 {
        self.progress.policy_version
    }

    /// All that the next step depends on besides the configuration and the policy itself.
    pub(crate) fn remembered(&self) -> (LearnerState, StoredTensors, Option<StoredTensors>) {
        let Remembered { steps, means } = self.optimizer.remembered(self.policy());
        let state = LearnerState { progress: self.progress.clone(), optimizer_steps: steps };
        (state, means, self.reference_moved.then(|| self.reference.stored()))
    }

    /// Resumes from there, with `policy`, which has the weights of then.
    ///
    /// # Errors
    /// In words, if it was remembered of another model or other settings.
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
        // Its parameters have other ids.
        let mut optimizer = Optimizer::new(&policy, &self.config.optimizer);
        optimizer.restore(&policy, Remembered { steps, means })?;
        self.reference_moved = reference.is_some();
        if let Some((values, path)) = reference {
            // One that moved has the parameters of the policy.
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

    /// Hash of the reference as it is now.
    pub fn reference_digest(&self) -> WeightsDigest {
        self.reference.digest()
    }

    /// From now on, whether samples get a trace of what was computed for each token. What is learned is the same, bit for
    /// bit.
    pub fn set_recording(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
    }

    /// The reference policy.
    pub fn reference(&self) -> &Frozen<M> {
        &self.reference
    }

    /// Steps that were learned with the reference as it is.
    pub fn reference_age(&self) -> u64 {
        self.progress.reference_age
    }

    /// Lets the reference follow the policy: see [`Frozen::mixed`].
    ///
    /// # Errors
    /// It has other parameters than the policy; it is then the policy.
    pub fn update_reference(&mut self, mix: f64) -> Result<(), TrainError> {
        // Taken out, so that its memory is free parameter by parameter; what stands in shares that of the policy.
        let stand_in = Frozen::snapshot(self.policy());
        let reference = std::mem::replace(&mut self.reference, stand_in);
        self.reference = reference.mixed(self.policy(), mix)?;
        self.progress.reference_age = 0;
        self.reference_moved = true;
        Ok(())
    }

    /// The coefficient of the KL penalty in the next step.
    pub fn kl_coef(&self) -> f64 {
        self.progress.kl_coef
    }

    /// Continues with another coefficient of the KL penalty, within the bounds of the controller if there is one.
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

    /// The loss of the next step.
    pub(crate) fn loss(&self) -> LossConfig {
        let mut loss = self.loss;
        loss.kl.coef = self.progress.kl_coef;
        loss
    }

    /// Whether a step whose sampler is not the trainer is corrected.
    pub(crate) fn corrects(&self) -> bool {
        self.config.sampler_check.corrects(&self.loss)
    }

    /// The completions in micro-batches, with `log π_ref` of each action; micro-batches only decide memory.
    pub(crate) fn micro_batches(&self, groups: &[Group]) -> Vec<MicroBatchState> {
        let tokens = self.config.train.micro_batch_tokens;
        let micro = micro_batches(&completions(groups), tokens, self.policy().vocabulary_size());
        micro.into_iter().map(|micro| MicroBatchState::new(micro, &self.reference)).collect()
    }

    /// Sets Â of each sample, from its reward with its bonus and, if that is configured, less `β · Σ_t KL`. Returns the
    /// share of completions in groups without a difference, and the mean of those sums.
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

    /// Sets the trace of each sample, if that is recorded.
    pub(crate) fn set_traces(&self, groups: &mut [Group], batches: &[MicroBatchState]) {
        let traces = batches.iter().flat_map(|batch| batch.traces(self.grpo_weight()));
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        samples.zip(traces).for_each(|(sample, trace)| sample.trace = Some(trace));
    }

    /// Takes note of a step that was learned.
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
