//! A look at the policy from outside: completions of prompts that stay the same, that nothing is learned from.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use grpo_data::{Group, Prompt, Purpose, Sample};
use grpo_eval::{distinct, self_bleu, words};
use grpo_model::{Frozen, LanguageModel};
use grpo_rewards::{Reward, RewardRunner};
use grpo_rollout::{Actions, Rollout, StepKey};

use crate::error::refuse_failures;
use crate::{Decode, GrpoConfig, TrainError};

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
    /// Completions of each of `prompts`, as many as [`crate::EvalConfig::group_size`], sampled as `config` samples.
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
        self.rewards.score_groups(&mut groups, None, &*self.decode);
        let evaluated = Evaluated { groups, time: started.elapsed() };
        refuse_failures(evaluated.samples(), self.max_failed, || "an evaluation".to_owned())?;
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
}

/// How different completions of one prompt are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupDiversity {
    /// Mean BLEU of each against the others, with up to four words in a row ([`self_bleu`]): 1 where all are alike.
    pub self_bleu: f64,
    /// Pairs of words that are distinct, of all ([`distinct`]).
    pub distinct_2: f64,
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
}
