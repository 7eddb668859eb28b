//! Features that are added to the steps of a run.

use std::sync::atomic::{AtomicBool, Ordering};

use grpo_data::{ConfigFault, Group, Prompt, Sample};
use grpo_rewards::{ExternalCalls, RewardRunner};
use grpo_run::LedgerUpdate;
use grpo_runtime::{RankError, Ranks};
use serde_json::Value;

use crate::error::refuse_failures;
use crate::{Decode, Ending, LearnResult, Learner, TrainError};

/// A feature that is added to the steps of a run, e.g. a filter, a bonus, a replay or a curriculum.
///
/// [`Grpo::step`](crate::Grpo::step) calls the extensions in the order of
/// [`Parts::extensions`](crate::Parts::extensions) and knows none of them by name. All random numbers
/// and decisions must follow from the seed, the step and the state, so that a resumed run continues
/// exactly.
pub trait StepExtension<M>: Send {
    /// Returns the name, which is unique in a run: that of its section of the configuration and the key
    /// of its state.
    fn name(&self) -> &'static str;

    /// Returns whether it sets [`Sample::bonus`](grpo_data::Sample::bonus). The bonus is then a reward
    /// term with the name of the extension, and its mean and standard deviation are metrics. Only one
    /// extension of a run can do this.
    fn sets_bonus(&self) -> bool {
        false
    }

    /// Returns the names of metrics that not every step has, for the guards that watch them.
    fn metrics(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns whether [`Self::score`] replaces the call of the reward. Only one extension of a run can
    /// do this.
    fn keeps_scores(&self) -> bool {
        false
    }

    /// Scores the completions of a step, e.g. from a memory.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    fn score(
        &mut self,
        groups: &mut [Group],
        scorer: &StepScorer<'_>,
    ) -> Result<Option<ExternalCalls>, RankError> {
        scorer.score(groups)
    }

    /// Changes how the scored completions of a step count, before the advantages are computed. The
    /// completions of a sample cannot change, because they are what the policy learns from; a group
    /// whose samples all lose their outcome is not learned from.
    ///
    /// # Errors
    /// Returns an error if the run must end.
    fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
        let _ = step;
        Ok(())
    }

    /// Adds updates of the policy after those of the step.
    ///
    /// # Errors
    /// Returns an error if the run must end.
    fn after_updates(&mut self, step: &mut UpdatedStep<'_, M>) -> Result<(), TrainError> {
        let _ = step;
        Ok(())
    }

    /// Forgets a step that ended with an error before the policy was updated. It may be repeated.
    fn step_failed(&mut self) {}

    /// Returns how the run ends after this step, if the extension ends it.
    fn ending(&self) -> Option<Ending> {
        None
    }

    /// Returns the state that later steps depend on, or [`Value::Null`] if there is none.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Replaces the state by a saved one.
    ///
    /// # Errors
    /// Returns a description of what is wrong with it.
    fn restore(&mut self, state: Value) -> Result<(), String> {
        match state {
            Value::Null => Ok(()),
            _ => Err("it keeps no state".to_owned()),
        }
    }
}

/// The scored completions of a step.
pub struct ScoredStep<'a> {
    /// Number of the step, counted from 0.
    pub step: u32,
    /// The prompts of the step.
    pub prompts: &'a [Prompt],
    /// The groups, whose samples have outcomes.
    pub groups: &'a mut [Group],
    /// The ranks, over which expensive work can be distributed.
    pub ranks: &'a Ranks,
    /// Scores further completions.
    pub scorer: &'a StepScorer<'a>,
    /// What the extension adds to the step.
    pub added: &'a mut Added,
}

/// A step after the updates of the policy.
pub struct UpdatedStep<'a, M> {
    /// Number of the step, counted from 0.
    pub step: u32,
    /// The prompts of the step.
    pub prompts: &'a [Prompt],
    /// The policy and its optimizer.
    pub learner: &'a mut Learner<M>,
    /// The result of the updates.
    pub learned: &'a LearnResult,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// What the extensions add to the step.
    pub added: &'a mut Added,
}

