//! Policy evaluation on fixed prompts that are not used for training.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use grpo_data::{Prompt, Purpose};
use grpo_model::{Frozen, LanguageModel};
use grpo_rewards::{Reward, RewardRunner};
use grpo_rollout::{Distributed, Engine, EngineFactory, Report, StepKey};
use grpo_runtime::Ranks;

use crate::error::refuse_failures;
use crate::evaluated::Evaluated;
use crate::{Decode, GrpoConfig, TrainError};

/// Evaluation prompts and settings. Identical policies produce identical completions.
pub struct Evaluation<M> {
    prompts: Vec<Prompt>,
    sampler: Arc<dyn Engine<M>>,
    rewards: RewardRunner,
    decode: Decode,
    seed: u64,
    /// Maximum fraction of completions for which the reward may fail.
    max_failed: f64,
    /// Number of completions per prompt.
    group_size: usize,
}

impl<M: LanguageModel> Evaluation<M> {
    /// Creates an evaluation with [`crate::EvalConfig::group_size`] completions per prompt, sampled
    /// with the settings in `config`.
    ///
    /// # Errors
    /// Returns an error if the settings are incompatible with the model.
    pub fn new(
        prompts: Vec<Prompt>,
        policy: &M,
        config: &GrpoConfig,
        engine: &dyn EngineFactory<M>,
        reward: Arc<dyn Reward>,
        decode: Decode,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1);
        let sampler = config.sampler(policy, engine, config.eval.group_size, longest, &decode)?;
        // Allow the same time per completion as in a training step, but never less than the limit
        // for a whole step.
        let of_step = f64::from(config.train.prompts_per_step) * config.train.group_size as f64;
        let share = ((prompts.len() * config.eval.group_size) as f64 / of_step).max(1.0);
        let limit = Duration::from_secs_f64(config.train.reward_time_limit * share);
        Ok(Self {
            prompts,
            sampler,
            rewards: RewardRunner::new(reward, limit),
            decode,
            seed,
            max_failed: config.train.max_failed_rewards,
            group_size: config.eval.group_size,
        })
    }

    /// Makes [`Self::of`] call `report` for each finished completion, if the engine can.
    #[must_use]
    pub fn reporting(self, report: Report) -> Self {
        let sampler = self.sampler.reporting(report);
        Self { sampler: sampler.unwrap_or(self.sampler), ..self }
    }

    /// Makes [`Self::of`] return [`TrainError::Interrupted`] shortly after `flag` is set.
    pub(crate) fn interrupted_by(self, flag: Arc<AtomicBool>) -> Self {
        let rewards = self.rewards.interrupted_by(Arc::clone(&flag));
        let sampler = self.sampler.interrupted_by(flag);
        Self { sampler, rewards, ..self }
    }

    /// Distributes prompts and rewards over `ranks`.
    pub(crate) fn distributed_over(self, ranks: &Ranks) -> Self {
        let sampler = Arc::new(Distributed::new(self.sampler, ranks.clone()));
        Self { sampler, rewards: self.rewards.distributed_over(ranks.clone()), ..self }
    }

    /// Returns the evaluation prompts.
    pub fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    /// Returns the total number of completions.
    pub fn count(&self) -> usize {
        self.prompts.len() * self.group_size
    }

    /// Samples and scores completions from `policy`.
    ///
    /// # Errors
    /// Returns an error if sampling fails or if the reward fails for too many completions.
    pub fn of(&self, policy: &M) -> Result<Evaluated, TrainError> {
        let started = Instant::now();
        let (seed, purpose) = (self.seed, Purpose::EVALUATION);
        let key = StepKey { seed, purpose, step: 0, policy_version: 0 };
        let mut groups = self.sampler.sample(&Frozen::snapshot(policy), &self.prompts, key)?;
        self.rewards.score_groups(&mut groups, None, &*self.decode)?;
        if self.rewards.was_interrupted()? {
            return Err(TrainError::Interrupted);
        }
        let evaluated = Evaluated { groups, time: started.elapsed() };
        refuse_failures(evaluated.samples(), self.max_failed, || "an evaluation".to_owned())?;
        Ok(evaluated)
    }
}
