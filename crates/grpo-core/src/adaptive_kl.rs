//! An adaptive coefficient of the KL penalty.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero};

/// Settings of [`AdaptiveKl`]: the section `[kl_controller]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlController {
    /// Target KL to the reference in nats per token, the value that the metric `kl` should reach.
    pub target: f64,
    /// Number of completions over which a KL at least 20 % off the target changes the coefficient
    /// by a factor of about `exp(±0.2)`.
    pub horizon: f64,
    /// Smallest coefficient.
    #[serde(default = "default_min")]
    pub min: f64,
    /// Largest coefficient.
    #[serde(default = "default_max")]
    pub max: f64,
}

/// Above 0, because a coefficient of 0 would never change.
fn default_min() -> f64 {
    1e-5
}
/// Far above any coefficient at which the reward still has an effect.
fn default_max() -> f64 {
    10.0
}

impl KlController {
    /// Checks the ranges. `coef` is the initial coefficient.
    ///
    /// # Errors
    /// Returns an error if a number is out of range.
    pub fn check(&self, coef: f64) -> Result<(), ConfigError> {
        above_zero("kl_controller.target", self.target)?;
        above_zero("kl_controller.horizon", self.horizon)?;
        above_zero("kl_controller.min", self.min)?;
        above_zero("kl_controller.max", self.max)?;
        if self.min > self.max {
            let (name, expected) = ("kl_controller.min", "at most kl_controller.max");
            return Err(ConfigError::out_of_range(name, self.min, expected));
        }
        if !(self.min..=self.max).contains(&coef) {
            return Err(ConfigError::out_of_range(
                "kl_coef",
                coef,
                "between kl_controller.min and kl_controller.max, as it is where the controller begins",
            ));
        }
        Ok(())
    }
}

/// The coefficient of the KL penalty, updated after each step. This is the controller's whole
/// state.
///
/// `e = clip((KL − target) / target, ±0.2)`, `β ← β · (1 + e · completions / horizon)`, limited to
/// `[min, max]` (Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", §2.2;
/// their K_β is 1 / `horizon`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdaptiveKl {
    controller: KlController,
    coef: f64,
}

/// Bound of the relative error.
const CLIP: f64 = 0.2;

impl AdaptiveKl {
    /// Creates a controller whose first step uses `coef`.
    pub fn new(controller: KlController, coef: f64) -> Self {
        Self { controller, coef }
    }

    /// Returns the coefficient of the next step.
    pub fn coef(&self) -> f64 {
        self.coef
    }

    /// Replaces the coefficient, limited to `[min, max]`.
    pub fn set_coef(&mut self, coef: f64) {
        self.coef = coef.clamp(self.controller.min, self.controller.max);
    }

    /// Updates the coefficient from the mean KL of a step, in nats per token, over `completions`
    /// completions. A non-finite KL is ignored.
    pub fn observe(&mut self, kl: f64, completions: usize) {
        let KlController { target, horizon, .. } = self.controller;
        if kl.is_nan() {
            return;
        }
        let error = ((kl - target) / target).clamp(-CLIP, CLIP);
        self.set_coef(self.coef * (1.0 + error * completions as f64 / horizon));
    }
}
