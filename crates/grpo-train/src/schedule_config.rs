//! The `[schedule]` section: what changes over the steps of a run.

use grpo_core::{EntropyBonus, EntropyController, LossConfig};
use grpo_data::{ConfigFault, Ranges, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Decay, Schedule};

/// The `[schedule]` section. Durations are in steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleConfig {
    /// Steps of linear warm-up. A run with fewer steps is the beginning of a longer one: a note
    /// says which fraction of the learning rate it reaches.
    #[schemars(range(min = 0, max = 1e9), extend("x-basic" = true))]
    pub warmup_steps: u32,
    /// The learning rate decays to this fraction of the maximum; 1 keeps it constant.
    #[schemars(range(min = 0, max = 1), extend("x-basic" = true))]
    pub floor: f64,
    /// Shape of the decay.
    pub decay: Decay,
    /// Final β: it changes linearly from `loss.kl_coef`, which must be above 0. Not with
    /// `[kl_controller]`. Default: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub kl_coef_end: Option<f64>,
    /// Final coefficient of the entropy bonus: it changes linearly from the `coef` of a `static`
    /// bonus, which must be above 0. Default: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub entropy_coef_end: Option<f64>,
    /// Steps until both have their final value: step 0 (counted from 0) has the initial one, step
    /// `coef_steps` is the first with the final one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1e9))]
    pub coef_steps: Option<u32>,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            warmup_steps: 0,
            floor: 1.0,
            decay: Decay::default(),
            kl_coef_end: None,
            entropy_coef_end: None,
            coef_steps: None,
        }
    }
}

/// Factors by which coefficients of the loss are multiplied in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CoefFactors {
    /// Factor of the KL coefficient.
    pub(crate) kl: f64,
    /// Factor of the entropy bonus coefficient.
    pub(crate) entropy: f64,
}

impl ScheduleConfig {
    /// Returns a note if the warm-up is longer than a run of `steps` steps. Such a run is the beginning
    /// of a longer one, so that `--set train.steps=2` tries a configuration.
    pub fn incomplete_warmup(&self, steps: u32) -> Option<String> {
        let reached = 100.0 * f64::from(steps) / f64::from(self.warmup_steps);
        (self.warmup_steps > steps).then(|| {
            format!(
                "schedule.warmup_steps = {} is longer than the run of {}, so the learning rate only reaches {reached:.1} % of optimizer.learning_rate",
                self.warmup_steps,
                counted(steps, "step")
            )
        })
    }

    /// Validates the section.
    pub(crate) fn check(
        &self,
        loss: &LossConfig,
        has_kl_controller: bool,
    ) -> Result<(), ConfigFault> {
        self.check_ranges("schedule")?;
        self.decay.check("schedule.decay")?;
        self.decay.refuse_plateau("schedule.decay")?;
        self.check_coefficients(loss, has_kl_controller)
    }

    fn check_coefficients(
        &self,
        loss: &LossConfig,
        has_kl_controller: bool,
    ) -> Result<(), ConfigFault> {
        let refuse = |key: &str, fault: &str, fix: &str| {
            Err(ConfigFault::new(key, format!("{key}: {fault}"), fix))
        };
        if self.kl_coef_end.is_some() {
            let key = "schedule.kl_coef_end";
            if loss.kl.coef == 0.0 {
                return refuse(key, "there is no KL penalty", "remove it, or set loss.kl_coef");
            }
            if has_kl_controller {
                let fault = "[kl_controller] already changes the KL coefficient";
                return refuse(key, fault, "remove one of them");
            }
        }
        if self.entropy_coef_end.is_some() {
            let key = "schedule.entropy_coef_end";
            match loss.entropy_bonus {
                Some(EntropyBonus::Static { coef }) if coef > 0.0 => (),
                Some(EntropyBonus::Adaptive { .. }) => {
                    let fault = "an adaptive entropy bonus already changes its coefficient";
                    return refuse(key, fault, "remove it, or use a static bonus");
                }
                _ => {
                    let fix = "remove it, or set loss.entropy_bonus with a positive coef";
                    return refuse(key, "there is no entropy bonus", fix);
                }
            }
        }
        if self.coef_steps.is_some() {
            let key = "schedule.coef_steps";
            if self.kl_coef_end.is_none() && self.entropy_coef_end.is_none() {
                let fix = "remove it, or set schedule.kl_coef_end or schedule.entropy_coef_end";
                return refuse(key, "no coefficient changes", fix);
            }
        }
        Ok(())
    }

    /// Returns the factor of the learning rate in `step`, counted from 0, of `steps`. It is positive even
    /// in the first warm-up step.
    pub(crate) fn learning_rate_factor(&self, step: u32, steps: u32) -> f64 {
        let schedule = Schedule {
            warmup: f64::from(self.warmup_steps),
            total: f64::from(steps),
            floor: self.floor,
            decay: self.decay,
        };
        let after = if step < self.warmup_steps { step + 1 } else { step };
        schedule.of_step(f64::from(step), f64::from(after), 0)
    }

    /// Returns the factors in `step`, counted from 0, of `steps`. Step 0 has the initial coefficients, and
    /// step `coef_steps` is the first one with the final coefficients.
    pub(crate) fn coef_factors(&self, step: u32, steps: u32, loss: &LossConfig) -> CoefFactors {
        let duration = self.coef_steps.unwrap_or(steps);
        let progress = (f64::from(step) / f64::from(duration)).min(1.0);
        let factor = |start: f64, end: Option<f64>| {
            end.map_or(1.0, |end| (1.0 - progress) + progress * (end / start))
        };
        let initial = |bonus| EntropyController::new(bonus).coef();
        let entropy_coef = loss.entropy_bonus.map_or(0.0, initial);
        CoefFactors {
            kl: factor(loss.kl.coef, self.kl_coef_end),
            entropy: factor(entropy_coef, self.entropy_coef_end),
        }
    }
}
