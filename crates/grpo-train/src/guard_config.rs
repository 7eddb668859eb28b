//! Guard configuration and the default guards.

use grpo_data::{ConfigFault, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RunMetrics;
use crate::error::guard_fault;

/// Special value for `watch` that matches any non-finite metric.
pub(crate) const NOT_FINITE: &str = "not_finite";

/// A `[[guards]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct GuardConfig {
    /// A [metric](metrics.md#grpo-train) without ⏱, or `not_finite`: any such metric that is NaN or
    /// infinite, or a step that failed because of one. Metrics that the run cannot have (components
    /// of another reward, `eval_*` without `eval.every`, `cispo_clip_ratio` with another surrogate)
    /// are refused before the first step.
    #[schemars(extend("x-basic" = true))]
    pub watch: String,
    /// Upper bound; at least one bound is needed, and none with `not_finite`.
    #[schemars(extend("x-basic" = true))]
    pub above: Option<f64>,
    /// Lower bound; at least one bound is needed, and none with `not_finite`.
    #[schemars(extend("x-basic" = true))]
    pub below: Option<f64>,
    /// Consecutive steps out of range that trip the guard; steps without the metric are skipped.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub steps: u32,
    /// Earlier steps are ignored.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub from_step: u32,
    /// What happens when the guard trips.
    #[schemars(extend("x-basic" = true))]
    pub action: GuardAction,
    /// `roll_back` only: multiplies the learning rate from then on.
    #[schemars(range(min = 1e-6, max = 1))]
    pub learning_rate_factor: Option<f64>,
    /// `roll_back` only: multiplies β from then on.
    #[schemars(range(min = 1, max = 1e6))]
    pub kl_coef_factor: Option<f64>,
}

fn one() -> u32 {
    1
}

/// Action taken by a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuardAction {
    /// Prints a warning once.
    Warn,
    /// Stops the run.
    Stop,
    /// Rolls back to the last good checkpoint and continues with a different learning rate or KL
    /// coefficient.
    RollBack,
}

/// Action requested by a triggered guard. Variants are ordered by severity.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Action {
    /// Print a warning.
    Warn,
    /// Roll back to the last good checkpoint and continue with different settings.
    RollBack {
        /// Factor applied to later learning rates.
        learning_rate_factor: f64,
        /// Factor applied to the KL coefficient.
        kl_coef_factor: f64,
    },
    /// Stop the run.
    Stop,
}

impl Action {
    /// Returns the name used in configuration files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::RollBack { .. } => "roll_back",
            Self::Stop => "stop",
        }
    }
}

/// Type of run that is guarded.
pub(crate) enum Guarded {
    Grpo { kl_coef: f64 },
    Supervised,
}

impl GuardConfig {
    /// Validates the guard with this index, counted from 0, for a type of run with these metrics.
    pub(crate) fn check(
        &self,
        guard: usize,
        run: &Guarded,
        metrics: &RunMetrics,
    ) -> Result<(), ConfigFault> {
        let refuse = |key: &str, fault: String| Err(guard_fault(guard, key, &fault));
        let watch = &self.watch;
        let is_not_finite = watch == NOT_FINITE;
        match run {
            Guarded::Supervised if is_not_finite => {
                let fault = "watch = \"not_finite\" is only valid for `grpo train`: a supervised run always stops at a non-finite loss; remove the guard";
                return refuse("watch", fault.to_owned());
            }
            _ if is_not_finite => {}
            Guarded::Supervised => metrics.check_watched(guard, watch, "")?,
            Guarded::Grpo { .. } => {
                let hint = " `not_finite` watches all of them for NaN and infinity";
                metrics.check_watched(guard, watch, hint)?;
            }
        }
        for (key, bound) in [("above", self.above), ("below", self.below)] {
            let Some(bound) = bound else { continue };
            if is_not_finite {
                let fault = format!("{key} is not valid with watch = \"not_finite\"; remove it");
                return refuse(key, fault);
            }
            if !bound.is_finite() {
                return refuse(key, format!("{key} = {bound} is not a finite number"));
            }
        }
        match (self.above, self.below) {
            (None, None) if !is_not_finite => {
                let fault =
                    format!("watch = \"{watch}\" requires a bound; add `above`, `below` or both");
                return refuse("watch", fault);
            }
            (Some(above), Some(below)) if below > above => {
                let fault = format!(
                    "every value is above {above} or below {below}; `below` must be at most `above`"
                );
                return refuse("below", fault);
            }
            _ => {}
        }
        self.check_factors(guard, run)
    }

