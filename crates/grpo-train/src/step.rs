//! One step of GRPO: collect, score, update.

use std::time::{Duration, Instant};

use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use grpo_core::{
    Advantages, BatchTotals, HostTokens, LossConfig, LossInputs, TokenStatistics, accumulate,
    group_advantages, grpo_loss,
};
use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_model::{CausalLm, Frozen};
use grpo_rewards::{Outcome, RewardRunner};
use grpo_rollout::{Rollout, StepKey};

use crate::collate::{MicroBatch, micro_batches};
use crate::error::finite_loss;
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
    /// Mean and largest |log-probability when sampled − when first scored|: rounding, unless something is wrong.
    pub sampling_difference: [f64; 2],
    /// Mean loss of the step's updates.
    pub loss: f64,
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
    /// Rewards and advantages.
    pub reward: Duration,
    /// Reference, loss, gradients, optimizer.
    pub update: Duration,
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

        // r_i with parts, and Â_i
        let texts = self.texts(&groups);
        let outcomes = self.rewards.score(texts.clone());
        let rewards = self.rewards_of_groups(&outcomes, step)?;
        let advantages = group_advantages(&rewards, &self.config.advantages())?;
        let reward_time = started.elapsed() - rollout_time;

        // Denominators are of the whole batch; micro-batches only decide memory.
        let completions: Vec<&Completion> = groups.iter().flat_map(|g| &g.completions).collect();
        let totals = BatchTotals {
            sequences: completions.len(),
            tokens: completions.iter().map(|completion| completion.actions()).sum(),
            max_completion_length: self.config.sampling.max_new_tokens,
        };
        let with_advantages: Vec<(&Completion, f64)> =
            completions.into_iter().zip(advantages.groups.iter().flatten().copied()).collect();
        let mut micro_batches: Vec<Frame<'_>> = micro_batches(
            &with_advantages,
            self.config.train.micro_batch_size,
            self.padding,
            self.policy.vocabulary_size(),
            self.loss.reduction,
            &totals,
        )
        .into_iter()
        .map(|micro| Frame::new(micro, &self.reference)) // log π_ref
        .collect();

        let learning_rate = self.config.learning_rate(step);
        let updates = self.config.train.updates_per_rollout;
        let mut tokens = TokenStatistics::default();
        let (mut mean_loss, mut mean_norm) = (0.0, 0.0);
        for _update in 0..updates {
            let mut gradients: Option<GradientsParams> = None;
            for frame in &mut micro_batches {
                let loss = frame.loss(&self.policy, &self.loss, &mut tokens);
                mean_loss += finite_loss(loss.clone())? / f64::from(updates);
                let more = GradientsParams::from_grads(loss.backward(), &self.policy);
                gradients = Some(accumulate(&self.policy, gradients, more));
            }
            let gradients = gradients.expect("a step has completions");
            // Clipped by the global norm. Cloned, so that a refused step leaves the policy as it is.
            let (policy, norm) =
                self.optimizer.step(self.policy.clone(), gradients, learning_rate)?;
            self.policy = policy;
            self.version += 1;
            mean_norm += norm / f64::from(updates);
        }
        let sampling_difference = sampling_difference(&micro_batches);
        drop(micro_batches);
        let times = PhaseTimes {
            rollout: rollout_time,
            reward: reward_time,
            update: started.elapsed() - rollout_time - reward_time,
        };
        Ok(StepReport {
            step,
            groups,
            texts,
            outcomes,
            advantages,
            tokens,
            sampling_difference,
            loss: mean_loss,
            grad_norm: mean_norm,
            learning_rate,
            times,
        })
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

    /// Total rewards by group; `None` where there is none.
    fn rewards_of_groups(
        &self,
        outcomes: &[Outcome],
        step: u32,
    ) -> Result<Vec<Vec<Option<f64>>>, TrainError> {
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
        let groups = outcomes.chunks(self.config.train.group_size);
        Ok(groups.map(|group| group.iter().map(Outcome::total).collect()).collect())
    }
}

/// A micro-batch with the log-probabilities that stay as they are during the step.
struct Frame<'a> {
    micro: MicroBatch<'a>,
    /// `log π_ref`, `[b · t]`.
    reference: Vec<f32>,
    /// `log π_θ` of the first update, which is `log π_old`, `[b · t]`.
    old: Option<Vec<f32>>,
}

impl<'a> Frame<'a> {
    fn new<M: CausalLm>(micro: MicroBatch<'a>, reference: &Frozen<M>) -> Self {
        let reference = host(micro.score_frozen(reference));
        Self { micro, reference, old: None }
    }

    /// This micro-batch's part of the loss, `[1]`; adds its tokens to `statistics`.
    fn loss<M: CausalLm>(
        &mut self,
        policy: &M,
        config: &LossConfig,
        statistics: &mut TokenStatistics,
    ) -> Tensor<1> {
        let shape = self.micro.shape();
        let device = policy.device().inner();
        let constant = |values: &[f32]| -> Tensor<2> {
            Tensor::<1>::from_data(values, &device).reshape(shape)
        };
        let scores = self.micro.score_policy(policy); // log π_θ
        let logprobs = host(scores.logprobs.clone());
        statistics.add(
            &HostTokens {
                logprobs: &logprobs,
                old_logprobs: self.old.as_deref(),
                ref_logprobs: Some(&self.reference),
                entropies: &host(scores.entropies),
                mask: &self.micro.mask,
                advantages: &self.micro.advantages,
            },
            config,
        );
        let (weights, advantages) = self.micro.constants(&device);
        let inputs = LossInputs {
            logprobs: scores.logprobs.reshape(shape),
            old_logprobs: self.old.as_deref().map(constant),
            ref_logprobs: Some(constant(&self.reference)),
            advantages,
            weights,
        };
        self.old.get_or_insert(logprobs);
        grpo_loss(inputs, config)
    }
}

/// Mean and largest distance of the sampler's log-probabilities from the trainer's.
fn sampling_difference(frames: &[Frame<'_>]) -> [f64; 2] {
    let (mut sum, mut largest, mut count) = (0.0, 0.0_f64, 0);
    for frame in frames {
        let trainer = frame.old.as_deref().unwrap_or_default();
        let [_, columns] = frame.micro.shape();
        for (row, completion) in frame.micro.completions.iter().enumerate() {
            let places = (0..columns).filter(|&t| frame.micro.mask[row][t]);
            for (t, &sampled) in places.zip(completion.sampling_logprobs()) {
                let difference = f64::from((sampled - trainer[row * columns + t]).abs());
                sum += difference;
                largest = largest.max(difference);
                count += 1;
            }
        }
    }
    [sum / f64::from(count), largest]
}

fn host(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
