//! The `[schedule]` section: what changes over the steps of a run.

use grpo_core::{EntropyBonus, EntropyController, LossConfig};
use grpo_data::{ConfigFault, counted};
use serde::{Deserialize, Serialize};

use crate::error::in_range;
use crate::{Decay, Schedule};

/// The `[schedule]` section. Durations are in steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleConfig {
    /// Number of linear warm-up steps of the learning rate.
    pub warmup_steps: u32,
    /// Lowest learning rate after the warm-up, as a fraction of the maximum. If it is 1, the learning
    /// rate stays constant.
    pub floor: f64,
    /// How the learning rate decreases after the warm-up.
    pub decay: Decay,
    /// Final KL coefficient. The coefficient changes linearly from `loss.kl_coef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_coef_end: Option<f64>,
    /// Final coefficient of the entropy bonus. It changes linearly from `loss.entropy_bonus.coef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropy_coef_end: Option<f64>,
    /// Number of steps until the coefficients have their final values. Defaults to `train.steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
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
        in_range("schedule.warmup_steps", self.warmup_steps.into(), 0.0..=1e9)?;
        in_range("schedule.floor", self.floor, 0.0..=1.0)?;
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
        if let Some(end) = self.kl_coef_end {
            let key = "schedule.kl_coef_end";
            in_range(key, end, 0.0..=f64::MAX)?;
            if loss.kl.coef == 0.0 {
                return refuse(key, "there is no KL penalty", "remove it, or set loss.kl_coef");
            }
            if has_kl_controller {
                let fault = "[kl_controller] already changes the KL coefficient";
                return refuse(key, fault, "remove one of them");
            }
        }
        if let Some(end) = self.entropy_coef_end {
            let key = "schedule.entropy_coef_end";
            in_range(key, end, 0.0..=f64::MAX)?;
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
        if let Some(steps) = self.coef_steps {
            let key = "schedule.coef_steps";
            in_range(key, steps.into(), 1.0..=1e9)?;
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