    fn check_factors(&self, guard: usize, run: &Guarded) -> Result<(), ConfigFault> {
        let refuse = |key: &str, fault: String| Err(guard_fault(guard, key, &fault));
        let kl_coef = match *run {
            Guarded::Grpo { kl_coef } => kl_coef,
            Guarded::Supervised if self.action == GuardAction::RollBack => {
                let fault = "action = \"roll_back\" is only valid for `grpo train`; use \"warn\" or \"stop\" for a supervised run";
                return refuse("action", fault.to_owned());
            }
            Guarded::Supervised => 0.0,
        };
        let factors = [
            ("learning_rate_factor", self.learning_rate_factor),
            ("kl_coef_factor", self.kl_coef_factor),
        ];
        let is_roll_back = self.action == GuardAction::RollBack;
        if let Some((key, _)) = factors.iter().find(|(_, it)| it.is_some() && !is_roll_back) {
            let fault = format!("{key} is only valid with action = \"roll_back\"; remove it");
            return refuse(key, fault);
        }
        if let Err(fault) = self.check_ranges("") {
            return refuse(&fault.key, fault.to_string());
        }
        if self.kl_coef_factor.is_some_and(|factor| factor > 1.0) && kl_coef == 0.0 {
            let fault = "kl_coef_factor has no effect because loss.kl_coef is 0; remove it, or set loss.kl_coef";
            return refuse("kl_coef_factor", fault.to_owned());
        }
        let changes = Action::RollBack { learning_rate_factor: 1.0, kl_coef_factor: 1.0 };
        if self.action == GuardAction::RollBack && self.action() == changes {
            let fault = "rolling back without changes repeats the same steps; set learning_rate_factor below 1 or kl_coef_factor above 1";
            return refuse("learning_rate_factor", fault.to_owned());
        }
        Ok(())
    }

    /// Returns the action together with its factors.
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

    /// Creates a guard from the first step on, whose factors have their defaults.
    pub fn new(
        watch: &str,
        above: Option<f64>,
        below: Option<f64>,
        steps: u32,
        action: GuardAction,
    ) -> Self {
        Self {
            watch: watch.to_owned(),
            above,
            below,
            steps,
            from_step: 1,
            action,
            learning_rate_factor: None,
            kl_coef_factor: None,
        }
    }

    /// Returns a copy of the guard with all defaults filled in.
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

/// Returns the guards that are used if the configuration contains no `[[guards]]`. The run stops on
/// non-finite values and if every group has collapsed into one completion. A warning is shown if training is unlikely to succeed. Healthy runs stay
/// far away from these bounds regardless of the model and the reward.
pub fn default_guards() -> Vec<GuardConfig> {
    let warn = |watch, above, below, steps| {
        GuardConfig::new(watch, above, below, steps, GuardAction::Warn)
    };
    vec![
        // Training cannot recover from a non-finite value.
        GuardConfig::new(NOT_FINITE, None, None, 1, GuardAction::Stop),
        // Completions are equally good in nearly all groups, so there is no learning signal.
        warn("frac_reward_zero_std", Some(0.9), None, 5),
        // The next token is almost certain (e^0.02 = 1.02 choices). Groups will soon contain only
        // copies of a single completion.
        warn("entropy", None, Some(0.02), 5),
        // Mode collapse: on average, each text occurs four times in a step.
        warn("completions/unique_ratio", None, Some(0.25), 5),
        // The policy gives the same answer to all prompts, so all advantages are 0.
        GuardConfig::new("completions/collapsed_groups", Some(0.99), None, 3, GuardAction::Stop),
        // At one nat per token, the policy assigns each token 2.7 times the probability it has
        // under the reference. Without a KL penalty, only every tenth step measures it.
        warn("kl", Some(1.0), None, 1),
        // 1 % of tokens changed by a factor of 3 within one step, well outside any clipping range.
        warn("ratio/p99", Some(3.0), None, 3),
        // Few completions end on their own. Either max_new_tokens is too small, or the policy has
        // unlearned the end token.
        warn("completions/clipped_ratio", Some(0.9), None, 5),
        // If too many rewards fail, `train.max_failed_rewards` ends the run.
        warn("rewards/failed", Some(0.0), None, 3),
    ]
}
