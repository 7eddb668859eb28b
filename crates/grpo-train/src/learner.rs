//! A policy in training: its reference, its optimizer, and the stages of [`Learner::learn`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use burn::tensor::TensorData;
use grpo_core::{
    AdaptiveKl, BatchTotals, EntropyController, HighEntropy, LossConfig, LossOutput, LossTerms,
    TokenStatistics, weighted_group_advantages,
};
use grpo_data::{Completion, Group, Sample};
use grpo_model::{Frozen, LanguageModel, StoredTensors, WeightsDigest, weights_digest};
use grpo_run::{LedgerCompletion, LedgerUpdate};
use serde::{Deserialize, Serialize};

use crate::collate::micro_batches;
use crate::error::finite;
use crate::micro_batch_state::{MicroBatchState, UpdateLoss};
use crate::optimizer::Remembered;
use crate::probe::{LearnTimes, timed};
use crate::reward_functions::RewardFunctions;
use crate::sampler_check::TRUNCATED;
use crate::supervised::{Cut, GradientSum};
use crate::{Combined, CombinedTerms, GrpoConfig, Optimizer, TrainError};

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

/// The result of learning from the samples of a step.
#[derive(Clone, Debug)]
pub struct LearnResult {
    /// See [`grpo_core::Advantages::zero_std_share`].
    pub zero_std_share: f64,
    /// Mean over completions of the KL that their rewards lost; `None` unless it is part of the reward.
    pub reward_kl: Option<f64>,
    /// Coefficient of the KL penalty.
    pub kl_coef: f64,
    /// Steps before this one that had the same reference.
    pub reference_age: u64,
    /// Hash of the reference that the policy was held back by.
    pub reference: WeightsDigest,
    /// Whether the sampler was further from the trainer than it may be, so that its tokens were weighed; `None` if
    /// that ends the run.
    pub corrected: Option<bool>,
    /// The optimizer steps on the completions, μ of them.
    pub updates: Vec<Update>,
    /// Those after them that had examples alone.
    pub supervised: Vec<SupervisedUpdate>,
    /// The terms of a combined loss, if it is one.
    pub combined: Option<CombinedTerms>,
    /// Where the time went.
    pub times: LearnTimes,
}

/// The result of one optimizer step.
#[derive(Clone, Debug)]
pub struct Update {
    /// What was minimised, over all micro-batches.
    pub loss: f64,
    /// The part of it that is GRPO's, without its weight in a combined loss; all of it if nothing else is learned.
    pub grpo_loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// Coefficient of the entropy bonus, if there is one.
    pub entropy_coef: Option<f64>,
    /// Mean over the tokens that the entropy bonus is of.
    pub entropy: f64,
    /// Sums over tokens.
    pub tokens: TokenStatistics,
    /// What it used, and what the policy was after it.
    pub ledger: LedgerUpdate,
}

/// An optimizer step that no completion was part of.
#[derive(Clone, Debug)]
pub struct SupervisedUpdate {
    /// Mean cross-entropy of its examples.
    pub loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// What it used, and what the policy was after it.
    pub ledger: LedgerUpdate,
}

/// The loss of all micro-batches and its gradients, before the policy moves.
pub(crate) struct Pass {
    /// What is minimised.
    loss: f64,
    /// The part of it that is GRPO's, without its weight.
    grpo_loss: f64,
    gradients: GradientSum,
    entropy_coef: Option<f64>,
    tokens: TokenStatistics,
    /// Whether the sampler was further from the trainer than it may be.
    pub(crate) is_above: bool,
    /// What was computed for each token of each micro-batch, if that is recorded.
    recorded: Vec<LossTerms>,
}

impl LearnResult {
    /// Sums over tokens of all updates.
    pub fn tokens(&self) -> TokenStatistics {
        let mut tokens = TokenStatistics::default();
        self.updates.iter().for_each(|update| tokens.merge(&update.tokens));
        tokens
    }

    /// Mean loss of the updates on the completions.
    pub fn loss(&self) -> f64 {
        self.mean(|update| update.loss)
    }

