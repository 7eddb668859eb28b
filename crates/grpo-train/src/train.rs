//! The loop around the step.

use std::time::Duration;

use grpo_core::EntropyController;
use grpo_data::Prompt;
use grpo_model::{CausalLm, Frozen};
use grpo_rewards::RewardRunner;
use grpo_rollout::{Rollout, RolloutSettings};

use crate::{Decode, Grpo, GrpoConfig, Metrics, Optimizer, StepReport, TrainError};

/// Who is told how a training goes.
pub trait TrainObserver<M> {
    /// After each step, with the policy as it is now.
    ///
    /// # Errors
    /// Ends the training.
    fn step(
        &mut self,
        report: &StepReport,
        metrics: &Metrics,
        policy: &M,
    ) -> Result<(), TrainError>;
}

impl<M: CausalLm> Grpo<M> {
    /// A training that begins at `policy`, with `policy` as it is now for a reference.
    ///
    /// `boundary` ends completions; `longest_prompt` is in tokens; `decode` turns actions into the text that
    /// the reward sees.
    ///
    /// # Errors
    /// Settings that are out of range or do not fit the model.
    pub fn new(
        policy: M,
        config: GrpoConfig,
        seed: u64,
        boundary: u32,
        longest_prompt: usize,
        decode: Decode,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let loss = config.loss.resolve()?;
        let reward = config.reward.build()?;
        let settings = RolloutSettings {
            group_size: config.train.group_size,
            max_new_tokens: config.sampling.max_new_tokens,
            end_ids: vec![boundary],
            distribution: config.sampling.distribution(policy.vocabulary_size())?,
            batch_size: config.sampling.batch_size,
        };
        let rollout = Rollout::new(settings, &policy, longest_prompt)?;
        let time_limit = Duration::from_secs_f64(config.train.reward_time_limit);
        Ok(Self {
            reference: Frozen::snapshot(&policy),
            optimizer: Optimizer::new(&policy, &config.optimizer),
            rollout,
            rewards: RewardRunner::new(reward, time_limit),
            decode,
            padding: boundary,
            loss,
            entropy_bonus: loss.entropy_bonus.map(EntropyController::new),
            config,
            seed,
            version: 0,
            policy,
        })
    }

    /// The policy as it is now.
    pub fn policy(&self) -> &M {
        &self.policy
    }
}

/// Runs all steps; `prompts` gives those of each step.
///
/// # Errors
/// What [`Grpo::step`] or the observer says.
pub fn train<M: CausalLm>(
    grpo: &mut Grpo<M>,
    mut prompts: impl FnMut(u32) -> Vec<Prompt>,
    observer: &mut dyn TrainObserver<M>,
) -> Result<(), TrainError> {
    let mut num_tokens = 0;
    for step in 0..grpo.config.train.steps {
        let report = grpo.step(&prompts(step), step)?;
        let completions = report.groups.iter().flat_map(|group| &group.completions);
        num_tokens += completions.map(|completion| completion.actions() as u64).sum::<u64>();
        let metrics = Metrics::of(&report, num_tokens);
        observer.step(&report, &metrics, &grpo.policy)?;
    }
    Ok(())
}

/// `count` prompts that hold only the beginning mark.
pub fn unconditional_prompts(count: u32, boundary: u32) -> Vec<Prompt> {
    (0..count).map(|index| Prompt { index, ids: vec![boundary], conditions: None }).collect()
}
