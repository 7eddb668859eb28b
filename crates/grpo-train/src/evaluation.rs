//! Policy evaluation on fixed prompts that are not used for training.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use grpo_data::{Group, Prompt, Purpose, Sample};
use grpo_eval::{distinct, self_bleu, words};
use grpo_model::{Frozen, LanguageModel};
use grpo_rewards::{Reward, RewardRunner};
use grpo_rollout::{Distributed, Engine, EngineFactory, StepKey};
use grpo_runtime::Ranks;

use crate::error::refuse_failures;
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

/// Result of one evaluation.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// Scored samples, grouped by prompt.
    pub groups: Vec<Group>,
    /// Wall-clock time.
    pub time: Duration,
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

impl Evaluated {
    /// Returns an iterator over all samples, ordered by prompt.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.groups.iter().flat_map(|group| &group.samples)
    }

    /// Returns the mean reward over scored completions, or `None` if no completion was scored.
    pub fn reward(&self) -> Option<f64> {
        let rewards: Vec<f64> = self.samples().filter_map(Sample::reward).collect();
        (!rewards.is_empty()).then(|| rewards.iter().sum::<f64>() / rewards.len() as f64)
    }

    /// Returns the diversity of the completions for each prompt, or `None` if there is only one
    /// completion per prompt.
    pub fn diversity(&self) -> Option<Vec<GroupDiversity>> {
        let of = |group: &Group| {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            GroupDiversity { self_bleu: self_bleu(&texts, 4), distinct_2: distinct(&texts, 2) }
        };
        let has_several = self.groups.iter().any(|group| group.samples.len() > 1);
        has_several.then(|| self.groups.iter().map(of).collect())
    }

    /// Returns the fraction of completions without any words. Empty completions have nothing in
    /// common and would otherwise look diverse.
    pub fn empty(&self) -> f64 {
        let empty = self.samples().filter(|sample| words(&sample.text).next().is_none()).count();
        empty as f64 / self.samples().count() as f64
    }
}

/// Diversity of the completions for one prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupDiversity {
    /// Mean 4-gram BLEU of each completion against the others ([`self_bleu`]). It is 1 if all
    /// completions are identical.
    pub self_bleu: f64,
    /// Number of distinct word bigrams divided by the total number of bigrams ([`distinct`]).
    pub distinct_2: f64,
}

#[cfg(test)]
mod tests {
    use grpo_data::Outcome;

    use super::*;
    use crate::test_groups::group;

    /// Empty completions get the same self-BLEU as diverse ones, so they are counted separately.
    #[test]
    fn counts_empty_completions_separately() {
        let groups = [["so it goes on", "so it goes on"], ["", " "]].map(|texts| {
            let mut group = group(vec![Outcome::abstained(); 2]);
            let samples = group.samples.iter_mut().zip(texts);
            samples.for_each(|(sample, text)| sample.text = text.to_owned());
            group
        });
        let evaluated = Evaluated { groups: groups.to_vec(), time: Duration::ZERO };
        let [alike, empty] = evaluated.diversity().unwrap()[..] else { panic!("two groups") };
        assert!((alike.self_bleu - 1.0).abs() < 1e-12);
        assert_eq!((alike.distinct_2, empty.self_bleu), (0.5, 0.0));
        let metrics = evaluated.metrics();
        assert_eq!(metrics.get("eval_empty"), Some(0.5));
        assert_eq!(metrics.get("eval_self_bleu"), Some(alike.self_bleu / 2.0));
        let alone = Evaluated { groups: vec![group(vec![Outcome::abstained()])], ..evaluated };
        assert_eq!(alone.metrics().get("eval_empty"), None);
    }
}