    /// Mean norm of the gradients before clipping, over all optimizer steps.
    pub fn grad_norm(&self) -> f64 {
        let on_completions = self.updates.iter().map(|update| update.grad_norm);
        let supervised = self.supervised.iter().map(|update| update.grad_norm);
        let count = self.updates.len() + self.supervised.len();
        on_completions.chain(supervised).sum::<f64>() / count as f64
    }

    /// Coefficient of the entropy bonus in the last update, and the mean loss of GRPO without the bonus; `None` if there
    /// is none.
    pub fn entropy_bonus(&self) -> Option<(f64, f64)> {
        let coef = self.updates.last()?.entropy_coef?;
        let without = |update: &Update| {
            update.grpo_loss + update.entropy_coef.unwrap_or(0.0) * update.entropy
        };
        Some((coef, self.mean(without)))
    }

    fn mean(&self, of: impl Fn(&Update) -> f64) -> f64 {
        self.updates.iter().map(of).sum::<f64>() / self.updates.len() as f64
    }
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

    /// Loss and gradients of all micro-batches. A first update whose sampler is not the trainer makes `loss` one that
    /// corrects that, for all of the step.
    pub(crate) fn gradients(
        &self,
        groups: &[Group],
        batches: &mut [MicroBatchState],
        loss: &mut LossConfig,
        times: &mut LearnTimes,
    ) -> Result<Pass, TrainError> {
        let started = Instant::now();
        let completions = completions(groups);
        // Denominators are of the whole batch.
        let totals = BatchTotals {
            sequences: completions.len(),
            tokens: completions.iter().map(|completion| completion.actions()).sum(),
            max_completion_length: self.config.sampling.max_new_tokens,
            high_entropy: self.high_entropy(batches)?,
        };
        let mut pass = self.pass(&completions, batches, loss, &totals)?;
        if pass.is_above && loss.mismatch.is_none() {
            // Before anything moved. That π_old is numbers by now changes nothing.
            loss.mismatch = Some(TRUNCATED);
            pass = self.pass(&completions, batches, loss, &totals)?;
        }
        let recorded = batches.iter_mut().zip(pass.recorded.drain(..));
        recorded.for_each(|(batch, terms)| batch.record(terms));
        times.add(started.elapsed(), pass.gradients.backward());
        Ok(pass)
    }

    fn pass(
        &self,
        completions: &[&Completion],
        batches: &mut [MicroBatchState],
        config: &LossConfig,
        totals: &BatchTotals,
    ) -> Result<Pass, TrainError> {
        let entropy_coef = self.progress.entropy_bonus.map(|bonus| bonus.coef());
        let update = UpdateLoss { config, totals, entropy_coef: entropy_coef.unwrap_or(0.0) };
        let (policy, checkpointing) = (self.policy(), self.config.train.activation_checkpointing);
        let mut pass = Pass {
            loss: 0.0,
            grpo_loss: 0.0,
            gradients: GradientSum::default(),
            entropy_coef,
            tokens: TokenStatistics::default(),
            is_above: false,
            recorded: Vec::new(),
        };
        for batch in batches {
            let forward = batch.forward(policy, checkpointing); // log π_θ
            let LossOutput { loss, terms } =
                batch.loss(policy, &forward.hidden, &self.reference, update);
            pass.is_above |= batch.is_above(completions, &self.config.sampler_check, config)?;
            pass.grpo_loss += finite(terms.loss)?;
            pass.tokens.add(&terms);
            pass.gradients.add_of(forward, loss * self.grpo_weight(), policy);
            pass.recorded.extend(self.is_recording.then_some(terms));
        }
        pass.loss = pass.grpo_loss;
        Ok(pass)
    }

    /// One optimizer step, on these completions.
    pub(crate) fn update(
        &mut self,
        pass: Pass,
        completions: Vec<LedgerCompletion>,
        learning_rate: f64,
    ) -> Result<Update, TrainError> {
        let Pass { loss, grpo_loss, gradients, entropy_coef, tokens, .. } = pass;
        let (grad_norm, ledger) = self.move_by(gradients, completions, learning_rate)?;
        let entropy = tokens.kept_entropy().unwrap_or(0.0);
        if let Some(bonus) = &mut self.progress.entropy_bonus {
            bonus.observe(entropy);
        }
        Ok(Update { loss, grpo_loss, grad_norm, entropy_coef, entropy, tokens, ledger })
    }

