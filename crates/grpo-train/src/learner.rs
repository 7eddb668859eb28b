//! What a policy learns from completions and their rewards, whoever sampled them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use burn::tensor::TensorData;
use grpo_core::{
    AdaptiveKl, Advantages, BatchTotals, EntropyController, HighEntropy, LossConfig, LossOutput,
    LossTerms, TokenStatistics, weighted_group_advantages,
};
use grpo_data::{Completion, Group};
use grpo_model::{Frozen, LanguageModel, StoredTensors, WeightsDigest, weights_digest};
use grpo_rewards::Outcome;
use grpo_run::{LedgerCompletion, LedgerUpdate};
use serde::{Deserialize, Serialize};

use crate::collate::micro_batches;
use crate::error::finite;
use crate::ledger::entry;
use crate::micro_batch_state::{MicroBatchState, UpdateLoss};
use crate::optimizer::Remembered;
use crate::reward_functions::RewardFunctions;
use crate::sampler_check::TRUNCATED;
use crate::supervised::{Cut, GradientSum};
use crate::token_record::TokenRecord;
use crate::{Combined, CombinedTerms, GrpoConfig, Optimizer, TrainError};

/// A policy in training, its reference, and what the two are trained with.
pub struct Learner<M> {
    /// There except while an optimizer step changes it in place.
    policy: Option<M>,
    reference: Frozen<M>,
    /// The reference of the start, where it can become another one: a run may go back to before it did.
    first_reference: Option<Frozen<M>>,
    /// Whether the reference is another one than at the start.
    reference_moved: bool,
    /// Steps that were learned with it.
    reference_age: u64,
    optimizer: Optimizer,
    config: GrpoConfig,
    loss: LossConfig,
    /// What is learned besides, where something is.
    combined: Option<Combined>,
    /// Of the order of examples.
    seed: u64,
    /// The coefficient of the KL penalty, where it follows the KL.
    kl: Option<AdaptiveKl>,
    /// The coefficient of the entropy bonus, where there is one.
    entropy_bonus: Option<EntropyController>,
    /// Optimizer steps done.
    version: u64,
    /// Whether lessons say what was computed for each token.
    is_recording: bool,
}

/// The part of a learner that is numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearnerState {
    policy_version: u64,
    entropy_bonus: Option<EntropyController>,
    kl_coef: f64,
    reference_age: u64,
    /// Steps that the optimizer has done with each parameter.
    optimizer_steps: BTreeMap<String, u32>,
}

/// What came of the completions of a step.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// What the rewards made of them.
    pub advantages: Advantages,
    /// Mean over completions of the KL that their rewards lost; `None` where it is no part of the reward.
    pub reward_kl: Option<f64>,
    /// Coefficient of the KL penalty.
    pub kl_coef: f64,
    /// Steps before this one that had the same reference.
    pub reference_age: u64,
    /// Whether the sampler was further from the trainer than it may be, so that its tokens were weighed; `None` where
    /// that ends the run.
    pub corrected: Option<bool>,
    /// Hash of the reference that the policy was held back by.
    pub reference: WeightsDigest,
    /// The optimizer steps on the completions, μ of them.
    pub updates: Vec<Update>,
    /// Those behind them that had examples alone.
    pub supervised: Vec<SupervisedUpdate>,
    /// The terms of a combined loss, where it is one.
    pub combined: Option<CombinedTerms>,
    /// What was computed for the tokens of each completion, where [`Learner::set_recording`] asked for it.
    pub recorded: Option<Vec<TokenRecord>>,
    /// Where the time went.
    pub times: LessonTimes,
}

/// Duration of each phase of a lesson. A device that computes on its own has what it was told to do counted where its
/// result is first waited for: much of the backward pass under the optimizer.
#[derive(Clone, Copy, Debug, Default)]
pub struct LessonTimes {
    /// `log π_ref`.
    pub reference: Duration,
    /// `log π_θ` and the loss of it.
    pub forward: Duration,
    /// Gradients.
    pub backward: Duration,
    /// Clipping, and the change of the weights.
    pub optimizer: Duration,
}

