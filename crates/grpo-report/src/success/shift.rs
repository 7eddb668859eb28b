//! How far a quantity moved during a run: between the evaluations before and after training or, if
//! the run has none, between the first and the last steps.

use grpo_data::counted;
use grpo_data::statistics::{CLEAR, is_clear, mean, sample_variance};
use grpo_run::{Comparison, Measure};
use serde_json::{Map, Value};

use super::judged::Trend;
use crate::numbers::{fixed, signed};

/// Returns the number of steps compared at each end: a tenth of all steps, but at least 5.
fn tenth(steps: usize) -> usize {
    (steps / 10).max(LEAST)
}

/// Fewer steps do not allow a useful estimate of the standard deviation.
const LEAST: usize = 5;

/// Smaller evaluations do not allow a useful estimate of the standard error.
const LEAST_EVALUATED: usize = 10;

/// Values of a metric in the first and the last tenth of the steps. The two ranges do not overlap.
struct Ends {
    /// Number of steps in each tenth.
    steps: usize,
    /// Finite values. At least half of the steps have one.
    first: Vec<f64>,
    /// Finite values of the last tenth, with the same requirement.
    last: Vec<f64>,
}

impl Ends {
    /// Collects the values. Steps without any reward have no value, but are counted as steps.
    ///
    /// # Errors
    /// Returns an error message if there are too few steps or values.
    fn of(metrics: &[Map<String, Value>], name: &str) -> Result<Self, String> {
        let value = |line: &Map<String, Value>| {
            line.get(name).and_then(Value::as_f64).filter(|value| value.is_finite())
        };
        let finite = |lines: &[Map<String, Value>]| lines.iter().filter_map(value).collect();
        let all: Vec<f64> = finite(metrics);
        let steps = tenth(metrics.len());
        if metrics.len() < 2 * steps || all.is_empty() {
            return Err(too_few(name, all.len()));
        }
        let ends = Self {
            steps,
            first: finite(&metrics[..steps]),
            last: finite(&metrics[metrics.len() - steps..]),
        };
        for (which, values) in [("first", &ends.first), ("last", &ends.last)] {
            let missing = steps - values.len();
            if 2 * missing > steps {
                return Err(format!(
                    "`{name}` is missing in {missing} of the {which} {steps} steps; a comparison requires values in at least half of the steps"
                ));
            }
        }
        Ok(ends)
    }
}

fn too_few(name: &str, steps: usize) -> String {
    let steps = counted(steps, "step");
    format!("`{name}` was measured in {steps}; a comparison needs at least {}", 2 * LEAST)
}

/// Where the two values of a [`Shift`] come from.
#[derive(Clone, Debug)]
enum Basis {
    /// Number of evaluated samples, and what they are, e.g. `molecules`.
    Evaluations(usize, String),
    /// Number of steps at each end of the run.
    Steps(usize),
}

/// A quantity at the start and at the end of a run.
#[derive(Clone, Debug)]
pub(crate) struct Shift {
    basis: Basis,
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// Standard error of the difference.
    pub(crate) error: f64,
}

impl Shift {
    /// Returns the change of the mean reward.
    ///
    /// # Errors
    /// Returns an error message if the run was not evaluated and has too few steps or values.
    pub(crate) fn of_reward(
        metrics: &[Map<String, Value>],
        comparison: Option<&Comparison>,
    ) -> Result<Self, String> {
        let evaluated = comparison.and_then(|of| Self::evaluated(of, of.reward.as_ref()?));
        evaluated.map_or_else(|| Self::of_steps(metrics, "reward"), Ok)
    }

    /// Returns the change of a reward component.
    ///
    /// # Errors
    /// Returns an error message if the run was not evaluated and has too few steps or values.
    pub(crate) fn of_component(
        metrics: &[Map<String, Value>],
        comparison: Option<&Comparison>,
        name: &str,
    ) -> Result<Self, String> {
        let part = |of: &Comparison| of.parts.iter().find(|part| part.name == name).cloned();
        let evaluated = comparison.and_then(|of| Self::evaluated(of, &part(of)?));
        let metric = format!("rewards/{name}/mean");
        evaluated.map_or_else(|| Self::of_steps(metrics, &metric), Ok)
    }

    /// Returns the change between the evaluations, or `None` if they are too small to judge.
    fn evaluated(comparison: &Comparison, measure: &Measure) -> Option<Self> {
        let (first, last, error) = (measure.before?, measure.after?, measure.error?);
        let basis = Basis::Evaluations(comparison.count, comparison.samples.clone());
        let is_enough = comparison.count >= LEAST_EVALUATED && error.is_finite();
        is_enough.then_some(Self { basis, first, last, error })
    }

    /// Returns the change of a metric between both ends of the run. Steps use different prompts and
    /// random numbers, so the error is estimated from their scatter.
    ///
    /// # Errors
    /// Returns an error message if there are too few steps or values.
    pub(crate) fn of_steps(metrics: &[Map<String, Value>], name: &str) -> Result<Self, String> {
        let Ends { steps, first, last } = Ends::of(metrics, name)?;
        // Welch's standard error for two means with different variances.
        let squared = |values: &[f64]| sample_variance(values) / values.len() as f64;
        let error = (squared(&first) + squared(&last)).sqrt();
        Ok(Self { basis: Basis::Steps(steps), first: mean(&first), last: mean(&last), error })
    }

    pub(crate) fn change(&self) -> f64 {
        self.last - self.first
    }

    /// Returns the change in standard errors. Without scatter, any change is beyond doubt.
    pub(crate) fn errors(&self) -> f64 {
        let change = self.change();
        if self.error > 0.0 {
            change / self.error
        } else if change == 0.0 {
            0.0
        } else {
            change * f64::INFINITY
        }
    }

    /// Returns whether chance is an unlikely explanation of the change.
    pub(crate) fn is_clear(&self) -> bool {
        is_clear(self.change(), self.error)
    }

    /// Returns the direction of the change, if it is clear.
    pub(super) fn trend(&self) -> Trend {
        match (self.is_clear(), self.change() > 0.0) {
            (false, _) => Trend::Unclear,
            (true, true) => Trend::Rose,
            (true, false) => Trend::Fell,
        }
    }

    /// Formats both values and says where they come from.
    pub(crate) fn ends(&self, number: impl Fn(f64) -> String) -> String {
        let (first, last) = (number(self.first), number(self.last));
        match &self.basis {
            Basis::Evaluations(count, samples) => {
                format!(
                    "from {first} before to {last} after training (evaluations of {count} {samples})"
                )
            }
            Basis::Steps(steps) => {
                format!("from {first} in the first {steps} steps to {last} in the last {steps}")
            }
        }
    }

    /// Formats the change in standard errors. If it is not clear, adds the rule.
    pub(super) fn in_errors(&self) -> String {
        let errors = format!("{} standard errors", signed(self.errors(), 1));
        match self.is_clear() {
            true => errors,
            false => format!("{errors}, which is not a clear change: less than {CLEAR}"),
        }
    }

    /// Formats both ends and the change.
    pub(super) fn words(&self) -> String {
        format!("{}, {}", self.ends(|value| fixed(value, 4)), self.in_errors())
    }
}