/// What extensions add to a step.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// Metrics by name.
    pub metrics: Vec<(String, f64)>,
    /// Groups that were scored in addition and are not learned from.
    pub groups: Vec<Group>,
    /// Calls of external programs and servers for them.
    pub calls: Vec<ExternalCalls>,
    /// Ledger entries of further updates.
    pub ledger: Vec<LedgerUpdate>,
}

/// Scores completions during a step.
pub struct StepScorer<'a> {
    pub(crate) rewards: &'a RewardRunner,
    pub(crate) decode: &'a Decode,
    pub(crate) ranks: &'a Ranks,
    pub(crate) interrupt: &'a AtomicBool,
    /// Number of the step, counted from 1.
    pub(crate) step: u32,
    pub(crate) max_failed: f64,
}

impl StepScorer<'_> {
    /// Calls the reward for all samples.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub fn score(&self, groups: &mut [Group]) -> Result<Option<ExternalCalls>, RankError> {
        self.rewards.score_groups(groups, Some(self.step), &**self.decode)
    }

    /// Checks that the reward failed for at most `train.max_failed_rewards` of the samples. `of` says
    /// which ones they are, if they are not all of the step.
    ///
    /// # Errors
    /// Returns [`TrainError::Reward`] if more failed.
    pub fn refuse_failures(&self, samples: &[Sample], of: &str) -> Result<(), TrainError> {
        let place = || format!("step {}, {of}", self.step);
        refuse_failures(samples.iter(), self.max_failed, place)
    }

    /// Fails on all ranks if any of them was interrupted. All ranks must call it.
    ///
    /// # Errors
    /// Returns [`TrainError::Interrupted`] then.
    pub fn refuse_interrupt(&self) -> Result<(), TrainError> {
        match self.ranks.any(self.interrupt.load(Ordering::Relaxed))? {
            true => Err(TrainError::Interrupted),
            false => Ok(()),
        }
    }
}

/// The extensions of a run, in the order in which they are called.
pub type StepExtensions<M> = Vec<Box<dyn StepExtension<M>>>;

/// Checks that the extensions of a run can be told apart, that at most one sets bonuses or keeps scores,
/// and that those of `sections` of the configuration are among them.
pub(crate) fn check<M>(
    extensions: &StepExtensions<M>,
    sections: &[&str],
) -> Result<(), ConfigFault> {
    if let Some(name) = sections.iter().find(|name| extensions.iter().all(|e| e.name() != **name)) {
        let message = format!("the configuration has {name}, but the run has no such extension");
        return Err(ConfigFault::new(*name, message, "add it to the parts of the run"));
    }
    let conflict = |first: &str, second: &str| {
        let message = format!("{first} and {second} cannot be combined; remove one of them");
        Err(ConfigFault::from_sentence(first, message))
    };
    for (place, one) in extensions.iter().enumerate() {
        for other in &extensions[..place] {
            if one.name() == other.name()
                || (one.sets_bonus() && other.sets_bonus())
                || (one.keeps_scores() && other.keeps_scores())
            {
                return conflict(other.name(), one.name());
            }
        }
    }
    Ok(())
}

/// Returns the extension that sets bonuses, if any.
pub(crate) fn with_bonus<M>(extensions: &StepExtensions<M>) -> Option<&'static str> {
    extensions.iter().find(|extension| extension.sets_bonus()).map(|extension| extension.name())
}

/// Returns the names of all metrics of the extensions that not every step has.
pub(crate) fn metrics<M>(extensions: &StepExtensions<M>) -> Vec<String> {
    let of_bonus =
        with_bonus(extensions).map(|name| ["mean", "std"].map(|of| format!("{name}/{of}")));
    let own = extensions.iter().flat_map(|extension| extension.metrics());
    of_bonus.into_iter().flatten().chain(own.map(|&name| name.to_owned())).collect()
}