/// What came of one optimizer step.
#[derive(Clone, Debug)]
pub struct Update {
    /// What was minimised, over all micro-batches.
    pub loss: f64,
    /// The part of it that is GRPO's, without its weight in a combined loss; all of it where nothing else is learned.
    pub grpo_loss: f64,
    /// Norm of all gradients before clipping.
    pub grad_norm: f64,
    /// Coefficient of the entropy bonus, where there is one.
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

/// What a pass over the micro-batches gave, before the policy moves.
struct Pass {
    /// That of GRPO.
    loss: f64,
    gradients: GradientSum,
    entropy_coef: Option<f64>,
    tokens: TokenStatistics,
    /// Whether the sampler was further from the trainer than it may be.
    is_above: bool,
    /// The completions that the gradients are of.
    used: Vec<LedgerCompletion>,
    /// What was computed for each token of each micro-batch, if that is recorded.
    recorded: Vec<LossTerms>,
    forward: Duration,
    backward: Duration,
}

impl LessonTimes {
    /// Of what took `all`, `backward` was for gradients.
    fn book(&mut self, all: Duration, backward: Duration) {
        self.forward += all.saturating_sub(backward);
        self.backward += backward;
    }
}

impl Lesson {
    /// Sums over tokens of all updates.
    pub(crate) fn tokens(&self) -> TokenStatistics {
        let mut tokens = TokenStatistics::default();
        self.updates.iter().for_each(|update| tokens.merge(&update.tokens));
        tokens
    }

