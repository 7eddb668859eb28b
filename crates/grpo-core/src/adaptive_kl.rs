//! Adaptive KL coefficient.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero};

/// The `[kl_controller]` section: a KL coefficient that follows a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KlController {
    /// Target of the metric `kl`, in nats per token.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub target: f64,
    /// Completions after which a KL 20 % or more off the target has changed β by a factor of about
    /// e^±0.2. Usual: 10,000. In steps: divide by `train.prompts_per_step` · `train.group_size`.
    /// At least the completions per step.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub horizon: f64,
}

impl KlController {
    /// Lower bound of the coefficient. It is positive, because the update is multiplicative: a
    /// coefficient of 0 would stay 0.
    pub const MIN: f64 = 1e-5;
    /// Upper bound of the coefficient, at which the reward no longer has any effect.
    pub const MAX: f64 = 10.0;
}

impl KlController {
    /// Validates the settings, where `coef` is the initial coefficient.
    ///
    /// # Errors
    /// Returns an error if a value is out of range.
    pub fn check(&self, coef: f64) -> Result<(), ConfigError> {
        above_zero("kl_controller.target", self.target)?;
        above_zero("kl_controller.horizon", self.horizon)?;
        if !(Self::MIN..=Self::MAX).contains(&coef) {
            return Err(ConfigError::out_of_range(
                "kl_coef",
                coef,
                "0.00001 to 10, since the controller starts from it",
            ));
        }
        Ok(())
    }
}

/// KL coefficient that is updated after each step. It is the only state of the controller.
///
/// `e = clip((KL − target) / target, ±0.2)`, `β ← β · (1 + e · completions / horizon)`, limited to
/// 1e-5 to 10 (Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", §2.2;
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

    /// Sets the coefficient, clamped to the bounds of the controller.
    pub fn set_coef(&mut self, coef: f64) {
        self.coef = coef.clamp(KlController::MIN, KlController::MAX);
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
