//! What a step returns.

use grpo_data::{Group, Sample};
use grpo_metrics::MetricSpec;
use grpo_rewards::PartName;

use crate::learner::LearnResult;
use crate::probe::Observed;

/// Result of one step.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Step number, counted from 0.
    pub step: u32,
    /// Samples with rewards, advantages and optional token traces.
    pub groups: Vec<Group>,
    /// Metrics of the extensions.
    pub extensions: Vec<(&'static MetricSpec, f64)>,
    /// Groups that extensions scored in addition.
    pub further_groups: Vec<Group>,
    /// Names of reward terms and components.
    pub names: RewardNames,
    /// Result of the policy updates.
    pub learned: LearnResult,
    /// Learning rate used for the policy updates.
    pub learning_rate: f64,
    /// Weight α that was used to update the reference, or `None` if it was not updated.
    pub reference_updated: Option<f64>,
    /// Time, memory and ledger entry.
    pub observed: Observed,
}

/// Names of reward terms and components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewardNames {
    /// Reward terms if there is more than one, including the bonus as the last term.
    pub terms: Vec<PartName>,
    /// All components that the reward function may return.
    pub parts: Vec<PartName>,
    /// Metrics of the bonus, its mean and its standard deviation, if an extension sets it.
    pub bonus: Option<[&'static MetricSpec; 2]>,
}

impl StepReport {
    /// Returns an iterator over the samples in all groups.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.groups.iter().flat_map(|group| &group.samples)
    }

    /// Returns the number of action tokens in all completions.
    pub fn actions(&self) -> usize {
        self.samples().map(|sample| sample.completion.actions()).sum()
    }
}
