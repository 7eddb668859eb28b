//! One step of GRPO: collect, score, update.

use std::time::{Duration, Instant};

use burn::optim::GradientsParams;
use grpo_core::{
    Advantages, BatchTotals, EntropyController, HighEntropy, LossConfig, TokenStatistics,
    accumulate, weighted_group_advantages,
};
use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_model::{CausalLm, Frozen};
use grpo_rewards::{Outcome, RewardRunner};
use grpo_rollout::{Rollout, StepKey};

use crate::collate::micro_batches;
use crate::error::finite_loss;
use crate::frame::Frame;
use crate::reward_functions::RewardFunctions;
use crate::{GrpoConfig, Optimizer, TrainError};

/// Turns the token ids of a completion's actions into the text that the reward sees.
pub type Decode = Box<dyn Fn(&[u32]) -> String>;

/// A policy in training, its reference, and what the two are trained with.
pub struct Grpo<M> {
    pub(crate) policy: M,
    pub(crate) reference: Frozen<M>,
    pub(crate) optimizer: Optimizer,
    pub(crate) rollout: Rollout,
    pub(crate) rewards: RewardRunner,
    pub(crate) decode: Decode,
    /// Stands in padded places; never looked at.
    pub(crate) padding: u32,
    pub(crate) config: GrpoConfig,
    pub(crate) loss: LossConfig,
    /// The coefficient of the entropy bonus, where there is one.
    pub(crate) entropy_bonus: Option<EntropyController>,
    pub(crate) seed: u64,
    /// Optimizer steps done.
    pub(crate) version: u64,
}

/// What came of a step.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// The step, from 0.
    pub step: u32,
    /// What was sampled.
    pub groups: Vec<Group>,
    /// Each completion as text, group by group.
    pub texts: Vec<String>,
    /// Verdicts of the reward, group by group.
    pub outcomes: Vec<Outcome>,
    /// What they made of it.
    pub advantages: Advantages,
    /// Sums over tokens of all updates of the step.
    pub tokens: TokenStatistics,
    /// Mean over completions of the KL that their rewards lost; `None` where it is no part of the reward.
    pub reward_kl: Option<f64>,
    /// Mean loss of the step's updates.
    pub loss: f64,
    /// Coefficient of the entropy bonus in the last update, and the mean loss without the bonus; `None`
    /// where there is none.
    pub entropy_bonus: Option<(f64, f64)>,
    /// Mean gradient norm of the step's updates, before clipping.
    pub grad_norm: f64,
    /// What the updates used.
    pub learning_rate: f64,
    /// Where the time went.
    pub times: PhaseTimes,
}

/// Duration of each phase of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct PhaseTimes {
    /// Sampling.
    pub rollout: Duration,
    /// Rewards.
    pub reward: Duration,
    /// Reference, advantages, loss, gradients, optimizer.
    pub update: Duration,
}

/// What came of one optimizer step.
struct Update {
    loss: f64,
    grad_norm: f64,
    entropy_coef: f64,
    /// Mean over the tokens that the entropy bonus is of.
    entropy: f64,
    tokens: TokenStatistics,
}

impl<M: CausalLm> Grpo<M> {
    /// Samples groups for `prompts`, scores them, and updates the policy on them: nothing is kept for later.
    ///
    /// # Errors
    /// Rewards that failed or are not finite; a loss or gradient that is not finite. The policy is then as it
    /// was after its last whole update.
    pub fn step(&mut self, prompts: &[Prompt], step: u32) -> Result<StepReport, TrainError> {
        let started = Instant::now();
        // o_i ~ π_old(· | q), with their log-probabilities
        let groups =
            self.rollout.sample(&Frozen::snapshot(&self.policy), prompts, self.key(step))?;
        let rollout_time = started.elapsed();

        // r_i with parts
        let texts = self.texts(&groups);
        let outcomes = self.rewards.score(texts.clone());
        let mut rewards = self.reward_functions(&outcomes, step)?;
        let reward_time = started.elapsed() - rollout_time;

        // log π_ref; micro-batches only decide memory.
        let completions: Vec<&Completion> = groups.iter().flat_map(|g| &g.completions).collect();
        let size = self.config.train.micro_batch_size;
        let micro = micro_batches(&completions, size, self.padding, self.policy.vocabulary_size());
        let mut frames: Vec<Frame<'_>> =
            micro.into_iter().map(|micro| Frame::new(micro, &self.reference)).collect();

        // Â_i
        let reward_kl = self.loss.kl.in_reward().then(|| self.penalise(&mut rewards, &frames));
        let advantages = weighted_group_advantages(
            &rewards.by_group(self.config.train.group_size),
            rewards.weights(),
            &self.config.advantages()?,
        )?;
        let of_completions = advantages.groups.concat();
        frames.iter_mut().for_each(|frame| frame.set_advantages(&of_completions));

        // Denominators are of the whole batch.
        let mut totals = BatchTotals {
            sequences: completions.len(),
            tokens: completions.iter().map(|completion| completion.actions()).sum(),
            max_completion_length: self.config.sampling.max_new_tokens,
            high_entropy: None,
        };
        let learning_rate = self.config.learning_rate(step);
        let updates = self.config.train.updates_per_rollout;
        let mut done: Vec<Update> = Vec::new();
        for _update in 0..updates {
            totals.high_entropy = self.high_entropy(&frames)?;
            done.push(self.update(&mut frames, &totals, learning_rate)?);
        }
        drop(frames);
        let times = PhaseTimes {
            rollout: rollout_time,
            reward: reward_time,
            update: started.elapsed() - rollout_time - reward_time,
        };
        let mut tokens = TokenStatistics::default();
        done.iter().for_each(|update| tokens.merge(&update.tokens));
        let mean =
            |of: &dyn Fn(&Update) -> f64| done.iter().map(of).sum::<f64>() / f64::from(updates);
        Ok(StepReport {
            step,
            groups,
            texts,
            outcomes,
            advantages,
            tokens,
            reward_kl,
            loss: mean(&|update| update.loss),
            entropy_bonus: self.entropy_bonus.map(|_| {
                let last = done.last().map_or(0.0, |update| update.entropy_coef);
                (last, mean(&|update| update.loss + update.entropy_coef * update.entropy))
            }),
            grad_norm: mean(&|update| update.grad_norm),
            learning_rate,
            times,
        })
    }

