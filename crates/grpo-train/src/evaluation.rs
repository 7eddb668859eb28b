//! A look at the policy from outside: completions of prompts that stay the same, that nothing is learned from.

use grpo_data::ConfigFault;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use grpo_data::{Group, Prompt, Purpose, Sample};
use grpo_eval::{distinct, self_bleu, words};
use grpo_model::{Frozen, LanguageModel};
use grpo_rewards::{Reward, RewardRunner};
use grpo_rollout::{Actions, Rollout, StepKey};
use serde::{Deserialize, Serialize};

use crate::error::in_range;
use crate::{Decode, GrpoConfig, Metrics, TrainError};

/// When a training is evaluated, and when that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Steps from one evaluation to the next; 0 for none between the first and the last step.
    pub every: u32,
    /// The run ends after so many evaluations without a new best one; 0 for never.
    pub patience: u32,
    /// What a new best one must be better by.
    pub min_gain: f64,
    /// Completions of each prompt. With 2 or more, how different they are is measured too.
    pub group_size: usize,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self { every: 0, patience: 0, min_gain: 0.0, group_size: 1 }
    }
}

impl EvalConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        in_range("eval.min_gain", self.min_gain, 0.0..=f64::MAX)?;
        in_range("eval.group_size", self.group_size as f64, 1.0..=1e4)?;
        if self.patience > 0 && self.every == 0 {
            return Err(ConfigFault::new(
                "",
                "eval.patience counts evaluations, and eval.every = 0 makes none during the training",
                "set eval.every to a number of steps",
            ));
        }
        Ok(())
    }

    /// Whether there is one after `done` of `steps` steps.
    pub(crate) fn is_due(&self, done: u32, steps: u32) -> bool {
        self.every > 0 && (done.is_multiple_of(self.every) || done == steps)
    }
}

/// Prompts, and how they are completed and judged; equal policies give equal completions.
pub struct Evaluation<M> {
    prompts: Vec<Prompt>,
    sampler: Arc<dyn Rollout<M>>,
    rewards: RewardRunner,
    decode: Decode,
    seed: u64,
    /// Part of the completions that the reward may fail for.
    max_failed: f64,
    /// Completions of a prompt.
    group_size: usize,
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The scored samples of each prompt.
    pub groups: Vec<Group>,
    /// Time that the evaluation took.
    pub time: Duration,
}

impl<M: LanguageModel> Evaluation<M> {
    /// Completions of each of `prompts`, as many as [`EvalConfig::group_size`], sampled as `config` samples.
    ///
    /// # Errors
    /// Settings that do not fit the model.
    pub fn new(
        prompts: Vec<Prompt>,
        policy: &M,
        config: &GrpoConfig,
        actions: &dyn Actions<M>,
        reward: Arc<dyn Reward>,
        decode: Decode,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1);
        let sampler = config.sampler(policy, actions, config.eval.group_size, longest, &decode)?;
        // As much time for each completion as in a step of the training, and no less altogether.
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

    /// [`Self::of`] ends with [`TrainError::Interrupted`] soon after `flag` becomes true.
    pub(crate) fn interrupted_by(self, flag: Arc<AtomicBool>) -> Self {
        Self { sampler: self.sampler.interrupted_by(flag), ..self }
    }

    /// What is completed.
    pub fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    /// Completions of an evaluation.
    pub fn count(&self) -> usize {
        self.prompts.len() * self.group_size
    }

    /// Looks at `policy`.
    ///
    /// # Errors
    /// A policy that cannot be sampled, or a reward that failed too often.
    pub fn of(&self, policy: &M) -> Result<Evaluated, TrainError> {
        let started = Instant::now();
        let (seed, purpose) = (self.seed, Purpose::Evaluation);
        let key = StepKey { seed, purpose, step: 0, policy_version: 0 };
        let mut groups = self.sampler.sample(&Frozen::snapshot(policy), &self.prompts, key)?;
        self.rewards.score_groups(&mut groups, &*self.decode);
        let evaluated = Evaluated { groups, time: started.elapsed() };
        let failures: Vec<&str> = evaluated.samples().filter_map(Sample::failure).collect();
        if failures.len() as f64 > self.max_failed * self.count() as f64 {
            return Err(TrainError::EvaluationReward {
                failed: failures.len(),
                all: self.count(),
                reason: failures[0].to_owned(),
            });
        }
        Ok(evaluated)
    }
}