    /// Mean norm of the gradients, over all optimizer steps.
    pub(crate) fn grad_norm(&self) -> f64 {
        let on_completions = self.updates.iter().map(|update| update.grad_norm);
        let supervised = self.supervised.iter().map(|update| update.grad_norm);
        let count = self.updates.len() + self.supervised.len();
        on_completions.chain(supervised).sum::<f64>() / count as f64
    }
}

impl Update {
    /// The loss of GRPO without the entropy bonus.
    pub(crate) fn loss_without_bonus(&self) -> f64 {
        self.grpo_loss + self.entropy_coef.unwrap_or(0.0) * self.entropy
    }
}

impl<M: LanguageModel> Learner<M> {
    /// A training that begins at `policy`.
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
            kl: config.kl_controller.map(|controller| AdaptiveKl::new(controller, loss.kl.coef)),
            entropy_bonus: loss.entropy_bonus.map(EntropyController::new),
            config: config.clone(),
            version: 0,
            is_recording: false,
            policy: Some(policy),
            first_reference: config.can_move_back().then(|| reference.clone()),
            reference,
            reference_moved: false,
            reference_age: 0,
        })
    }

    /// From now on, what else is learned; the examples' order is a function of `seed`.
    pub fn combine(&mut self, combined: Combined, seed: u64) {
        (self.combined, self.seed) = (Some(combined), seed);
    }

    /// The policy as it is now.
    pub fn policy(&self) -> &M {
        self.policy.as_ref().expect("only an optimizer step takes it, and that cannot fail")
    }

    /// Optimizer steps done.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All that the next step depends on besides the configuration and the policy itself.
    pub(crate) fn remembered(&self) -> (LearnerState, StoredTensors, Option<StoredTensors>) {
        let Remembered { steps, means } = self.optimizer.remembered(self.policy());
        let state = LearnerState {
            policy_version: self.version,
            entropy_bonus: self.entropy_bonus,
            kl_coef: self.kl_coef(),
            reference_age: self.reference_age,
            optimizer_steps: steps,
        };
        (state, means, self.reference_moved.then(|| self.reference.stored()))
    }

    /// Goes on from there, with `policy`, which has the weights of then.
    ///
    /// # Errors
    /// In words, where it was remembered of another model or other settings.
    pub(crate) fn restore(
        &mut self,
        policy: M,
        state: LearnerState,
        means: BTreeMap<String, TensorData>,
        reference: Option<(BTreeMap<String, TensorData>, &Path)>,
    ) -> Result<(), String> {
        let LearnerState {
            policy_version,
            entropy_bonus,
            kl_coef,
            reference_age,
            optimizer_steps: steps,
        } = state;
        if entropy_bonus.is_some() != self.entropy_bonus.is_some() {
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
        self.reference_age = reference_age;
        self.version = policy_version;
        self.entropy_bonus = entropy_bonus;
        self.set_kl_coef(kl_coef);
        Ok(())
    }

    /// Hash of the reference as it is now.
    pub fn reference_digest(&self) -> WeightsDigest {
        self.reference.digest()
    }

    /// From now on, whether a [`Lesson`] says what was computed for each token. What is learned is the same, bit for bit;
    /// it takes a little longer, as the loss of each update is differentiated by the log-probabilities of tokens as well.
    pub fn set_recording(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
    }

    /// What holds it back.
    pub fn reference(&self) -> &Frozen<M> {
        &self.reference
    }

    /// Steps that were learned with the reference as it is.
    pub fn reference_age(&self) -> u64 {
        self.reference_age
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
        self.reference_age = 0;
        self.reference_moved = true;
        Ok(())
    }

    /// The coefficient of the KL penalty in the next step.
    pub fn kl_coef(&self) -> f64 {
        self.loss.kl.coef
    }

    /// Goes on from another coefficient of the KL penalty, within the bounds of the controller where there is one.
    pub fn set_kl_coef(&mut self, coef: f64) {
        self.loss.kl.coef = match &mut self.kl {
            Some(adaptive) => {
                adaptive.set_coef(coef);
                adaptive.coef()
            }
            None => coef,
        };
    }

    /// Updates the policy on the completions of a step: nothing is kept for later. `outcomes` are group by group.
    ///
    /// # Errors
    /// Rewards that no advantage can be made of; a sampler that is not the trainer; a loss or gradient that is not
    /// finite. The policy is then as it was after its last whole update.
    pub fn learn(
        &mut self,
        groups: &[Group],
        outcomes: &[Outcome],
        learning_rate: f64,
    ) -> Result<Lesson, TrainError> {
        let reference = self.reference_digest();
        let mut times = LessonTimes::default();
        let started = Instant::now();
        // log π_ref; micro-batches only decide memory.
        let completions: Vec<&Completion> = groups.iter().flat_map(|g| &g.completions).collect();
        let tokens = self.config.train.micro_batch_tokens;
        let micro = micro_batches(&completions, tokens, self.policy().vocabulary_size());
        let mut frames: Vec<MicroBatchState<'_>> =
            micro.into_iter().map(|micro| MicroBatchState::new(micro, &self.reference)).collect();
        times.reference = started.elapsed();

        // Â_i
        let mut rewards = RewardFunctions::new(outcomes, self.config.advantage.aggregation);
        let reward_kl = self.loss.kl.in_reward().then(|| self.penalise(&mut rewards, &frames));
        let advantages = weighted_group_advantages(
            &rewards.by_group(self.config.train.group_size),
            rewards.weights(),
            &self.config.advantages()?,
        )?;
        let of_completions = advantages.groups.concat();
        let is_scored: Vec<bool> = outcomes.iter().map(|o| o.total().is_some()).collect();
        frames.iter_mut().for_each(|frame| frame.set_advantages(&of_completions, &is_scored));

        // Denominators are of the whole batch.
        let mut totals = BatchTotals {
            sequences: completions.len(),
            tokens: completions.iter().map(|completion| completion.actions()).sum(),
            max_completion_length: self.config.sampling.max_new_tokens,
            high_entropy: None,
        };
        let mut updates: Vec<Update> = Vec::new();
        let (mut loss, mut is_above, mut combined) = (self.loss, false, None);
        for _update in 0..self.config.train.updates_per_rollout {
            totals.high_entropy = self.high_entropy(&frames)?;
            let mut pass = self.pass(&mut frames, &loss, &totals)?;
            if pass.is_above && loss.mismatch.is_none() {
                // In the first update, before anything moved: all of the step has the other loss. That π_old is numbers
                // by now changes nothing.
                loss.mismatch = Some(TRUNCATED);
                pass = self.pass(&mut frames, &loss, &totals)?;
            }
            let mut loss_of_all = pass.loss;
            if let Some(companion) = &self.combined {
                let terms = self.combine_gradients(companion, groups, &mut pass, &mut times)?;
                loss_of_all = companion.loss(&terms);
                combined = Some(terms);
            }
            is_above |= pass.is_above;
            frames.iter_mut().zip(pass.recorded.drain(..)).for_each(|(f, terms)| f.record(terms));
            times.forward += pass.forward;
            times.backward += pass.backward;
            let started = Instant::now();
            updates.push(self.update(pass, loss_of_all, learning_rate)?);
            times.optimizer += started.elapsed();
        }
        let supervised = self.supervised_updates(learning_rate, &mut times)?;
        if let Some(terms) = &mut combined {
            let all = supervised.iter().map(|update| update.loss).chain([terms.supervised_loss]);
            terms.mean_supervised_loss = all.sum::<f64>() / (supervised.len() + 1) as f64;
        }
        let corrected = self.config.sampler_check.corrects(&self.loss).then_some(is_above);
        let weight = self.grpo_weight();
        let records = || frames.iter().flat_map(MicroBatchState::token_records);
        let recorded =
            self.is_recording.then(|| records().map(|record| record.weighted(weight)).collect());
        let lesson = Lesson {
            advantages,
            reward_kl,
            kl_coef: self.kl_coef(),
            reference_age: self.reference_age,
            corrected,
            reference,
            updates,
            supervised,
            combined,
            recorded,
            times,
        };
        self.reference_age += 1;
        if let (Some(adaptive), Some(kl)) = (&mut self.kl, lesson.tokens().kl()) {
            adaptive.observe(kl, completions.len());
            self.loss.kl.coef = adaptive.coef();
        }
        Ok(lesson)
    }

    /// Loss and gradients of all micro-batches.
    fn pass(
        &self,
        frames: &mut [MicroBatchState<'_>],
        config: &LossConfig,
        totals: &BatchTotals,
    ) -> Result<Pass, TrainError> {
        let entropy_coef = self.entropy_bonus.map(|bonus| bonus.coef());
        let update = UpdateLoss { config, totals, entropy_coef: entropy_coef.unwrap_or(0.0) };
        let (policy, reference) = (self.policy(), &self.reference);
        let mut tokens = TokenStatistics::default();
        let weight = self.grpo_weight();
        let mut gradients = GradientSum::default();
        let (mut used, mut recorded) = (Vec::new(), Vec::new());
        let (mut total, mut is_above) = (0.0, false);
        let mut of_forward = Duration::ZERO;
        for frame in frames {
            let started = Instant::now();
            let forward = frame.forward(policy, self.config.train.activation_checkpointing);
            let LossOutput { loss, terms } =
                frame.loss(policy, &forward.hidden, reference, update);
            is_above |= frame.is_above(&self.config.sampler_check, config)?;
            total += finite(terms.loss)?;
            tokens.add(&terms);
            recorded.extend(self.is_recording.then_some(terms));
            of_forward += started.elapsed();
            gradients.add_of(forward, loss * weight, policy);
            used.extend(frame.completions().iter().map(|completion| entry(completion)));
        }
        let (forward, backward) = (of_forward, gradients.backward());
        Ok(Pass {
            loss: total,
            gradients,
            entropy_coef,
            tokens,
            is_above,
            used,
            recorded,
            forward,
            backward,
        })
    }

    /// One optimizer step, of what all terms together make `loss`.
    fn update(&mut self, pass: Pass, loss: f64, learning_rate: f64) -> Result<Update, TrainError> {
        let Pass { loss: grpo_loss, gradients, entropy_coef, tokens, used, .. } = pass;
        let (grad_norm, ledger) = self.move_by(gradients, used, learning_rate)?;
        let entropy = tokens.kept_entropy().unwrap_or(0.0);
        if let Some(bonus) = &mut self.entropy_bonus {
            bonus.observe(entropy);
        }
        Ok(Update { loss, grpo_loss, grad_norm, entropy_coef, entropy, tokens, ledger })
    }

    /// Adds to the gradients of the completions, which have their weight, those of the other terms of a combined loss.
    fn combine_gradients(
        &self,
        companion: &Combined,
        groups: &[Group],
        pass: &mut Pass,
        times: &mut LessonTimes,
    ) -> Result<CombinedTerms, TrainError> {
        let (policy, cut, gradients) = (self.policy(), self.cut(), &mut pass.gradients);
        let (started, before) = (Instant::now(), gradients.backward());
        let supervised_loss =
            companion.supervise(policy, self.seed, self.version, cut, gradients)?;
        let diversity = companion.diversify(policy, groups, cut, gradients)?;
        times.book(started.elapsed(), gradients.backward() - before);
        Ok(CombinedTerms {
            supervised_loss,
            mean_supervised_loss: supervised_loss,
            grpo_loss: pass.loss,
            diversity,
        })
    }

    /// The optimizer steps that have examples alone.
    fn supervised_updates(
        &mut self,
        learning_rate: f64,
        times: &mut LessonTimes,
    ) -> Result<Vec<SupervisedUpdate>, TrainError> {
        let Some(companion) = self.combined.clone() else { return Ok(Vec::new()) };
        let mut updates = Vec::new();
        for _more in 1..companion.config().every {
            let (cut, mut gradients) = (self.cut(), GradientSum::default());
            let (policy, index) = (self.policy(), self.version);
            let started = Instant::now();
            let loss = companion.supervise(policy, self.seed, index, cut, &mut gradients)?;
            times.book(started.elapsed(), gradients.backward());
            let started = Instant::now();
            let (grad_norm, ledger) = self.move_by(gradients, Vec::new(), learning_rate)?;
            times.optimizer += started.elapsed();
            updates.push(SupervisedUpdate { loss, grad_norm, ledger });
        }
        Ok(updates)
    }

    /// One optimizer step: the norm of the gradients before clipping, and what is to be proved of it.
    fn move_by(
        &mut self,
        gradients: GradientSum,
        used: Vec<LedgerCompletion>,
        learning_rate: f64,
    ) -> Result<(f64, LedgerUpdate), TrainError> {
        let admitted = Optimizer::admit(self.policy(), gradients.finish())?;
        let grad_norm = admitted.norm;
        let policy = self.policy.take();
        self.policy = policy.map(|policy| self.optimizer.apply(policy, admitted, learning_rate));
        self.version += 1;
        let ledger = LedgerUpdate {
            version: self.version,
            weights: weights_digest(self.policy()).into(),
            learning_rate,
            completions: used,
        };
        Ok((grad_norm, ledger))
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

    /// Takes `β · Σ_t KL` off each completion's reward, and gives the mean of the sums.
    fn penalise(&self, rewards: &mut RewardFunctions, frames: &[MicroBatchState<'_>]) -> f64 {
        let kl = &self.loss.kl;
        let of_frame =
            |frame: &MicroBatchState<'_>| frame.sequence_kl(self.policy(), &self.reference, kl.estimator);
        let mut of_completions: Vec<(usize, f64)> = frames.iter().flat_map(of_frame).collect();
        of_completions.sort_by_key(|(place, _)| *place);
        let values: Vec<f64> = of_completions.into_iter().map(|(_, value)| value).collect();
        rewards.subtract(kl.coef, &values);
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// The threshold of the high-entropy mask, over all micro-batches, where there is one: a forward pass
    /// more.
    fn high_entropy(&self, frames: &[MicroBatchState<'_>]) -> Result<Option<HighEntropy>, TrainError> {
        let Some(share) = self.loss.high_entropy_share else { return Ok(None) };
        let policy = Frozen::snapshot(self.policy());
        let of_frame = |frame: &MicroBatchState<'_>| frame.entropies(&policy, self.loss.kl.estimator);
        let entropies: Vec<f64> = frames.iter().flat_map(of_frame).collect();
        if let Some(&value) = entropies.iter().find(|entropy| !entropy.is_finite()) {
            return Err(TrainError::Diverged { what: "entropy", value });
        }
        Ok(Some(HighEntropy::of(entropies, share)))
    }
}
