//! Evaluation of the policy: completions of fixed prompts that are not trained on.

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

/// Prompts and how they are completed and scored. Equal policies give equal completions.
pub struct Evaluation<M> {
    prompts: Vec<Prompt>,
    sampler: Arc<dyn Rollout<M>>,
    rewards: RewardRunner,
    decode: Decode,
    seed: u64,
    /// Fraction of the completions whose reward may fail.
    max_failed: f64,
    /// Completions per prompt.
    group_size: usize,
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The scored samples of each prompt.
    pub groups: Vec<Group>,
    /// Duration of the evaluation.
    pub time: Duration,
}

impl<M: LanguageModel> Evaluation<M> {
    /// Creates an evaluation with [`crate::EvalConfig::group_size`] completions of each prompt,
    /// sampled with the settings of `config`.
    ///
    /// # Errors
    /// Returns an error if the settings do not fit the model.
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
        // The time limit per completion is that of a training step, with the step's limit as the
        // minimum.
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

    /// Makes [`Self::of`] end with [`TrainError::Interrupted`] soon after `flag` becomes true.
    pub(crate) fn interrupted_by(self, flag: Arc<AtomicBool>) -> Self {
        Self { sampler: self.sampler.interrupted_by(flag), ..self }
    }

    /// Returns the prompts.
    pub fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    /// Returns the number of completions.
    pub fn count(&self) -> usize {
        self.prompts.len() * self.group_size
    }

    /// Evaluates `policy`.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be sampled or the reward fails too often.
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
    /// Iterates over the samples, prompt by prompt.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.groups.iter().flat_map(|group| &group.samples)
    }

    /// Returns the mean reward of the scored completions, or `None` without any.
    pub fn reward(&self) -> Option<f64> {
        let rewards: Vec<f64> = self.samples().filter_map(Sample::reward).collect();
        (!rewards.is_empty()).then(|| rewards.iter().sum::<f64>() / rewards.len() as f64)
    }

    /// Returns the diversity of each prompt's completions, or `None` with one completion each.
    pub fn diversity(&self) -> Option<Vec<GroupDiversity>> {
        let of = |group: &Group| {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            GroupDiversity { self_bleu: self_bleu(&texts, 4), distinct_2: distinct(&texts, 2) }
        };
        let has_several = self.groups.iter().any(|group| group.samples.len() > 1);
        has_several.then(|| self.groups.iter().map(of).collect())
    }

    /// Returns the fraction of completions without words. Empty completions share nothing and would
    /// look diverse.
    pub fn empty(&self) -> f64 {
        let empty = self.samples().filter(|sample| words(&sample.text).next().is_none()).count();
        empty as f64 / self.samples().count() as f64
    }
}

/// Diversity of the completions of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupDiversity {
    /// Mean 4-gram BLEU of each completion against the others ([`self_bleu`]); 1 if all are equal.
    pub self_bleu: f64,
    /// Distinct pairs of words as a fraction of all pairs ([`distinct`]).
    pub distinct_2: f64,
}

#[cfg(test)]
mod tests {
    use grpo_data::Outcome;

    use super::*;
    use crate::test_groups::group;

    /// Empty completions have the self-BLEU of diverse ones, so they are counted separately.
    #[test]
    fn counts_empty_completions_separately() {
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