    /// One optimizer step on all micro-batches.
    fn update(
        &mut self,
        frames: &mut [Frame<'_>],
        totals: &BatchTotals,
        learning_rate: f64,
    ) -> Result<Update, TrainError> {
        let entropy_coef = self.entropy_bonus.map_or(0.0, |bonus| bonus.coef());
        let mut tokens = TokenStatistics::default();
        let mut gradients: Option<GradientsParams> = None;
        let mut total = 0.0;
        for frame in frames {
            let (policy, reference) = (&self.policy, &self.reference);
            let loss = frame.loss(policy, reference, &self.loss, totals, entropy_coef, &mut tokens);
            total += finite_loss(loss.clone())?;
            let more = GradientsParams::from_grads(loss.backward(), &self.policy);
            gradients = Some(accumulate(&self.policy, gradients, more));
        }
        let gradients = gradients.expect("a step has completions");
        // Clipped by the global norm. Cloned, so that a refused step leaves the policy as it is.
        let (policy, grad_norm) =
            self.optimizer.step(self.policy.clone(), gradients, learning_rate)?;
        self.policy = policy;
        self.version += 1;
        let entropy = tokens.kept_entropy().unwrap_or(0.0);
        if let Some(bonus) = &mut self.entropy_bonus {
            bonus.observe(entropy);
        }
        Ok(Update { loss: total, grad_norm, entropy_coef, entropy, tokens })
    }

    /// Takes `β · Σ_t KL` off each completion's reward, and gives the mean of the sums.
    fn penalise(&self, rewards: &mut RewardFunctions, frames: &[Frame<'_>]) -> f64 {
        let kl = &self.loss.kl;
        let of_frame =
            |frame: &Frame<'_>| frame.sequence_kl(&self.policy, &self.reference, kl.estimator);
        let mut of_completions: Vec<(usize, f64)> = frames.iter().flat_map(of_frame).collect();
        of_completions.sort_by_key(|(place, _)| *place);
        let values: Vec<f64> = of_completions.into_iter().map(|(_, value)| value).collect();
        rewards.subtract(kl.coef, &values);
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// The threshold of the high-entropy mask, over all micro-batches, where there is one: a forward pass
    /// more.
    fn high_entropy(&self, frames: &[Frame<'_>]) -> Result<Option<HighEntropy>, TrainError> {
        let Some(share) = self.loss.high_entropy_share else { return Ok(None) };
        let policy = Frozen::snapshot(&self.policy);
        let of_frame = |frame: &Frame<'_>| frame.entropies(&policy, self.loss.kl.estimator);
        let entropies: Vec<f64> = frames.iter().flat_map(of_frame).collect();
        if let Some(&value) = entropies.iter().find(|entropy| !entropy.is_finite()) {
            return Err(TrainError::Diverged { what: "entropy", value });
        }
        Ok(Some(HighEntropy::of(entropies, share)))
    }

    fn key(&self, step: u32) -> StepKey {
        StepKey { seed: self.seed, purpose: Purpose::Sampling, step, policy_version: self.version }
    }

    fn texts(&self, groups: &[Group]) -> Vec<String> {
        let completions = groups.iter().flat_map(|group| &group.completions);
        completions
            .map(|completion| (self.decode)(&completion.action_ids().collect::<Vec<u32>>()))
            .collect()
    }

    /// Rewards by completion, as long as not too many failed.
    fn reward_functions(
        &self,
        outcomes: &[Outcome],
        step: u32,
    ) -> Result<RewardFunctions, TrainError> {
        let mut failures = outcomes.iter().filter_map(Outcome::failure);
        if let Some(reason) = failures.next() {
            let failed = 1 + failures.count();
            if failed as f64 > self.config.train.max_failed_rewards * outcomes.len() as f64 {
                return Err(TrainError::Reward {
                    step: u64::from(step) + 1,
                    failed,
                    all: outcomes.len(),
                    reason: reason.to_owned(),
                });
            }
        }
        Ok(RewardFunctions::new(outcomes, self.config.advantage.aggregation))
    }
}
