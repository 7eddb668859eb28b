//! Settings of guards, and those that a run has without any.

use grpo_data::{ConfigFault, short_number};
use serde::{Deserialize, Serialize};

use crate::metric_names::{is_known, is_occasional, is_of_machine, nearest, nearest_known};

/// What `watch` is for any metric that is not finite.
pub(crate) const NOT_FINITE: &str = "not_finite";

/// A table `[[guards]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardConfig {
    /// A metric, or `not_finite`: any metric that is NaN or infinite, and a step that failed because of such a number.
    pub watch: String,
    /// A larger value is out of the range.
    pub above: Option<f64>,
    /// A smaller value is out of the range.
    pub below: Option<f64>,
    /// So many steps in a row trigger the guard.
    #[serde(default = "one")]
    pub steps: u32,
    /// Steps before this one, from 1, do not count.
    #[serde(default = "one")]
    pub from_step: u32,
    /// What is done.
    pub action: GuardAction,
    /// With `roll_back`: what learning rates are multiplied by from then on; without it 0.5.
    pub learning_rate_factor: Option<f64>,
    /// With `roll_back`: what the coefficient of the KL penalty is multiplied by; without it 1.
    pub kl_coef_factor: Option<f64>,
}

fn one() -> u32 {
    1
}

/// What is done where a guard triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardAction {
    /// It is said once.
    Warn,
    /// The run ends.
    Stop,
    /// The run goes back to its last good checkpoint, and on with other settings.
    RollBack,
}

/// What is to be done about a trigger, in the order of severity.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Action {
    /// It is said.
    Warn,
    /// The run goes back to its last good checkpoint, and on from there with other settings.
    RollBack {
        /// What learning rates are multiplied by from then on.
        learning_rate_factor: f64,
        /// What the coefficient of the KL penalty is multiplied by.
        kl_coef_factor: f64,
    },
    /// The run ends.
    Stop,
}

impl Action {
    /// Its name in a configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::RollBack { .. } => "roll_back",
            Self::Stop => "stop",
        }
    }
}

/// The run that a guard is for.
pub(crate) enum Guarded<'a> {
    Grpo { kl_coef: f64, evaluates: bool },
    Supervised { metrics: &'a [&'static str] },
}

impl Guarded<'_> {
    /// Returns a hint at the metric that is most like `watch`, if the run has none of that name.
    fn misspelled(&self, watch: &str) -> Option<String> {
        match self {
            Self::Grpo { .. } => (!is_known(watch)).then(|| {
                let near = nearest_known(watch);
                format!(
                    "did you mean '{near}'? `not_finite` watches all of them for NaN and infinity"
                )
            }),
            Self::Supervised { metrics } if metrics.contains(&watch) => None,
            Self::Supervised { metrics } => {
                let near = nearest(watch, metrics.iter().copied());
                near.map(|near| format!("did you mean '{near}'?"))
            }
        }
    }
}

/// Most factors: beyond it a slip of the keyboard.
const MOST_FACTOR: f64 = 1e6;

/// The fault of `key` of the `guard`th guard, from 0.
pub(crate) fn guard_fault(guard: usize, key: &str, sentence: &str) -> ConfigFault {
    let message = format!("guards[{guard}]: {sentence}");
    ConfigFault::from_sentence(format!("guards[{guard}].{key}"), &message)
}

impl GuardConfig {
    /// Checks `self`, the `guard`th guard of a run, from 0.
    pub(crate) fn check(&self, guard: usize, run: &Guarded<'_>) -> Result<(), ConfigFault> {
        let refuse = |key: &str, fault: String| Err(guard_fault(guard, key, &fault));
        let watch = &self.watch;
        let is_not_finite = watch == NOT_FINITE;
        if is_of_machine(watch) {
            let fault = format!(
                "watch = \"{watch}\" is another number in each run, and nothing is decided by such; watch what equal seeds make equal"
            );
            return refuse("watch", fault);
        }
        if let (true, Guarded::Supervised { .. }) = (is_not_finite, run) {
            let fault = "watch = \"not_finite\" is for `grpo train`: a supervised run always ends where a loss is not finite; leave the guard out";
            return refuse("watch", fault.to_owned());
        }
        if let (false, Some(hint)) = (is_not_finite, run.misspelled(watch)) {
            let fault = format!("watch = \"{watch}\" is no metric that a guard can watch; {hint}");
            return refuse("watch", fault);
        }
        if let (true, Guarded::Grpo { evaluates: false, .. }) = (is_occasional(watch), run) {
            let fault = format!(
                "watch = \"{watch}\" is measured by evaluations, of which this run has none; set eval.every"
            );
            return refuse("watch", fault);
        }
        for (key, bound) in [("above", self.above), ("below", self.below)] {
            let Some(bound) = bound else { continue };
            if is_not_finite {
                let fault =
                    format!("{key} has no meaning for watch = \"not_finite\"; leave it out");
                return refuse(key, fault);
            }
            if !bound.is_finite() {
                return refuse(key, format!("{key} = {bound} is no finite number"));
            }
        }
        match (self.above, self.below) {
            (None, None) if !is_not_finite => {
                let fault =
                    format!("watch = \"{watch}\" needs a bound; add `above`, `below` or both");
                return refuse("watch", fault);
            }
            (Some(above), Some(below)) if below > above => {
                let fault = format!(
                    "every value is above {above} or below {below}; `below` may be at most `above`"
                );
                return refuse("below", fault);
            }
            _ => {}
        }
        for (key, steps) in [("steps", self.steps), ("from_step", self.from_step)] {
            if steps == 0 {
                return refuse(key, format!("{key} = 0 is out of range; expected 1 or more"));
            }
        }
        self.check_factors(guard, run)
    }