impl Evaluated {
    /// The samples of all prompts, prompt by prompt.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.groups.iter().flat_map(|group| &group.samples)
    }

    /// Mean reward over the completions that have one; `None` without any.
    pub fn reward(&self) -> Option<f64> {
        let rewards: Vec<f64> = self.samples().filter_map(Sample::reward).collect();
        (!rewards.is_empty()).then(|| rewards.iter().sum::<f64>() / rewards.len() as f64)
    }

    /// How different the completions of each prompt are; `None` where each has one.
    pub fn diversity(&self) -> Option<Vec<GroupDiversity>> {
        let of = |group: &Group| {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            GroupDiversity { self_bleu: self_bleu(&texts, 4), distinct_2: distinct(&texts, 2) }
        };
        let has_several = self.groups.iter().any(|group| group.samples.len() > 1);
        has_several.then(|| self.groups.iter().map(of).collect())
    }

    /// Fraction of the completions that have no word: what is empty is unlike nothing, and so looks diverse.
    pub fn empty(&self) -> f64 {
        let empty = self.samples().filter(|sample| words(&sample.text).next().is_none()).count();
        empty as f64 / self.samples().count() as f64
    }

    /// The metrics of a step's completions, with `eval_` in front.
    pub fn metrics(&self) -> Metrics {
        Metrics::of_evaluation(self)
    }
}

/// How different completions of one prompt are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupDiversity {
    /// Mean BLEU of each against the others, with up to four words in a row ([`self_bleu`]): 1 where all are alike.
    pub self_bleu: f64,
    /// Pairs of words that are distinct, of all ([`distinct`]).
    pub distinct_2: f64,
}

/// The evaluations of a run so far: all that early stopping depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluations {
    /// Steps that were done at the best one, and its mean reward.
    pub best: Option<(u32, f64)>,
    /// Evaluations since then.
    pub since_best: u32,
}

impl Evaluations {
    /// Takes note of one; whether it is the best so far. One without a reward is not.
    pub(crate) fn observe(&mut self, done: u32, reward: Option<f64>, config: &EvalConfig) -> bool {
        let is_best = reward.is_some_and(|reward| {
            self.best.is_none_or(|(_, best)| reward > best && reward >= best + config.min_gain)
        });
        match reward {
            Some(reward) if is_best => *self = Self { best: Some((done, reward)), since_best: 0 },
            _ => self.since_best += 1,
        }
        is_best
    }

    /// Whether there was no better one for too long.
    pub(crate) fn are_enough(&self, config: &EvalConfig) -> bool {
        config.patience > 0 && self.since_best >= config.patience
    }
}

#[cfg(test)]
mod tests {
    use grpo_data::Outcome;

    use super::*;
    use crate::test_groups::group;

    /// A policy that says nothing has the self-BLEU of the most diverse one.
    #[test]
    fn empty_completions_are_counted_beside_their_diversity() {
        let groups = [["so it goes on", "so it goes on"], ["", " "]].map(|texts| {
            let mut group = group(vec![Outcome::Abstained; 2]);
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
        let alone = Evaluated { groups: vec![group(vec![Outcome::Abstained])], ..evaluated };
        assert_eq!(alone.metrics().get("eval_empty"), None);
    }

    #[test]
    fn the_best_is_remembered_and_patience_ends() {
        let config = EvalConfig { every: 5, patience: 2, min_gain: 0.1, group_size: 1 };
        let mut seen = Evaluations::default();
        let rewards = [Some(0.5), Some(0.55), None, Some(0.7), Some(0.75), Some(0.3)];
        let expected = [
            (true, Some((5, 0.5)), false),
            (false, Some((5, 0.5)), false),
            (false, Some((5, 0.5)), true),
            (true, Some((20, 0.7)), false),
            (false, Some((20, 0.7)), false),
            (false, Some((20, 0.7)), true),
        ];
        for (i, (reward, (is_best, best, is_enough))) in
            rewards.into_iter().zip(expected).enumerate()
        {
            let done = 5 * (i as u32 + 1);
            assert_eq!(seen.observe(done, reward, &config), is_best, "after {done}");
            assert_eq!((seen.best, seen.are_enough(&config)), (best, is_enough), "after {done}");
        }
        let endless = EvalConfig { patience: 0, ..config };
        assert!(!seen.are_enough(&endless));
    }

    /// Equal rewards are no gain, and with no gain asked for the last evaluation does not push out an equal one.
    #[test]
    fn an_equal_one_is_not_better() {
        let config = EvalConfig::default();
        let mut seen = Evaluations::default();
        assert!(seen.observe(1, Some(0.5), &config));
        assert!(!seen.observe(2, Some(0.5), &config));
        assert!(seen.observe(3, Some(0.5 + 1e-12), &config));
    }

    #[test]
    fn evaluations_are_due_at_multiples_and_at_the_end() {
        let config = EvalConfig { every: 4, ..EvalConfig::default() };
        let due: Vec<u32> = (1..=10).filter(|&done| config.is_due(done, 10)).collect();
        assert_eq!(due, [4, 8, 10]);
        assert!(!EvalConfig::default().is_due(10, 10));
    }
}
