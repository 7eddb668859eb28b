//! Adaptive KL coefficient.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero};

/// Configuration of [`AdaptiveKl`], the `[kl_controller]` section.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlController {
    /// Target KL to the reference in nats per token. This is the value the `kl` metric should
    /// reach.
    pub target: f64,
    /// If the KL stays at least 20 % away from the target, the coefficient changes by a factor of
    /// about `exp(±0.2)` over this number of completions.
    pub horizon: f64,
    /// Lower bound for the coefficient.
    #[serde(default = "default_min")]
    pub min: f64,
    /// Upper bound for the coefficient.
    #[serde(default = "default_max")]
    pub max: f64,
}

/// Must be positive: the update is multiplicative, so a coefficient of 0 would stay 0.
fn default_min() -> f64 {
    1e-5
}
/// Large enough that the reward no longer has any effect at this coefficient.
fn default_max() -> f64 {
    10.0
}

impl KlController {
    /// Validates the settings, where `coef` is the initial coefficient.
    ///
    /// # Errors
    /// Returns an error if a value is out of range.
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
                "between kl_controller.min and kl_controller.max, since the controller starts from it",
            ));
        }
        Ok(())
    }
}

/// KL coefficient that is updated after each step. It is the only state of the controller.
///
/// `e = clip((KL − target) / target, ±0.2)`, `β ← β · (1 + e · completions / horizon)`, limited to
/// `[min, max]` (Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", §2.2;
/// their K_β is 1 / `horizon`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdaptiveKl {
    controller: KlController,
    coef: f64,
}

/// Limit on the relative error.
const CLIP: f64 = 0.2;

impl AdaptiveKl {
    /// Creates a controller with the initial coefficient `coef`.
    pub fn new(controller: KlController, coef: f64) -> Self {
        Self { controller, coef }
    }

    /// Returns the coefficient for the next step.
    pub fn coef(&self) -> f64 {
        self.coef
    }

    /// Sets the coefficient, clamped to `[min, max]`.
    pub fn set_coef(&mut self, coef: f64) {
        self.coef = coef.clamp(self.controller.min, self.controller.max);
    }

    /// Updates the coefficient from the mean KL of a step in nats per token, measured on
    /// `completions` completions. NaN is ignored.
    pub fn observe(&mut self, kl: f64, completions: usize) {
        let KlController { target, horizon, .. } = self.controller;
        if kl.is_nan() {
            return;
        }
        let error = ((kl - target) / target).clamp(-CLIP, CLIP);
        self.set_coef(self.coef * (1.0 + error * completions as f64 / horizon));
    }
}