    fn check_factors(&self, guard: usize, run: &Guarded<'_>) -> Result<(), ConfigFault> {
        let refuse = |key: &str, fault: String| Err(guard_fault(guard, key, &fault));
        let kl_coef = match *run {
            Guarded::Grpo { kl_coef, .. } => kl_coef,
            Guarded::Supervised { .. } if self.action == GuardAction::RollBack => {
                let fault = "action = \"roll_back\" is for `grpo train`; a supervised run can \"warn\" or \"stop\"";
                return refuse("action", fault.to_owned());
            }
            Guarded::Supervised { .. } => 0.0,
        };
        let ranges = [
            ("learning_rate_factor", self.learning_rate_factor, 1.0 / MOST_FACTOR, 1.0),
            ("kl_coef_factor", self.kl_coef_factor, 1.0, MOST_FACTOR),
        ];
        for (key, factor, least, most) in ranges {
            let Some(factor) = factor else { continue };
            if self.action != GuardAction::RollBack {
                let fault = format!("{key} belongs to action = \"roll_back\"; leave it out");
                return refuse(key, fault);
            }
            if !(least..=most).contains(&factor) {
                let fault = format!(
                    "{key} = {} is out of range; expected {least} to {most}",
                    short_number(factor)
                );
                return refuse(key, fault);
            }
        }
        if self.kl_coef_factor.is_some_and(|factor| factor > 1.0) && kl_coef == 0.0 {
            let fault = "kl_coef_factor multiplies loss.kl_coef, which is 0; leave it out, or set loss.kl_coef";
            return refuse("kl_coef_factor", fault.to_owned());
        }
        let changes = Action::RollBack { learning_rate_factor: 1.0, kl_coef_factor: 1.0 };
        if self.action == GuardAction::RollBack && self.action() == changes {
            let fault = "a run that goes back and changes nothing does the same again; set learning_rate_factor below 1 or kl_coef_factor above 1";
            return refuse("learning_rate_factor", fault.to_owned());
        }
        Ok(())
    }

    /// What is done, with its numbers.
    pub(crate) fn action(&self) -> Action {
        match self.action {
            GuardAction::Warn => Action::Warn,
            GuardAction::Stop => Action::Stop,
            GuardAction::RollBack => Action::RollBack {
                learning_rate_factor: self.learning_rate_factor.unwrap_or(0.5),
                kl_coef_factor: self.kl_coef_factor.unwrap_or(1.0),
            },
        }
    }

    /// The same with all that counts written out.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let mut resolved = self.clone();
        if let Action::RollBack { learning_rate_factor, kl_coef_factor } = self.action() {
            resolved.learning_rate_factor = Some(learning_rate_factor);
            resolved.kl_coef_factor = Some(kl_coef_factor);
        }
        resolved
    }
}

/// What a run without `[[guards]]` has: it ends where a number is not finite any more, and says where a training is
/// likely to lead nowhere. The bounds are far from what a sound run does, so that they hold for any model and reward.
pub fn default_guards() -> Vec<GuardConfig> {
    let guard = |watch: &str, above: Option<f64>, below: Option<f64>, steps, action| GuardConfig {
        watch: watch.to_owned(),
        above,
        below,
        steps,
        from_step: 1,
        action,
        learning_rate_factor: None,
        kl_coef_factor: None,
    };
    let warn = |watch, above, below, steps| guard(watch, above, below, steps, GuardAction::Warn);
    vec![
        // Nothing sound follows from it.
        guard(NOT_FINITE, None, None, 1, GuardAction::Stop),
        // Completions of nearly all groups are equally good: there is nothing to learn from.
        warn("frac_reward_zero_std", Some(0.9), None, 5),
        // The next token is all but certain (e^0.02 = 1.02 choices): groups will soon be copies of one completion.
        warn("entropy", None, Some(0.02), 5),
        // A nat a token from the reference: each token is 2.7 times likelier than the reference has it.
        warn("kl", Some(1.0), None, 3),
        // One token in a hundred moved by a factor of 3 within a step: far outside of any clip range.
        warn("ratio/p99", Some(3.0), None, 3),
        // Hardly a completion ends by itself: max_new_tokens is too small, or the end was unlearned.
        warn("completions/clipped_ratio", Some(0.9), None, 5),
        // Rewards that fail are no rewards; `train.max_failed_rewards` ends the run where they are many.
        warn("rewards/failed", Some(0.0), None, 3),
    ]
}
