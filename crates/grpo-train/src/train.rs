//! The loop around the step.

use std::time::Duration;

use grpo_data::Prompt;
use grpo_model::{CausalLm, Frozen};
use grpo_rewards::RewardRunner;
use grpo_rollout::{Rollout, RolloutSettings};

use crate::{Decode, Grpo, GrpoConfig, Learner, Metrics, StepReport, TrainError};

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

/// What a training is made of, besides its configuration.
pub struct Parts<M> {
    /// Where it begins.
    pub policy: M,
    /// What holds it back.
    pub reference: Frozen<M>,
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
    /// Tokens of the longest prompt.
    pub longest_prompt: usize,
    /// Prompts of an epoch: those of the file; `None` where there is none.
    pub epoch: Option<usize>,
    /// From the ids of a completion's actions to the text that the reward sees and `sampling.stop` is looked for in.
    pub decode: Decode,
}

impl<M: CausalLm> Grpo<M> {
    /// A training of `parts.policy`.
    ///
    /// # Errors
    /// Settings that are out of range or do not fit the model.
    pub fn new(parts: Parts<M>, config: GrpoConfig, seed: u64) -> Result<Self, TrainError> {
        config.check()?;
        let Parts { policy, reference, end_ids, longest_prompt, epoch, decode } = parts;
        let rollout = config.rollout(&policy, end_ids, longest_prompt, &decode)?;
        let time_limit = Duration::from_secs_f64(config.train.reward_time_limit);
        let rewards = RewardRunner::new(config.reward.build()?, time_limit);
        let learner = Learner::new(policy, reference, &config)?;
        Ok(Self { learner, rollout, rewards, decode, epoch, config, seed })
    }

    /// The policy as it is now.
    pub fn policy(&self) -> &M {
        self.learner.policy()
    }

    /// The policy, its reference and what the two are trained with.
    pub fn learner(&self) -> &Learner<M> {
        &self.learner
    }

    /// As [`Self::learner`], to change settings of the next steps.
    pub fn learner_mut(&mut self) -> &mut Learner<M> {
        &mut self.learner
    }
}

impl GrpoConfig {
    /// How the completions of a step are sampled.
    ///
    /// # Errors
    /// Settings that do not fit the model.
    pub fn rollout<M: CausalLm>(
        &self,
        policy: &M,
        end_ids: Vec<u32>,
        longest_prompt: usize,
        decode: &Decode,
    ) -> Result<Rollout, TrainError> {
        let settings = RolloutSettings {
            group_size: self.train.group_size,
            max_new_tokens: self.sampling.max_new_tokens,
            end_ids,
            distribution: self.sampling.distribution(policy.vocabulary_size())?,
            batch_size: self.sampling.batch_size,
        };
        let rollout = Rollout::new(settings, policy, longest_prompt)?;
        Ok(rollout.stopping_at(&self.sampling.stop, decode)?)
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
        observer.step(&report, &metrics, grpo.policy())?;
    }
    Ok(())
}

/// `count` prompts that hold only the beginning mark.
pub fn unconditional_prompts(count: u32, boundary: u32) -> Vec<Prompt> {
    (0..count).map(|index| Prompt::of_ids(index, vec![boundary])).collect()
}