    /// Adds the gradients of auxiliary losses to those of the completions, which have their weight.
    pub(crate) fn add_combined(
        &self,
        groups: &[Group],
        pass: &mut Pass,
        times: &mut LearnTimes,
    ) -> Result<Option<CombinedTerms>, TrainError> {
        let Some(combined) = &self.combined else { return Ok(None) };
        let (policy, cut, gradients) = (self.policy(), self.cut(), &mut pass.gradients);
        let (started, before) = (Instant::now(), gradients.backward());
        let supervised_loss =
            combined.supervise(policy, self.seed, self.version(), cut, gradients)?;
        let diversity = combined.diversify(policy, groups, cut, gradients)?;
        times.add(started.elapsed(), gradients.backward() - before);
        let terms = CombinedTerms {
            supervised_loss,
            mean_supervised_loss: supervised_loss,
            grpo_loss: pass.grpo_loss,
            diversity,
        };
        pass.loss = combined.loss(&terms);
        Ok(Some(terms))
    }

    /// The optimizer steps that have examples alone; completes the terms of a combined loss.
    pub(crate) fn supervised_updates(
        &mut self,
        learning_rate: f64,
        terms: &mut Option<CombinedTerms>,
        times: &mut LearnTimes,
    ) -> Result<Vec<SupervisedUpdate>, TrainError> {
        let (Some(combined), Some(terms)) = (self.combined.clone(), terms) else {
            return Ok(Vec::new());
        };
        let mut updates = Vec::new();
        for _more in 1..combined.config().every {
            let (cut, mut gradients, index) = (self.cut(), GradientSum::default(), self.version());
            let started = Instant::now();
            let loss = combined.supervise(self.policy(), self.seed, index, cut, &mut gradients)?;
            times.add(started.elapsed(), gradients.backward());
            let update = || self.move_by(gradients, Vec::new(), learning_rate);
            let (grad_norm, ledger) = timed(&mut times.optimizer, update)?;
            updates.push(SupervisedUpdate { loss, grad_norm, ledger });
        }
        let all = updates.iter().map(|update| update.loss).chain([terms.supervised_loss]);
        terms.mean_supervised_loss = all.sum::<f64>() / (updates.len() + 1) as f64;
        Ok(updates)
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

    /// One optimizer step: the norm of the gradients before clipping, and its entry in the ledger.
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
        Ok((grad_norm, LedgerUpdate { version, weights, learning_rate, completions }))
    }

    /// What the loss of GRPO is multiplied by.
    fn grpo_weight(&self) -> f64 {
        self.combined.as_ref().map_or(1.0, |combined| combined.config().grpo_weight)
    }

    fn cut(&self) -> Cut {
        let train = &self.config.train;
        let tokens = Some(train.micro_batch_tokens);
        Cut { tokens, checkpointing: train.activation_checkpointing }
    }

    /// The threshold of the high-entropy mask, over all micro-batches, if there is one: a forward pass more.
    fn high_entropy(&self, batches: &[MicroBatchState]) -> Result<Option<HighEntropy>, TrainError> {
        let Some(share) = self.loss.high_entropy_share else { return Ok(None) };
        let policy = Frozen::snapshot(self.policy());
        let of_batch = |batch: &MicroBatchState| batch.entropies(&policy, self.loss.kl.estimator);
        let entropies: Vec<f64> = batches.iter().flat_map(of_batch).collect();
        if let Some(&value) = entropies.iter().find(|entropy| !entropy.is_finite()) {
            return Err(TrainError::Diverged { what: "entropy", value });
        }
        Ok(Some(HighEntropy::of(entropies, share)))
    }
}

fn completions(groups: &[Group]) -> Vec<&Completion> {
    groups.iter().flat_map(Group::completions).collect()
}
