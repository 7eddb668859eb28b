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
    /// whose samples all lose their outcome is not learned from. Returns those of [`Self::metrics`] that
    /// this step has.
    ///
    /// # Errors
    /// Returns an error if the run must end. The step is then undone, also in the state of other
    /// extensions; this one must not have changed its own.
    fn after_rewards(&mut self, step: ScoredStep<'_>) -> Result<StepMetrics, TrainError>;

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

/// Values by the names of [`StepExtension::metrics`].
pub type StepMetrics = Vec<(&'static str, f64)>;

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

/// Calls all extensions, and returns their metrics.
///
/// # Errors
/// Returns the error of an extension, after the states of those before it were restored.
pub(crate) fn after_rewards(
    extensions: &mut [Box<dyn StepExtension>],
    step: u32,
    groups: &mut [Group],
    ranks: &Ranks,
) -> Result<Vec<(String, f64)>, TrainError> {
    // The state of the last one is not needed, because no other can fail after it.
    let others = extensions.iter().rev().skip(1).rev();
    let before: Vec<Value> = others.map(|extension| extension.state()).collect();
    let mut measured = Vec::new();
    for place in 0..extensions.len() {
        let extension = &mut extensions[place];
        let name = extension.name();
        match extension.after_rewards(ScoredStep { step, groups: &mut *groups, ranks }) {
            Ok(values) => {
                measured
                    .extend(values.into_iter().map(|(of, value)| (format!("{name}/{of}"), value)));
            }
            Err(error) => {
                for (extension, state) in extensions[..place].iter_mut().zip(before) {
                    extension.restore(state).expect("it is a state of this extension");
                }
                return Err(error);
            }
        }
    }
    Ok(measured)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_groups::group;

    /// Counts steps, and fails in the one with this number.
    struct Counter {
        name: &'static str,
        steps: u32,
        fails_in: Option<u32>,
    }

    impl StepExtension for Counter {
        fn name(&self) -> &'static str {
            self.name
        }

        fn metrics(&self) -> &'static [&'static str] {
            &["steps"]
        }

        fn after_rewards(&mut self, step: ScoredStep<'_>) -> Result<StepMetrics, TrainError> {
            if self.fails_in == Some(step.step) {
                let source = "the server does not answer".into();
                return Err(TrainError::Extension { name: self.name, source });
            }
            self.steps += 1;
            Ok(vec![("steps", self.steps.into())])
        }

        fn state(&self) -> Value {
            self.steps.into()
        }

        fn restore(&mut self, state: Value) -> Result<(), String> {
            self.steps = serde_json::from_value(state).map_err(|error| error.to_string())?;
            Ok(())
        }
    }

    /// The step can be repeated as if it had not begun.
    #[test]
    fn a_step_that_an_extension_ends_is_undone_in_all_of_them() {
        let counter = |name, fails_in| Box::new(Counter { name, steps: 0, fails_in });
        let mut extensions: StepExtensions =
            vec![counter("a", None), counter("b", Some(1)), counter("c", None)];
        let mut groups = [group(Vec::new())];
        let mut call = |step| after_rewards(&mut extensions, step, &mut groups, &Ranks::alone());
        let measured = ["a/steps", "b/steps", "c/steps"].map(|name| (name.to_owned(), 1.0));
        assert_eq!(call(0).unwrap(), measured);
        let error = call(1).unwrap_err().to_string();
        assert_eq!(error, "b: the server does not answer");
        let states: Vec<Value> = extensions.iter().map(|extension| extension.state()).collect();
        assert_eq!(states, [1, 1, 1]);
    }

    #[test]
    fn extensions_can_be_told_apart() {
        let counter = |name| Box::new(Counter { name, steps: 0, fails_in: None });
        let twice: StepExtensions = vec![counter("a"), counter("b"), counter("a")];
        let error = check(&twice).unwrap_err().to_string();
        assert!(error.contains("a and a cannot be combined"), "{error}");
        assert!(check(&vec![counter("a"), counter("b")]).is_ok());
    }
}
