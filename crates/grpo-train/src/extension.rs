//! Features that are added to the steps of a run.

use grpo_data::{ConfigFault, Group};
use grpo_runtime::Ranks;
use serde_json::Value;

use crate::TrainError;

/// A feature that is added to the steps of a run, e.g. a filter, a bonus or a curriculum.
///
/// [`Grpo::step`](crate::Grpo::step) calls the extensions in the order of
/// [`Parts::extensions`](crate::Parts::extensions) and knows none of them by name. All random numbers
/// and decisions must follow from the seed, the step and the state, so that a resumed run continues
/// exactly.
pub trait StepExtension: Send {
    /// Returns the name, which is unique in a run: that of its section of the configuration, the prefix
    /// of its metrics, and the key of its state.
    fn name(&self) -> &'static str;

    /// Returns whether it sets [`Sample::bonus`](grpo_data::Sample::bonus). The bonus is then a reward
    /// term with the name of the extension, and its mean and standard deviation are metrics. Only one
    /// extension of a run can do this.
    fn sets_bonus(&self) -> bool {
        false
    }

    /// Returns the names of the metrics that steps of this run can have in addition, below `NAME/`.
    fn metrics(&self) -> &'static [&'static str] {
        &[]
    }

    /// Changes how the scored completions of a step count, before the advantages are computed. The
    /// completions of a sample cannot change, because they are what the policy learns from; a group
    /// whose samples all lose their outcome is not learned from. Returns the values of
    /// [`Self::metrics`] that this step has.
    ///
    /// # Errors
    /// Returns an error if the run must end.
    fn after_rewards(&mut self, step: ScoredStep<'_>) -> Result<Vec<f64>, TrainError>;

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
#[derive(Debug)]
pub struct ScoredStep<'a> {
    /// Number of the step, counted from 0.
    pub step: u32,
    /// The groups, whose samples have outcomes.
    pub groups: &'a mut [Group],
    /// The ranks, over which expensive work can be distributed.
    pub ranks: &'a Ranks,
}

/// The extensions of a run, in the order in which they are called.
pub type StepExtensions = Vec<Box<dyn StepExtension>>;

/// Checks that the extensions of a run can be told apart, and that at most one sets bonuses.
pub(crate) fn check(extensions: &StepExtensions) -> Result<(), ConfigFault> {
    let conflict = |first: &str, second: &str| {
        let message = format!("{first} and {second} cannot be combined; remove one of them");
        Err(ConfigFault::from_sentence(first, message))
    };
    for (place, one) in extensions.iter().enumerate() {
        for other in &extensions[..place] {
            if one.name() == other.name() || (one.sets_bonus() && other.sets_bonus()) {
                return conflict(other.name(), one.name());
            }
        }
    }
    Ok(())
}

/// Returns the extension that sets bonuses, if any.
pub(crate) fn with_bonus(extensions: &StepExtensions) -> Option<&'static str> {
    extensions.iter().find(|extension| extension.sets_bonus()).map(|extension| extension.name())
}

/// Returns the names of all metrics of the extensions.
pub(crate) fn metrics(extensions: &StepExtensions) -> Vec<String> {
    let of_bonus =
        with_bonus(extensions).map(|name| ["mean", "std"].map(|of| format!("{name}/{of}")));
    let own = extensions.iter().flat_map(|extension| {
        let name = extension.name();
        extension.metrics().iter().map(move |metric| format!("{name}/{metric}"))
    });
    of_bonus.into_iter().flatten().chain(own).collect()
}
